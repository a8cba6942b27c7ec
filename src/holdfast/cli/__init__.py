"""The command line: parse, call, print. Each module beside this one adds its commands to `cli`."""

from holdfast.cli import cron, jobs, setup, work
from holdfast.cli.base import cli

__all__ = ["cli", "cron", "jobs", "main", "setup", "work"]


def main() -> None:
    cli(prog_name="holdfast")
