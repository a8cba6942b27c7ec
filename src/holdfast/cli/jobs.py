"""`jobs list`, `jobs count` and `jobs show`. The verbs that change jobs are in `job_verbs`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.audit import outcome
from holdfast.cli.base import (
    DURATION,
    ago,
    cli,
    database_option,
    open_app,
    output_option,
    print_data,
    print_table,
    say,
    talk,
    to_json,
)
from holdfast.errors import BadArguments
from holdfast.harmless import block, harmless
from holdfast.model.filter import ALL, STATES, Filter, parse
from holdfast.model.job import ErrorGroup, JobRecord, Progress, progress_in_words
from holdfast.model.lifecycle import State
from holdfast.model.text import nearest
from holdfast.operations import STACK_TIMEOUT
from holdfast.store.reads import WINDOW

SHOWN = 200  # characters of a step's result in a table
MESSAGE = 60  # of an error's message


@cli.group()
def jobs() -> None:
    """Look at jobs, and change them.

    \b
    Examples:
      holdfast jobs list
      holdfast jobs retry state:failed --dry-run
    """


@jobs.command("list")
@click.argument("filter", nargs=-1)
@click.option("--state", type=click.Choice(STATES), multiple=True, help="Only jobs in this state, or one of several.")
@click.option("--queue", multiple=True, help="Only jobs of this queue, or one of several.")
@click.option("--task", multiple=True, help="Only jobs of this task, or one of several.")
@click.option("--before", metavar="ID", help="Only jobs older than this one: the next page.")
@click.option("--group-by", type=click.Choice(["error"]), help="Group failed jobs by the kind of their error.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@output_option
@database_option
def list_jobs(
    filter: tuple[str, ...], state: tuple[str, ...], queue: tuple[str, ...], task: tuple[str, ...], before: str | None,
    group_by: str | None, limit: int, output: str, url: str | None,
) -> None:  # fmt: skip
    """List jobs, newest first: all of them, or those that match a FILTER.

    A FILTER is made of state: queue: task: tag: since: error: group: args.NAME: id: key: worker: source: row:; a job
    must match all.

    \b
    Examples:
      holdfast jobs list 'state:failed queue:mail since:1h'
      holdfast jobs list --group-by error queue:mail
    """
    wanted = parse(" ".join(filter)).narrowed(state=state, queue=queue, task=task)
    if group_by is not None and before is not None:
        raise BadArguments("--before goes on in a list of jobs, and --group-by error lists groups: leave one out")
    app = open_app(url)
    if group_by is not None:
        print_groups(app.store.reads.error_groups(wanted, limit), output)
        return
    found = app.store.reads.jobs(wanted, before=before, limit=limit)
    if output == "table":
        print_jobs(found)
    else:
        print_data([job_data(job, app) for job in found], output)
    if found.cut:
        talk(f"looked through the newest {WINDOW:,} jobs; older ones: --before {found.next}")
    elif len(found) == limit and app.store.reads.jobs(wanted, before=found.next, limit=1):
        talk(f"there are more: --before {found.next}, or -n for a longer list")
    if not found and before is None:
        hint_at_names(app, wanted)


@jobs.command("count")
@click.argument("filter", nargs=-1)
@output_option
@database_option
def count_jobs(filter: tuple[str, ...], output: str, url: str | None) -> None:
    """Count jobs exactly: all of them, or those that match a FILTER. Looks through all jobs there are.

    \b
    Examples:
      holdfast jobs count state:failed since:1h
      holdfast jobs count 'task:audit args.user_id:42' -o json
    """
    app = open_app(url)
    wanted = " ".join(filter)
    found = app.count(wanted)
    if output == "table":
        say(str(found))
    else:
        print_data([{"jobs": found}], output, one=True)
    if not found:
        hint_at_names(app, parse(wanted))


def hint_at_names(app: Holdfast, filter: Filter) -> None:
    """For a filter that matches no job: report names in it that no job has, and similar ones."""
    for kind, names in (("queue", filter.queues), ("task", filter.tasks)):
        unknown = [name for name in names if not app.store.reads.jobs(ALL.narrowed(**{kind: name}), limit=1)]
        if unknown:
            known = {getattr(job, kind) for job in app.store.reads.jobs(limit=1000)}
            known |= {getattr(depth, kind) for depth in app.store.reads.depths()}
        for name in unknown:
            near = nearest(name, known)
            talk(f"no job is of {kind} {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def print_jobs(found: Sequence[JobRecord], *, err: bool = False) -> None:
    """With a column for the rows of adopted tables, if there are any."""
    rows = any(job.source_id is not None for job in found)
    print_table(
        ("id", "state", "task", *["row"] * rows, "queue", "attempt", "due", "failed", "error"),
        [
            (
                job.id, shown_state(job), job.task, *[job.source_id or ""] * rows, job.queue,
                f"{job.attempt}/{job.max_attempts}", ago(job.run_at),
                "" if job.failed_at is None else ago(job.failed_at), shown_error(job.error_code, job.error_message),
            )
            for job in found
        ],
        err=err,
    )  # fmt: skip


def print_groups(groups: Sequence[ErrorGroup], output: str) -> None:
    if output != "table":
        print_data([group.as_dict() for group in groups], output)
        return
    print_table(
        ("group", "jobs", "first", "last", "task", "example", "error"),
        [
            (
                group.id, f"{group.jobs:,}", ago(group.first_at), ago(group.last_at), ", ".join(group.tasks),
                group.example, shown_error(group.error_code, group.error_message),
            )
            for group in groups
        ],
    )  # fmt: skip
    if groups:
        talk(f"look at one: holdfast jobs list group:{groups[0].id}; then: holdfast jobs retry, or cancel, --group …")


def shown_error(code: str | None, message: str | None) -> str:
    """An error on one line of a table: its code, and the beginning of its message."""
    if not code:
        return ""
    text = " ".join((message or "")[:MESSAGE].split())
    short = text[: MESSAGE - 1] + "…" if len(message or "") > MESSAGE else text
    return code if short in ("", code) else f"{code}: {short}"


@jobs.command("show")
@click.argument("id")
@output_option
@database_option
def show_job(id: str, output: str, url: str | None) -> None:
    """Show one job with its history.

    \b
    Examples:
      holdfast jobs show 42
      holdfast jobs show 42 -o json
    """
    app = open_app(url)
    record = app.store.reads.get(id)
    attempts, steps, calls = app.store.reads.attempts(id), app.store.reads.steps(id), app.audit(job=id)
    if output != "table":
        data = job_data(record, app) | {
            "attempts": [attempt.as_dict() for attempt in attempts],
            "steps": [step.as_dict(app._secrets(record.task)) for step in steps],
            "audit": [call.as_dict() for call in calls],
        }
        print_data([data], output, one=True)
        return
    for name, value in job_data(record, app).items():
        if value not in (None, [], False, ""):
            shown = value if isinstance(value, str) else to_json(value)
            say(f"{name:<16} {described_progress(record.progress) if name == 'progress' else shown}")
    for step in steps:
        result = to_json(step.as_dict(app._secrets(record.task))["result"])
        say(f"step {step.name:<11} done {ago(step.ended_at)}: {result[:SHOWN]}")
    for attempt in attempts:
        life = f" in life {attempt.life}" if record.life > 1 else ""
        why = f": {attempt.error_code}: {attempt.error_message}" if attempt.error_code else ""
        say(f"attempt {attempt.number:<8} {attempt.outcome}{life} by {attempt.worker} {ago(attempt.ended_at)}{why}")
    for call in reversed(calls):
        what = f" {to_json(call.parameters)}" if call.parameters else ""
        why = f": {call.reason}" if call.reason else ""
        among = "" if call.what == f"id:{id}" else f" ({call.what})"  # a call on many jobs, or on a cron
        say(f"{'operator':<16} {call.verb}{what} by {call.by} {ago(call.at)}, {outcome(call)}{among}{why}")
    if attempts and attempts[-1].traceback:
        click.echo(block(attempts[-1].traceback))
    if attempts and attempts[-1].output:
        click.echo(f"output of attempt {attempts[-1].number}:")
        click.echo(block(attempts[-1].output))


@jobs.command("output")
@click.argument("id")
@click.option(
    "--timeout",
    type=DURATION,
    default=STACK_TIMEOUT,
    show_default="10s",
    help="How long to wait for the worker that runs it.",
)
@database_option
def show_output(id: str, timeout: float, url: str | None) -> None:
    """Print what a job with isolation="process" has written: so far, while it runs, else in its last attempt.

    \b
    Examples:
      holdfast jobs output 42
      holdfast jobs output 42 --timeout 30
    """
    written = open_app(url).output(id, timeout=timeout)
    if written is None:
        say(f'job {id} has no output: that is kept of tasks with isolation="process" that write some', err=True)
    else:
        click.echo(harmless(written, lines=True), nl=not written.endswith("\n"))


def shown_state(job: JobRecord) -> str:
    """The state; for a queued job that is not due yet, whether it is scheduled or being retried."""
    if job.held_by is not None:
        return "queued (paused)"
    if job.state is State.QUEUED and job.run_at > datetime.now(UTC):
        return "retrying" if job.attempt else "scheduled"
    if job.state is State.RUNNING and job.cancel_requested:
        return "running (cancel asked)"
    if job.state is State.RUNNING and job.pause_requested:
        return "running (pause asked)"
    return job.state.value


def job_data(job: JobRecord, app: Holdfast) -> dict[str, Any]:
    return job.as_dict(app._secrets(job.task))


def described_progress(progress: Progress | None) -> str:
    """`412 of 1,000 (41%), 8.2/s, 74s left, 2s ago: page 412`."""
    if progress is None:
        return ""
    if progress.done is None:
        return f"{ago(progress.at)}: {progress.note or progress_in_words(progress)}"
    return f"{progress_in_words(progress)}, {ago(progress.at)}" + f": {progress.note}" * bool(progress.note)
