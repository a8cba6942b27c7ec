"""`jobs`: look at jobs."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from holdfast.cli.base import ago, cli, open_app, output_option, plain, print_data, print_table, to_json, url_option
from holdfast.client import Holdfast
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.redact import hide_secrets


@cli.group()
def jobs() -> None:
    """Look at jobs."""


@jobs.command("list")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only jobs in this state.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option("--before", metavar="ID", help="Only jobs older than this one: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@output_option
@url_option
def list_jobs(
    state: str | None, queue: str | None, task: str | None, before: str | None, limit: int, output: str, url: str | None
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      holdfast jobs list --state failed
      holdfast jobs list --queue mail -n 5 -o json
    """
    app = open_app(url)
    found = app.jobs(state=state, queue=queue, task=task, before=before, limit=limit)
    if output == "table":
        print_table(
            ("id", "state", "task", "queue", "attempt", "due", "error"),
            [
                (
                    job.id, shown_state(job), job.task, job.queue, f"{job.attempt}/{job.max_attempts}", ago(job.run_at),
                    "" if job.state is State.SUCCEEDED else job.error_code or "",
                )
                for job in found
            ],
        )  # fmt: skip
        return
    print_data([job_data(job, app) for job in found], output)


@jobs.command("show")
@click.argument("id")
@output_option
@url_option
def show_job(id: str, output: str, url: str | None) -> None:
    """Show one job with its history.

    \b
    Examples:
      holdfast jobs show 42
      holdfast jobs show 42 -o json
    """
    app = open_app(url)
    record = app.store.get(id)
    attempts = app.store.attempts(id)
    if output != "table":
        data = job_data(record, app) | {"attempts": [plain(asdict(attempt)) for attempt in attempts]}
        print_data([data], output, one=True)
        return
    for name, value in job_data(record, app).items():
        if value not in (None, [], False, ""):
            shown = value if isinstance(value, str) else to_json(value)
            click.echo(f"{name:<16} {shown}")
    for attempt in attempts:
        why = f": {attempt.error_code}: {attempt.error_message}" if attempt.error_code else ""
        click.echo(f"attempt {attempt.number:<8} {attempt.outcome} by {attempt.worker} {ago(attempt.ended_at)}{why}")
    if attempts and attempts[-1].traceback:
        click.echo(attempts[-1].traceback)


def shown_state(job: JobRecord) -> str:
    """The state, in the words people use for a queued job that lies ahead."""
    if job.state is State.QUEUED and job.run_at > datetime.now(UTC):
        return "retrying" if job.attempt else "scheduled"
    if job.state is State.RUNNING and job.cancel_requested:
        return "running (cancel asked)"
    if job.state is State.RUNNING and job.pause_requested:
        return "running (pause asked)"
    return job.state.value


def job_data(job: JobRecord, app: Holdfast) -> dict[str, Any]:
    data = plain(asdict(job))
    for name in ("args", "result", "checkpoint"):
        value = getattr(job, name)
        data[name] = None if value is None else hide_secrets(msgspec.json.decode(value), app.secrets(job.task))
    return data
