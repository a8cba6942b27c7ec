"""`queues`, `tasks` and `workers`: how much waits where, what is paused, who works."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

import click
from msgspec.structs import asdict

from holdfast.app import Holdfast
from holdfast.cli.base import (
    ago,
    cli,
    open_app,
    output_option,
    plain,
    print_data,
    print_table,
    span,
    talk,
    url_option,
)
from holdfast.errors import BadArguments
from holdfast.model.filter import duration
from holdfast.model.job import COUNTED, Depth, Pause
from holdfast.model.text import named, plural

Row = dict[str, Any]


def pausing(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a pause, whatever is paused."""
    until = "When it ends by itself: 30m, 1h, 2d, or 2030-01-31T12:00Z. Default: when resumed."
    for option in (
        url_option,
        click.option("--by", help="Who asks. Default: the user's name."),
        click.option("--until", help=until),
        click.option("--reason", help="Shown to whoever wonders."),
    ):
        command = option(command)
    return command


@cli.group()
def queues() -> None:
    """Look at queues, and pause them.

    \b
    Examples:
      holdfast queues list
      holdfast queues pause mail --reason 'provider down' --until 1h
    """


@cli.group()
def tasks() -> None:
    """Look at tasks, and pause them.

    \b
    Examples:
      holdfast tasks list
      holdfast tasks pause audit --until 30m
    """


@queues.command("list")
@output_option
@url_option
def list_queues(output: str, url: str | None) -> None:
    """What waits, runs and failed in each queue; no more than 10,000 jobs of a kind are counted.

    \b
    Examples:
      holdfast queues list
      holdfast queues list -o json
    """
    show("queue", open_app(url), output)


@tasks.command("list")
@output_option
@url_option
def list_tasks(output: str, url: str | None) -> None:
    """What waits, runs and failed of each task; no more than 10,000 jobs of a kind are counted.

    \b
    Examples:
      holdfast tasks list
      holdfast tasks list -o jsonl
    """
    show("task", open_app(url), output)


@queues.command("pause")
@click.argument("queue")
@pausing
def pause_queue(queue: str, reason: str | None, until: str | None, by: str | None, url: str | None) -> None:
    """Start no more jobs of a QUEUE, whichever worker looks. What runs goes on.

    \b
    Examples:
      holdfast queues pause mail --reason 'provider down' --until 1h
      holdfast queues pause default
    """
    hold("queue", queue, open_app(url), reason, until, by)


@tasks.command("pause")
@click.argument("task")
@pausing
def pause_task(task: str, reason: str | None, until: str | None, by: str | None, url: str | None) -> None:
    """Start no more jobs of a TASK, whichever worker looks. What runs goes on.

    \b
    Examples:
      holdfast tasks pause audit --reason 'a bug' --until 2h
      holdfast tasks pause report
    """
    hold("task", task, open_app(url), reason, until, by)


@queues.command("resume")
@click.argument("queue")
@url_option
def resume_queue(queue: str, url: str | None) -> None:
    """End the pause of a QUEUE.

    \b
    Examples:
      holdfast queues resume mail
      holdfast queues resume default
    """
    let_go("queue", queue, open_app(url))


@tasks.command("resume")
@click.argument("task")
@url_option
def resume_task(task: str, url: str | None) -> None:
    """End the pause of a TASK.

    \b
    Examples:
      holdfast tasks resume audit
      holdfast tasks resume report
    """
    let_go("task", task, open_app(url))


@cli.command()
@output_option
@url_option
def workers(output: str, url: str | None) -> None:
    """Who works on this database: what they serve, how busy they are, when they were last heard of.

    \b
    Examples:
      holdfast workers
      holdfast workers -o json
    """
    store = open_app(url).store
    running: dict[str, int] = {}
    for depth in store.depths():
        for worker, jobs in depth.running.items():
            running[worker] = running.get(worker, 0) + jobs
    rows = [
        plain(asdict(worker)) | {"tasks": sorted(worker.tasks), "running": running.get(worker.id, 0)}
        for worker in store.workers()
    ]
    if output != "table":
        print_data(rows, output)
        return
    print_table(
        ("worker", "host", "pid", "running", "slots", "queues", "tasks", "started", "seen"),
        [
            (
                row["id"], row["host"], row["pid"], row["running"], row["slots"], ", ".join(row["queues"] or ["all"]),
                ", ".join(row["tasks"]), ago(datetime.fromisoformat(row["started_at"])),
                ago(datetime.fromisoformat(row["seen_at"])),
            )
            for row in rows
        ],
    )  # fmt: skip


# -- what they share -------------------------------------------------------------------------------------------------


def show(kind: str, app: Holdfast, output: str) -> None:
    rows = summary(kind, app)
    if output != "table":
        print_data(rows, output)
        return
    print_table(
        (kind, "due", "scheduled", "running", "failed", "pending", "oldest due", "workers", "paused"),
        [
            (
                row[kind], *(counted(row[name], row["capped"]) for name in ("due", "scheduled", "running", "failed")),
                work(row), "" if row["oldest_due_seconds"] is None else span(row["oldest_due_seconds"]), row["workers"],
                told(row["paused"]),
            )
            for row in rows
        ],
    )  # fmt: skip
    for pause in app.store.pauses():
        if pause.kind == "filter" and pause.jobs:
            talk(f"{held(pause)} beside these, set aside by the pause of {pause.name}: holdfast pauses")


def held(pause: Pause) -> str:
    """How many jobs a pause by filter has set aside."""
    jobs = pause.jobs or 0
    return f"{counted(min(jobs, COUNTED), jobs > COUNTED)} {plural('job', jobs)}"


def summary(kind: str, app: Holdfast) -> list[Row]:
    """A row for each queue, or task, that jobs, workers, pauses or the application know of."""
    store = app.store
    depths, serving = store.depths(), store.workers()
    pauses = {pause.name: pause for pause in store.pauses() if pause.kind == kind}
    names = {getattr(depth, kind) for depth in depths} | pauses.keys()
    if kind == "task":
        names |= app.tasks.keys()
    for worker in serving:
        names.update((worker.queues if kind == "queue" else worker.tasks) or ())
    rows = []
    for name in sorted(names):
        served = [w for w in serving if (w.queues is None or name in w.queues if kind == "queue" else name in w.tasks)]
        row = total([depth for depth in depths if getattr(depth, kind) == name])
        rows.append({kind: name, **row, "workers": len(served), "paused": paused(pauses.get(name))})
    return rows


def total(depths: Iterable[Depth]) -> Row:
    depths = list(depths)
    counts = {name: sum(getattr(depth, name) for depth in depths) for name in ("due", "scheduled", "failed")}
    running = sum(sum(depth.running.values()) for depth in depths)
    oldest = min((depth.oldest_due_at for depth in depths if depth.oldest_due_at), default=None)
    return {
        "due": min(counts["due"], COUNTED),
        "scheduled": min(counts["scheduled"], COUNTED),
        "running": running,
        "failed": min(counts["failed"], COUNTED),
        "pending_running": sum(depth.pending_running for depth in depths),
        "pending": sum(depth.pending for depth in depths),
        "capped": any(depth.capped for depth in depths) or max(counts.values()) > COUNTED,
        "oldest_due_at": oldest and oldest.isoformat(),
        "oldest_due_seconds": oldest and max(0.0, round((datetime.now(UTC) - oldest).total_seconds(), 3)),
    }


def counted(count: int, capped: bool) -> str:
    return f"{count:,}+" if capped and count >= COUNTED else f"{count:,}"


def work(row: Row) -> str:
    """Items of work pending, as checkpoints count them: in unfinished jobs, and how much of it in those that run."""
    running = f" ({row['pending_running']:,} running)" if row["pending_running"] else ""
    return f"{row['pending']:,}{running}" if row["pending"] else ""


def paused(pause: Pause | None) -> Row | None:
    if pause is None:
        return None
    moments = {"until": pause.until, "since": pause.created_at}
    return {"by": pause.by, "reason": pause.reason, **{name: at and at.isoformat() for name, at in moments.items()}}


def told(pause: Row | None) -> str:
    if pause is None:
        return ""
    parts = [f"by {pause['by']}" if pause["by"] else "yes"]
    if pause["reason"]:
        parts[0] += f": {pause['reason']}"
    if pause["until"]:
        parts.append(f"ends {ago(datetime.fromisoformat(pause['until']))}")
    return ", ".join(parts)


def hold(kind: str, name: str, app: Holdfast, reason: str | None, until: str | None, by: str | None) -> None:
    known = [row[kind] for row in summary(kind, app)]
    app.pause(**{kind: name}, by=by or user(), reason=reason, until=None if until is None else moment(until))
    if name not in known:
        near = get_close_matches(name, known, 1)
        talk(f"no job, worker or application knows of {kind} {name!r}" + (f"; perhaps {near[0]!r}?" if near else ""))
    talk(f"{kind} {name} is paused: holdfast {kind}s resume {named(name)} lets it go")


def let_go(kind: str, name: str, app: Holdfast) -> None:
    ended = app.resume(**{kind: name})
    talk(f"{kind} {name} goes on" if ended else f"{kind} {name} was not paused")


def user() -> str | None:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return None


def moment(text: str) -> datetime | timedelta:
    try:
        return duration(text)
    except (ValueError, OverflowError):
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadArguments(f"--until {text} is no time: write 30m, 1h, 2d or 2030-01-31T12:00Z") from None
    return at.replace(tzinfo=at.tzinfo or UTC)
