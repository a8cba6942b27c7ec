"""`queues list` and `tasks list`: how many jobs wait, run and failed, by queue or by task; and their `pause` and
`resume`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from holdfast.app import Holdfast
from holdfast.cli.base import cli, counted, database_option, open_app, output_option, print_data, print_table, talk
from holdfast.cli.pauses import add_pause_commands, described, held, pause_data
from holdfast.model.drain import EMPTY
from holdfast.model.durations import short_duration
from holdfast.model.job import COUNTED, Depth
from holdfast.store.metrics import drains_of

Row = dict[str, Any]


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
@database_option
def list_queues(output: str, url: str | None) -> None:
    """Count waiting, running and failed jobs of each queue; no more than 10,000 of a kind are counted.

    \b
    Examples:
      holdfast queues list
      holdfast queues list -o json
    """
    show("queue", open_app(url), output)


@tasks.command("list")
@output_option
@database_option
def list_tasks(output: str, url: str | None) -> None:
    """Count waiting, running and failed jobs of each task; no more than 10,000 of a kind are counted.

    \b
    Examples:
      holdfast tasks list
      holdfast tasks list -o jsonl
    """
    show("task", open_app(url), output)


add_pause_commands(
    queues,
    "queue",
    """Start no more jobs of a QUEUE, on any worker. Running jobs finish.

    \b
    Examples:
      holdfast queues pause mail --reason 'provider down' --until 1h
      holdfast queues pause default
    """,
    """End the pause of a QUEUE.

    \b
    Examples:
      holdfast queues resume mail
      holdfast queues resume default
    """,
    lambda app: known_names("queue", app),
)
add_pause_commands(
    tasks,
    "task",
    """Start no more jobs of a TASK, on any worker. Running jobs finish.

    \b
    Examples:
      holdfast tasks pause audit --reason 'a bug' --until 2h
      holdfast tasks pause report
    """,
    """End the pause of a TASK.

    \b
    Examples:
      holdfast tasks resume audit
      holdfast tasks resume report
    """,
    lambda app: known_names("task", app),
)


def show(kind: str, app: Holdfast, output: str) -> None:
    rows = summary(kind, app)
    if output != "table":
        print_data(rows, output)
        return
    drains = ("drain",) if kind == "queue" else ()
    print_table(
        (kind, "due", "scheduled", "running", "failed", "pending", "oldest due", *drains, "workers", "paused"),
        [
            (
                row[kind], *(counted(row[name], row["capped"]) for name in ("due", "scheduled", "running", "failed")),
                pending(row), "" if row["oldest_due_seconds"] is None else short_duration(row["oldest_due_seconds"]),
                *(row[name]["text"] for name in drains), row["workers"], described(row["paused"]),
            )
            for row in rows
        ],
    )  # fmt: skip
    for pause in app.store.pauses.all():
        if pause.kind == "filter" and pause.jobs:
            talk(f"not counted: {held(pause)} held by the pause of {pause.name} (holdfast pauses)")


def known_names(kind: str, app: Holdfast) -> list[str]:
    """The queues, or tasks, that jobs, workers, pauses or the application know of."""
    return [row[kind] for row in summary(kind, app)]


def summary(kind: str, app: Holdfast) -> list[Row]:
    """A row for each queue, or task, that jobs, workers, pauses or the application know of."""
    store = app.store
    depths, workers = store.reads.depths(), store.workers.all()
    pauses = {pause.name: pause for pause in store.pauses.all() if pause.kind == kind}
    names = {getattr(depth, kind) for depth in depths} | pauses.keys()
    now = store.reads.now()
    if kind == "task":
        names |= app.tasks.keys()
    for worker in workers:
        names.update((worker.queues if kind == "queue" else worker.tasks) or ())
    rows = []
    drains = drains_of(store, depths) if kind == "queue" else {}
    for name in sorted(names):
        served = [
            worker
            for worker in workers
            if worker.alive(now)
            and (worker.queues is None or name in worker.queues if kind == "queue" else name in worker.tasks)
        ]
        row = total((depth for depth in depths if getattr(depth, kind) == name), now)
        if kind == "queue":
            row["drain"] = drains.get(name, EMPTY).as_dict()
        rows.append({kind: name, **row, "workers": len(served), "paused": pause_data(pauses.get(name))})
    return rows


def total(depths: Iterable[Depth], now: datetime) -> Row:
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
        "oldest_due_seconds": oldest and max(0.0, round((now - oldest).total_seconds(), 3)),
    }


def pending(row: Row) -> str:
    """Items of work that checkpoints count as pending: of unfinished jobs, and how many of them of running ones."""
    running = f" ({row['pending_running']:,} running)" if row["pending_running"] else ""
    return f"{row['pending']:,}{running}" if row["pending"] else ""
