"""Checks of the workers: queues that none serves, tasks that none has, what is paused, dead workers and their leases,
clocks that disagree, and workers of one host that can't notice each other's death."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from holdfast.doctor.finding import Finding, Thresholds, ok, warning
from holdfast.model.durations import dated, short_duration
from holdfast.model.job import Backlog, Pause
from holdfast.model.text import named, plural, to_serve
from holdfast.model.why import Unserved, unserved
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.metrics import standing
from holdfast.worker.neighbours import Alone, meeting_place

NAMED = 10  # findings of each kind that are listed one by one


def host_clock() -> datetime:
    return datetime.now(UTC)


def clock(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    before = host_clock()
    database = store.reads.now()
    after = host_clock()
    middle = before + (after - before) / 2
    skew = (database - middle).total_seconds()
    # The answer took that long to arrive, so the skew is only known to within half of it.
    unsure = (after - before).total_seconds() / 2
    if abs(skew) - unsure > thresholds.skew:
        way = "behind" if skew > 0 else "ahead of"
        yield warning("HF4205", f"this host's clock is {short_duration(abs(skew))} {way} the database's")
    else:
        yield ok("HF4205", f"this host's clock and the database's agree within {short_duration(abs(skew) + unsure)}")


def served(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    waiting = store.reads.waiting()
    now = store.reads.now()
    found = list(unserved(waiting, store.workers.all(), now))
    yield from _some([one for one in found if not one.served], now, "HF4201", "every queue with due jobs is served")
    yield from _some([one for one in found if one.served], now, "HF4202", "every task with due jobs is known")


def paused(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    now = store.reads.now()
    due = [kind for kind in store.reads.waiting() if kind.due_at <= now]
    found = list(_pauses_with_jobs(store.pauses.all(count=False), due, now))
    if not found:
        yield ok("HF4207", "no due job waits for a pause")
    for pause, waiting in found[:NAMED]:
        jobs = sum(kind.due for kind in waiting)
        more = "+" * any(kind.more for kind in waiting)
        told = f"{pause.kind} {pause.name} is paused" + f" by {pause.by}" * bool(pause.by)
        told += f" ({pause.reason})" * bool(pause.reason)
        told += f" since {dated(pause.created_at, now)}" + (f" until {dated(pause.until, now)}" if pause.until else "")
        since = short_duration((now - min(kind.due_at for kind in waiting)).total_seconds())
        told += f"; {jobs}{more} due {plural('job', jobs)} {'waits' if jobs == 1 else 'wait'}, the oldest for {since}"
        yield warning("HF4207", told, f"If the reason is gone: holdfast {pause.kind}s resume {named(pause.name)}")
    if len(found) > NAMED:
        yield warning("HF4207", f"and {len(found) - NAMED} more of the kind")


def _pauses_with_jobs(
    pauses: Sequence[Pause], due: Sequence[Backlog], now: datetime
) -> Iterator[tuple[Pause, list[Backlog]]]:
    """The pauses of queues and tasks that jobs wait for which are due, and those jobs."""
    for pause in pauses:
        if pause.kind in ("queue", "task") and (pause.until is None or pause.until > now):
            waiting = [kind for kind in due if pause.name == (kind.queue if pause.kind == "queue" else kind.task)]
            if waiting:
                yield pause, waiting


def _some(found: list[Unserved], now: datetime, code: str, fine: str) -> Iterator[Finding]:
    if not found:
        yield ok(code, fine)
    for one in found[:NAMED]:
        kind = one.waiting
        waits = "due job of task {} waits" if kind.due == 1 else "due jobs of task {} wait"
        what = f"{kind.due}{'+' * kind.more} {waits.format(kind.task)} in queue {kind.queue}, the oldest since "
        what += short_duration((now - kind.due_at).total_seconds())
        if one.served:
            near = f" (nearest: {', '.join(one.nearest)})" if one.nearest else ""
            yield warning(code, f"{what}; no worker that is up has the task{near}")
        else:
            fix = f"Start a worker for it: {to_serve(kind.queue)}"
            yield warning(code, f"{what}; no worker that is up serves the queue", fix)
    if len(found) > NAMED:
        yield warning(code, f"and {len(found) - NAMED} more of the kind")


def silent(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    now = store.reads.now()
    known = store.workers.all()
    dead = [worker for worker in known if not worker.alive(now)]
    if not dead:
        yield ok("HF4203", "1 worker is up" if len(known) == 1 else f"{len(known)} workers are up")
    for worker in dead[:NAMED]:
        seen = short_duration((now - worker.seen_at).total_seconds())
        yield warning("HF4203", f"worker {worker.id} (pid {worker.pid} on {worker.host}) was last seen {seen} ago")
    if len(dead) > NAMED:
        yield warning("HF4203", f"and {len(dead) - NAMED} more of the kind")


def leases(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    now = store.reads.now()
    lapsed = store.db.read("lapsed_leases", minus_grace=-settings.lease)
    if not lapsed:
        yield ok("HF4204", "no lease waits to be rescued")
    for row in lapsed[:NAMED]:
        ended = store.db.codec.moment(row["expired_at"]) or now
        since = short_duration((now - ended).total_seconds())
        yield warning(
            "HF4204",
            f"worker {row['worker']} let {row['leases']} {plural('lease', row['leases'])} run out {since} ago; "
            f"nobody took {'it' if row['leases'] == 1 else 'them'} back",
        )


def neighbours(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    try:
        place = meeting_place(store, settings.host or socket.gethostname(), create=False)
    except Alone as why:
        yield warning("HF4206", str(why))
        return
    if place is not None:
        os.close(place)
    yield ok("HF4206", "workers of this host see each other's death at once")


def alerts(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    found = standing(store)
    if not found:
        yield ok("HF4208", "no alert stands")
    for alert in found[:NAMED]:
        since = dated(alert.started_at, store.reads.now())
        yield warning("HF4208", f"{alert.text} (since {since})", f"{alert.advice[:1].upper()}{alert.advice[1:]}.")
    if len(found) > NAMED:
        yield warning("HF4208", f"and {len(found) - NAMED} more of the kind")


Check = Callable[[Store, Settings, Thresholds], Iterator[Finding]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("HF4201", served), ("HF4203", silent), ("HF4204", leases), ("HF4206", neighbours), ("HF4207", paused),
    ("HF4208", alerts),
)  # fmt: skip
