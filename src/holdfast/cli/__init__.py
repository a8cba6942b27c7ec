"""The command line: parse, call, print. Each module beside this one adds its commands to `cli`."""

from holdfast.cli import early  # isort: skip - it comes first
from holdfast.cli import (
    bench,
    config,
    cron,
    demo,
    dev,
    doctor,
    enqueue,
    jobs,
    pauses,
    queues,
    schema,
    stack,
    steer,
    top,
    why,
    work,
)
from holdfast.cli.base import cli
from holdfast.signals import leave_if_heeded

__all__ = [
    "bench", "cli", "config", "cron", "demo", "dev", "doctor", "early", "enqueue", "jobs", "main", "pauses", "queues",
    "schema", "stack", "steer", "top", "why", "work",
]  # fmt: skip


def main() -> None:
    try:
        cli(prog_name="holdfast")
    except SystemExit as end:
        leave_if_heeded(end.code)
        raise
