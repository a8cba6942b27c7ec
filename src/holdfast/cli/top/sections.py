"""The tables of `top`: queues, workers, running jobs, failures, pauses; and how it writes their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.progress_bar import ProgressBar
from rich.text import Text

from holdfast.cli.base import counted
from holdfast.cli.pauses import described
from holdfast.cli.top.document import Document
from holdfast.cli.top.table import BAR, Cell, Column, Row, Section
from holdfast.harmless import harmless
from holdfast.model.durations import running_duration


def sections_of(document: Document, sort: str, *, bars: bool) -> list[Section]:
    queues = sorted(document["queues"], key=_QUEUE_ORDER[sort])
    running = sorted(document["running"], key=_JOB_ORDER[sort])
    progress = any(job["done"] is not None for job in running)
    jobs = [column for column in _JOBS if (progress or column.title not in _PROGRESS) and (bars or column.title)]
    return [
        Section("queues" if len(queues) != 1 else "queue", _QUEUES, queues),
        Section("workers" if len(document["workers"]) != 1 else "worker", _WORKERS, document["workers"]),
        Section("running", jobs, running, document["running_in_all"]),
        Section("failed lately", _FAILURES, document["failures"]),
        Section("paused", _PAUSES, document["pauses"]),
    ]


_QUEUE_ORDER: dict[str, Callable[[Row], Any]] = {
    "age": lambda row: (row["oldest_due_at"] or "~", -row["running"], row["queue"]),  # "~": after all dates
    "name": lambda row: row["queue"],
    "size": lambda row: (-row["due"], -row["running"], row["queue"]),
}
_JOB_ORDER: dict[str, Callable[[Row], Any]] = {
    "age": lambda job: (-job["elapsed_seconds"], int(job["id"])),
    "name": lambda job: (job["task"], int(job["id"])),
    "size": lambda job: (-(job["total"] or 0), -job["elapsed_seconds"], int(job["id"])),
}


def _text(name: str, style: str = "") -> Callable[[Row], Cell]:
    return lambda row: Text(one_line(row[name]), style=style)


def _task(row: Row) -> Cell:
    """With the row, if it is one of an adopted table."""
    return Text(one_line(row["task"] if row["source_id"] is None else f"{row['task']} row {row['source_id']}"))


def _number(name: str, style: str = "") -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        return Text(
            counted(row[name], row.get("capped", False)) if row[name] else "·", style=style if row[name] else "dim"
        )

    return cell


def _pair(name: str, of: str, style: str = "") -> Callable[[Row], Cell]:
    return lambda row: Text(f"{row[name]:,}/{row[of]:,}", style=style)


def _span(name: str, late: float | None = None) -> Callable[[Row], Cell]:
    def cell(row: Row) -> Cell:
        seconds = row[name]
        style = "yellow" if late is not None and seconds is not None and seconds > late else ""
        return Text("" if seconds is None else running_duration(seconds), style=style)

    return cell


def _rate(name: str) -> Callable[[Row], Cell]:
    return lambda row: Text("" if row[name] is None else rate(row[name]), style="" if row[name] else "dim")


def _serving(row: Row) -> Cell:
    unserved = row["due"] and not row["workers"]
    return Text(f"{row['workers']:,}", style="bold red" if unserved else "")


def _busy(row: Row) -> Cell:
    return Text(f"{row['busy']:,}/{row['slots']:,}", style="bold" if row["busy"] >= row["slots"] else "")


def _seen(row: Row) -> Cell:
    since = f"{running_duration(row['seen_seconds'])} ago"
    return Text(since) if row["alive"] else Text(f"silent, {since}", style="bold red")


def _bar(job: Row) -> Cell:
    if job["done"] is None or not job["total"]:
        return Text()
    done = min(job["done"], job["total"])
    return ProgressBar(total=job["total"], completed=done, width=BAR, complete_style="green", finished_style="green")


def _done(job: Row) -> Cell:
    if job["done"] is None:
        return Text()
    if not job["total"]:
        return Text(f"{job['done']:,}")
    return Text(f"{job['done']:,}/{job['total']:,} {100 * min(job['done'], job['total']) // job['total']:>3}%")


def _note(job: Row) -> Cell:
    asked = "cancel asked" if job["cancel_requested"] else "pause asked" if job["pause_requested"] else ""
    note = one_line(job["note"])
    return Text().append(asked, style="yellow").append((", " if asked and note else "") + note)


_QUEUES = (
    Column("queue", _text("queue"), elastic=True),
    Column("due", _number("due"), right=True),
    Column("oldest", _span("oldest_due_seconds", late=60.0), right=True, drop=1),
    Column("later", _number("scheduled"), right=True, drop=6),
    Column("running", _number("running"), right=True, drop=2),
    Column("failed", _number("failed", "red"), right=True, drop=3),
    Column("~in/s", _rate("came_per_second"), right=True, drop=7),
    Column("~out/s", _rate("ended_per_second"), right=True, drop=5),
    Column("workers", _serving, right=True, drop=8),
    Column("paused", lambda row: Text(one_line(described(row["paused"])), style="yellow"), elastic=True, drop=4),
)
_WORKERS = (
    Column("worker", _text("id"), elastic=True),
    Column("host", _text("host"), elastic=True, drop=3),
    Column("pid", lambda row: Text(str(row["pid"])), right=True, drop=2),
    Column("busy", _busy, right=True),
    Column("heartbeat", _seen, elastic=True),
    Column("queues", lambda row: Text(one_line(", ".join(row["queues"] or ["all"]))), elastic=True, drop=1),
)
_PROGRESS = ("done", "per s", "left", "")
_JOBS = (
    Column("job", _text("id")),
    Column("task", _task, elastic=True),
    Column("queue", _text("queue"), elastic=True, drop=7),
    Column("try", _pair("attempt", "max_attempts"), right=True, drop=5),
    Column("for", _span("elapsed_seconds"), right=True, drop=1),
    Column("", _bar, drop=6),
    Column("done", _done, right=True),
    Column("per s", _rate("rate_per_second"), right=True, drop=4),
    Column("left", _span("left_seconds"), right=True, drop=2),
    Column("note", _note, elastic=True, drop=3),
    Column("worker", _text("worker", "dim"), elastic=True, drop=8),
)
_FAILURES = (
    Column("job", _text("id")),
    Column("task", _task, elastic=True),
    Column("queue", _text("queue"), elastic=True, drop=2),
    Column("ago", _span("ago_seconds"), right=True),
    Column("error", _text("error_code", "red"), elastic=True),
    Column("", _text("error_message"), elastic=True, drop=1),
)
_PAUSES = (
    Column("kind", _text("kind")),
    Column("name", _text("name"), elastic=True),
    Column("by, why, until", lambda row: Text(one_line(described(row))), elastic=True),
)


# -- how values are written -------------------------------------------------------------------------------------------


def one_line(text: str | None) -> str:
    """A text from users or errors, made fit for one line of a screen."""
    return harmless(" ".join((text or "").split()))


def rate(per_second: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if per_second >= size:
            return f"{per_second / size:.3g}{unit}"
    if per_second >= 10:
        return f"{per_second:.0f}"
    return "·" if per_second <= 0 else f"{per_second:.2g}" if per_second >= 0.01 else "<0.01"
