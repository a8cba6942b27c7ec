"""The command line: parse, call, print. Each module beside this one adds its commands to `cli`."""

from holdfast.cli import doctor, jobs, setup, why, work
from holdfast.cli.base import cli

__all__ = ["cli", "doctor", "jobs", "main", "setup", "why", "work"]


def main() -> None:
    cli(prog_name="holdfast")
