"""The command line: parse, call, print. Each module beside this one adds its commands to `cli`."""

from holdfast.cli import jobs, setup, why, work
from holdfast.cli.base import cli

__all__ = ["cli", "jobs", "main", "setup", "why", "work"]


def main() -> None:
    cli(prog_name="holdfast")
