"""The command line: parse, call, print. Each module in this package adds its commands to `cli`."""

from holdfast.cli import early  # isort: skip - it comes first
from holdfast.cli import (
    adopt,
    audit,
    bench,
    config,
    cron,
    demo,
    dev,
    doctor,
    enqueue,
    health,
    job_verbs,
    jobs,
    keys,
    pauses,
    queues,
    schema,
    serve,
    stack,
    ui,
    why,
    work,
    workers,
)
from holdfast.cli.base import cli
from holdfast.cli.top import command
from holdfast.signals import leave_if_heeded

__all__ = [
    "adopt", "audit", "bench", "cli", "command", "config", "cron", "demo", "dev", "doctor", "early", "enqueue",
    "health", "job_verbs", "jobs", "keys", "main", "pauses", "queues", "schema", "serve", "stack", "ui", "why", "work",
    "workers",
]  # fmt: skip


def main() -> None:
    try:
        cli(prog_name="holdfast")
    except SystemExit as end:
        leave_if_heeded(end.code)
        raise
