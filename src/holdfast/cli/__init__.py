"""The command line: parse, call, print. Each module beside this one adds its commands to `cli`."""

from holdfast.cli import config, cron, dev, doctor, enqueue, jobs, queues, schema, show, stack, steer, top, why, work
from holdfast.cli.base import cli

__all__ = [
    "cli", "config", "cron", "dev", "doctor", "enqueue", "jobs", "main", "queues", "schema", "show", "stack", "steer",
    "top", "why", "work",
]  # fmt: skip


def main() -> None:
    cli(prog_name="holdfast")
