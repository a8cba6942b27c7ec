"""Builders that tests share: a clock to move, jobs, claims."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from holdfast.model.job import Claimed, ClaimedJob, NewJob, Wants
from holdfast.model.outcome import Error, Outcome
from holdfast.model.peers import Place
from holdfast.settings import Settings
from holdfast.store.base import Exchanged, Ref, Store
from holdfast.worker.cron import Crons
from holdfast.worker.intake import FilterPauses
from holdfast.worker.neighbours import Neighbours
from holdfast.worker.rescuer import Rescuer, Trust
from holdfast.worker.watchdog import Presence, Watchdog

MINUTE = 60.0
HOUR = 3600.0
LEASE = 20.0
BOOM = Error("Boom", "it broke", "Traceback: it broke")


def a_watchdog(
    store: Store, settings: Settings, due_in: Callable[[float], None] = lambda seconds: None, worker: str = "w2"
) -> Watchdog:
    """The watchdog of a worker that has no neighbours and no crons. `due_in` stands for its desk."""

    class Desk:
        def peers_changed(self, place: Place) -> None: ...

        def due_in(self, seconds: float) -> None:
            due_in(seconds)

    presence = Presence(
        store, worker, name=worker, host="h", queues=None, tasks=("greet",), lease=settings.lease, slots=lambda: 1,
        is_open=lambda: False,
    )  # fmt: skip
    rescuer = Rescuer(worker, store, quarantine_after=settings.quarantine_after, job_due_in=due_in)
    return Watchdog(
        store, settings, presence, rescuer, Neighbours(None, worker), Crons(store, (), due_in), Trust(settings.lease),
        cast(Any, Desk()), misfit=lambda error: None, stop_requested=lambda request: None, adopted=lambda adopted: None,
    )  # fmt: skip


class Clock:
    """The database's clock, to be moved by tests."""

    def __init__(self) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def new_job(task: str = "greet", args: bytes = b"{}", **options: Any) -> NewJob:
    return NewJob(task=task, args=args, **options)


def wants(
    limit: int = 1, *, tasks: Sequence[str] = ("greet",), queues: Sequence[str] | None = None, worker: str = "w1",
    ahead: int = 0, held: int = 0, lease: float = LEASE, fence: str | None = None,
    told: Sequence[tuple[str, str, int]] = (), thorough: bool = False,
) -> Wants:  # fmt: skip
    return Wants(
        fence=fence or str(uuid.uuid4()), worker=worker, tasks=tuple(tasks), limit=limit, lease=lease,
        ahead=ahead, queues=None if queues is None else tuple(queues), held=held, told=tuple(told),
        thorough=thorough,
    )  # fmt: skip


def trip(
    store: Store, finished: Sequence[Outcome], wanted: Wants, hand_out: Callable[[Claimed], None],
    drained: Sequence[str] = (),
) -> Exchanged:  # fmt: skip
    """One trip, as a desk makes it: what was claimed is handed out before the outcomes are recorded."""
    with store.trips() as trips:
        trips.depart(finished, wanted, drained)
        claimed = trips.claimed()
        if claimed is not None:
            hand_out(claimed)
        done = trips.recorded()
        if claimed is None and done.refused is None:
            hand_out(done.claimed)
        return done


def claim(store: Store, limit: int = 1, **options: Any) -> Claimed:
    return store.attempts.claim(wants(limit, **options))


def claim_as_a_desk(
    store: Store, wanted: Wants, pauses: FilterPauses | None = None
) -> tuple[Claimed, list[ClaimedJob]]:
    """A claim, and those of its jobs that may start: what a pause means is given back as held."""
    found = store.attempts.claim(wanted)
    free, held = (pauses or FilterPauses(store)).split(found.jobs, found.filter_version)
    done = store.exchange(held, None)
    assert not done.requeued
    assert not done.lost
    return found, free


def a_queued_job(store: Store, **options: Any) -> str:
    return store.enqueue(new_job(**options)).id


def a_running_job(store: Store, *, lease: float = LEASE, worker: str = "w1", **options: Any) -> ClaimedJob:
    """Enqueue a job and claim it, alone. Nothing else may be due in the store."""
    a_queued_job(store, **options)
    [held] = claim(store, lease=lease, worker=worker, tasks=(options.get("task", "greet"),)).jobs
    return held


def ref(held: ClaimedJob) -> Ref:
    return Ref(held.id, held.fence)
