from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version
from typing import Any

import pytest

from holdfast.model.job import StopRequest
from holdfast.store.base import Store
from tests.factories import LEASE, MINUTE, Clock, a_running_job, ref


def register(store: Store, id: str = "w1", **options: Any) -> None:
    given = {"name": "box-1", "host": "box", "pid": 71, "queues": None, "tasks": ["greet"], "slots": 4, **options}
    store.workers.register(id=id, **given)


def test_a_worker_registers_with_what_people_want_to_know(store: Store, clock: Clock) -> None:
    register(store, queues=["a", "b c"], tasks=["greet", "it's"])
    [worker] = store.workers.all()
    assert (worker.id, worker.name, worker.host, worker.pid, worker.slots) == ("w1", "box-1", "box", 71, 4)
    assert (worker.queues, worker.tasks) == (("a", "b c"), ("greet", "it's"))
    assert worker.started_at == worker.seen_at == clock.now


def test_a_worker_is_listed_with_its_leases_and_what_it_said_last(store: Store, clock: Clock) -> None:
    register(store)
    register(store, "w2")
    first = a_running_job(store, lease=LEASE)
    clock.advance(1)
    a_running_job(store, lease=LEASE)
    store.look("w1", ["greet"], None, memory=5_000_000)
    busy, idle = store.workers.all()
    assert (busy.leases, busy.lease_ends_at) == (2, clock.now + timedelta(seconds=LEASE - 1))
    assert (idle.leases, idle.lease_ends_at) == (0, None)
    assert (busy.memory, idle.memory) == (5_000_000, None)
    assert busy.version == idle.version == version("holdfast")
    store.attempts.succeed(ref(first))
    assert store.workers.all()[0].lease_ends_at == clock.now + timedelta(seconds=LEASE)


@pytest.mark.parametrize("queues", [None, []])
def test_any_queue_is_not_the_same_as_no_queue(store: Store, queues: list[str] | None) -> None:
    register(store, queues=queues)
    assert store.workers.all()[0].queues == (None if queues is None else ())


def test_a_look_marks_the_worker_present(store: Store, clock: Clock) -> None:
    register(store, "w1")
    register(store, "w2")
    clock.advance(MINUTE)
    store.look("w2", ["greet"], None)
    seen = {worker.id: (worker.seen_at - worker.started_at).total_seconds() for worker in store.workers.all()}
    assert seen == {"w1": 0, "w2": MINUTE}


def test_a_look_tells_a_worker_that_its_row_is_gone(store: Store) -> None:
    register(store, "w1")
    assert store.look("w1", ["greet"], None).known
    store.workers.unregister("w1")
    assert not store.look("w1", ["greet"], None).known


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_look_tells_a_worker_its_place_among_those_that_serve_the_same(store: Store, clock: Clock) -> None:
    for id in ("a", "b", "c", "d"):
        register(store, id)
    register(store, "b2", queues=["mail"])
    register(store, "b3", tasks=["greet", "other"])

    def place(id: str, *, open: bool = True) -> tuple[int, int]:
        place = store.look(id, ["greet"], None, open=open).place
        return place.rank, place.count

    assert place("c") == (0, 1), "none of the others is open to wake-ups yet"
    assert place("a") == (0, 2)
    assert place("d") == (2, 3)
    assert place("b") == (1, 4)
    assert [place("b2"), place("b3")] == [(0, 1), (0, 1)], "they serve something else"
    assert place("a", open=False) == (0, 4)
    assert place("d") == (2, 3), "one without a free slot, or that hears nothing, does not count"
    store.workers.unregister("b")
    assert place("d") == (1, 2)
    clock.advance(2 * LEASE)
    assert place("d") == (0, 1), "nor do those that were not heard of for long"


def test_a_worker_that_leaves_is_gone(store: Store) -> None:
    register(store, "w1")
    register(store, "w2")
    store.workers.unregister("w1")
    store.workers.unregister("never came")
    assert [worker.id for worker in store.workers.all()] == ["w2"]


def test_workers_long_silent_are_forgotten_unless_they_hold_a_lease(store: Store, clock: Clock) -> None:
    for id in ("silent", "holder", "fresh"):
        register(store, id)
    held = a_running_job(store, worker="holder")
    clock.advance(10 * MINUTE)
    store.look("fresh", ["greet"], None)
    store.workers.forget(5 * MINUTE)
    assert {worker.id for worker in store.workers.all()} == {"holder", "fresh"}
    store.attempts.succeed(ref(held))
    store.workers.forget(5 * MINUTE)
    assert {worker.id for worker in store.workers.all()} == {"fresh"}


def test_leases_do_not_depend_on_the_workers_row(store: Store, clock: Clock) -> None:
    register(store)
    held = a_running_job(store)
    store.workers.unregister("w1")
    assert store.attempts.renew([held.fence], [ref(held)], LEASE) == ({held.fence}, [])
    clock.advance(LEASE + 1)
    [rescued] = store.rescues.rescue()
    assert rescued.worker == "w1"


def test_a_worker_that_is_asked_to_stop_learns_it_by_its_look(store: Store, clock: Clock) -> None:
    register(store, "w1")
    register(store, "w2")
    assert store.workers.request_stop("w1", by="ops", reason="a new host")
    asked_at = clock.now
    clock.advance(1)
    assert store.workers.request_stop("w1", by="dev"), "asked twice, the first time counts"
    assert not store.workers.request_stop("w3")
    assert [worker.stop_requested_at for worker in store.workers.all()] == [asked_at, None]
    request = StopRequest("ops", "a new host")
    assert [store.workers.stop_requested(id) for id in ("w1", "w2", "w3")] == [request, None, None]
    assert (store.workers.all()[0].stop_requested_by, store.workers.all()[0].stop_reason) == ("ops", "a new host")
    assert [store.look(id, ["greet"], None).stop_requested for id in ("w1", "w2")] == [True, False]
