"""A worker hears of new work on the line by which it claims: whatever comes, and whenever, is heard once it looks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.model.job import Wants
from holdfast.model.outcome import Outcome, returned
from holdfast.model.peers import Place
from holdfast.settings import Settings
from holdfast.store.base import Ear, Exchanged, Store
from holdfast.store.postgres.connect import ready
from tests.contract.places import raw
from tests.factories import a_queued_job, new_job, wants
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


@pytest.fixture
def ear(store: Store) -> Iterator[Ear]:
    ear = store.wakeups.open_ear()
    assert ear is not None
    ear.tune(Place())
    yield ear
    ear.close()


def all_heard(ear: Ear, count: int) -> list[tuple[str, str, int | None]]:
    """So many, however they come."""
    heard: list[tuple[str, str, int | None]] = []

    def hear() -> bool:
        heard.extend(ear.hear())
        return len(heard) >= count

    wait_until(hear)
    return heard


def exchange(
    ear: Ear, finished: Sequence[Outcome], wanted: Wants | None, meanwhile: Callable[[], None] = lambda: None
) -> Exchanged:
    """One trip. `meanwhile` is called when the answer to its claim was read, and that to its outcomes was not."""
    with ear.trips() as trips:
        trips.depart(finished, wanted, ())
        claimed = trips.claimed()
        meanwhile()
        done = trips.recorded()
    return done if claimed is None else Exchanged(claimed, done.refused, done.lost)


def lane(queue: str) -> tuple[str, str, int | None]:
    return "lane", json.dumps([queue, "greet", 0]), 0


def test_what_came_is_heard_in_order_and_once(store: Store, ear: Ear) -> None:
    assert list(ear.hear()) == []
    for queue in ("a", "b", "c"):
        a_queued_job(store, queue=queue)
    assert ready(ear.fileno(), timeout=10)
    heard = all_heard(ear, 3)
    assert heard == [lane("a"), lane("b"), lane("c")]
    assert list(ear.hear()) == []


def test_what_came_before_a_trip_is_heard_after_it(store: Store, ear: Ear) -> None:
    """The trip reads it from the socket: from then on there is nothing to read, but something to hear."""
    a_queued_job(store, queue="mail")
    assert ready(ear.fileno(), timeout=10)
    exchange(ear, [], wants(limit=0))
    [held] = exchange(ear, [], wants()).claimed.jobs
    assert not ready(ear.fileno(), timeout=0)
    assert list(ear.hear()) == [lane("mail")]
    assert held.queue == "mail"


def test_what_comes_in_the_middle_of_a_trip_is_heard_after_it(store: Store, ear: Ear) -> None:
    """Between the answer to its claim and the answer to its outcomes."""
    a_queued_job(store, queue="first")
    [held] = exchange(ear, [], wants()).claimed.jobs
    assert all_heard(ear, 1) == [lane("first")]

    def enqueue_meanwhile() -> None:
        thread = threading.Thread(target=lambda: a_queued_job(store, queue="second"))
        thread.start()
        thread.join(10)
        assert ready(ear.fileno(), timeout=10)

    done = exchange(ear, [returned(held, None)], wants(), enqueue_meanwhile)
    assert not done.lost
    assert all_heard(ear, 1) == [lane("second")]
    assert store.reads.get(str(held.id)).state == "succeeded"


def test_an_ear_whose_connection_is_cut_says_so(store: Store, ear: Ear, settings: Settings) -> None:
    assert list(ear.hear()) == []
    with raw(settings) as sql:
        assert sql(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity where application_name = 'holdfast-listener'"
        ) == [(True,)]
    assert ready(ear.fileno(), timeout=10), "who waits for it is woken"
    with pytest.raises(StoreUnavailable):
        ear.hear()
    with pytest.raises(StoreError):
        exchange(ear, [], wants())
    with pytest.raises(StoreUnavailable):
        ear.hear()


def test_what_the_server_refuses_leaves_the_ear_as_it_was(store: Store, ear: Ear) -> None:
    a_queued_job(store)
    [held] = exchange(ear, [], wants()).claimed.jobs
    with pytest.raises(StoreError):
        exchange(ear, [returned(held, b"not json")], None)
    store.enqueue(new_job(queue="mail"))
    assert all_heard(ear, 2) == [lane("default"), lane("mail")]
    exchange(ear, [returned(held, None)], None)
    assert store.reads.get(str(held.id)).state == "succeeded"
