"""All that a screen shows, read by a fixed number of statements, whatever the number of queues and jobs. Counts and
lists are bounded, and of the finished jobs only the newest are read, for the rates."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.alerts import Alert
from holdfast.model.job import Depth, Pause, WorkerRecord
from holdfast.model.record import Record
from holdfast.store.metrics import standing
from holdfast.store.reads import LAST, depths

if TYPE_CHECKING:
    from holdfast.store.base import JobId, Row, Store


# A snapshot of the whole system, for screens that show it.


class Running(Record, frozen=True):
    """A job that runs, and how far it is."""

    id: str
    queue: str
    task: str
    fence: str
    worker: str | None
    attempt: int
    max_attempts: int
    started_at: datetime
    done: int | None
    total: int | None
    note: str | None
    pause_requested: bool
    cancel_requested: bool
    source: str | None = None  # the adopted table whose row it works
    source_id: str | None = None


class Failure(Record, frozen=True):
    """A job that failed, and why."""

    id: str
    queue: str
    task: str
    attempt: int
    failed_at: datetime
    error_code: str | None
    error_message: str | None
    source: str | None = None  # the adopted table whose row it worked
    source_id: str | None = None


class Rates(msgspec.Struct, frozen=True):
    """Jobs a second that were enqueued to a queue, and that ended there. Estimates."""

    came: float
    ended: float


class Overview(msgspec.Struct, frozen=True):
    at: datetime  # by the database's clock
    depths: list[Depth]
    rates: dict[str, Rates]  # by queue
    workers: list[WorkerRecord]
    running: list[Running]  # the longest running first; a limited number
    failures: list[Failure]  # the newest first
    pauses: list[Pause]
    alerts: list[Alert] = []  # that stand


LISTED = 200  # running jobs at most
FAILURES = 20
CHOSEN = 25  # times as many are read if only some queues are wanted
SPAN = 60.0  # seconds of the past that rates are computed from
SAMPLE = 1000  # jobs that are read for the rates


def overview(store: Store, queues: Sequence[str] | None = None) -> Overview:
    """The current state of all queues, or of these."""
    now = store.reads.now()
    ids: list[JobId] = [row["id"] for row in store.db.read("running_ids")]
    more = 1 if queues is None else CHOSEN
    running = [_running(store, row) for row in store.db.read("running", ids=ids, most=LISTED * more)] if ids else []
    failures = [_failure(store, row) for row in store.db.read("failed_lately", most=FAILURES * more)]
    wanted = None if queues is None else frozenset(queues)

    def shown(queue: str) -> bool:
        return wanted is None or queue in wanted

    return Overview(
        at=now,
        depths=[depth for depth in depths(store.db, ids) if shown(depth.queue)],
        rates={queue: rates for queue, rates in rates_of(store, now, ids).items() if shown(queue)},
        workers=[w for w in store.workers.all() if wanted is None or w.queues is None or wanted.intersection(w.queues)],
        running=[job for job in running if shown(job.queue)][:LISTED],
        failures=[failure for failure in failures if shown(failure.queue)][:FAILURES],
        pauses=[pause for pause in store.pauses.all() if pause.kind != "queue" or shown(pause.name)],
        alerts=standing(store),
    )


def rates_of(store: Store, now: datetime, running_ids: Sequence[JobId]) -> dict[str, Rates]:
    """Jobs per second in the last minute, by queue. There are no counters, so this is an estimate from two samples: the
    newest jobs, for queues where jobs end soon after they were enqueued; and the jobs just before the newest running
    one, for queues that work off a backlog. Jobs that are much older and end now are not seen."""
    came: dict[str, float] = {}
    ended: dict[str, float] = {}
    newest = store.db.read("lately", before=LAST, most=SAMPLE, minus_span=-SPAN)
    windows = [newest]
    front = max((id for id in running_ids if isinstance(id, int)), default=None)
    if newest and front is not None and front < min(row["lowest"] for row in newest):
        windows.append(store.db.read("lately", before=front, most=SAMPLE, minus_span=-SPAN))
    for window in windows:
        for what, rates in (("came", came), ("ended", ended)):
            if what == "came" and window is not newest:
                continue
            seconds = _covered(store, window, what, now)
            for row in window:
                rates[row["queue"]] = rates.get(row["queue"], 0.0) + row[what] / seconds
    return {queue: Rates(came.get(queue, 0.0), ended.get(queue, 0.0)) for queue in sorted({*came, *ended})}


def _covered(store: Store, window: list[Row], what: str, now: datetime) -> float:
    """How many seconds a sample covers: if it is full of the last minute's jobs, only back to the first of them."""
    counted = sum(row[what] for row in window)
    since = [store.db.codec.moment(row[f"{what}_since"]) for row in window if row[f"{what}_since"] is not None]
    if not since or counted * 2 < SAMPLE:
        return SPAN
    return max(0.01, min(SPAN, (now - min(at for at in since if at is not None)).total_seconds()))


def _running(store: Store, row: Row) -> Running:
    started_at = store.db.codec.moment(row["started_at"])
    assert started_at is not None
    flags = {name: bool(row[name]) for name in ("pause_requested", "cancel_requested")}
    return Running(**{**row, **flags, "id": str(row["id"]), "fence": str(row["fence"]), "started_at": started_at})


def _failure(store: Store, row: Row) -> Failure:
    failed_at = store.db.codec.moment(row["failed_at"])
    assert failed_at is not None
    return Failure(**{**row, "id": str(row["id"]), "failed_at": failed_at})
