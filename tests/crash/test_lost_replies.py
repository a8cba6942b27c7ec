"""A commit whose reply is lost is a third outcome: neither done nor not done, until somebody looks."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Holdfast, events
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.job import Enqueued, NewJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.crash.fleet import Fleet, a_fleet, assert_each_success_is_of_its_newest_claim, wait_until
from tests.crash.proxy import Proxy, a_proxy
from tests.factories import claim
from tests.servers import new_schema, own_postgres


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    with own_postgres() as server, a_proxy(server.url) as proxy:
        yield proxy


@pytest.fixture
def luck() -> random.Random:
    return random.Random(43)


@pytest.fixture(autouse=True)
def _whole(proxy: Proxy) -> Iterator[None]:
    yield
    proxy.loses = lambda sent: False
    proxy.deaf = False


@pytest.fixture
def fleet(proxy: Proxy, tmp_path: Path) -> Iterator[Fleet]:
    """Its workers go through the proxy; what the test itself asks goes straight to the server."""
    with a_fleet(Settings(url=proxy.past, schema=new_schema()), tmp_path) as fleet:
        fleet.door = proxy.url
        yield fleet


@pytest.fixture
def producer(proxy: Proxy, fleet: Fleet) -> Iterator[Store]:
    """Enqueues through the proxy."""
    store = open_store(replace(fleet.settings, url=proxy.url))
    yield store
    store.close()


def test_outcomes_and_claims_whose_reply_was_lost_happen_once(proxy: Proxy, fleet: Fleet, luck: random.Random) -> None:
    fleet.sql("create table if not exists payments (job bigint, fence text)")
    fleet.sql("truncate payments")
    # Small batches: many commits. A long lease: what is not looked up would be found stuck.
    workers = fleet.start_many(3, concurrency=3, threads=3, lease=120.0)
    already = proxy.lost
    # A worker's trips are known by the names of their statements: there is no COMMIT in them.
    proxy.loses = lambda sent: (b"COMMIT" in sent or b"holdfast_" in sent) and luck.random() < 0.15
    paid: list[str] = []
    jobs = 0

    def enough() -> bool:
        nonlocal jobs
        if fleet.states()[State.QUEUED] < 50:
            for task, count in (("aquick", 50), ("quick", 50)):
                jobs += len(fleet.enqueue(task, count))
            fleet.enqueue("doze", 20, seconds=0.05)
            paid.extend(fleet.enqueue("pay", 10, number=1, max_attempts=20))
            jobs += 30
        return proxy.lost > already + 100

    wait_until(enough, what="many replies were lost")
    proxy.loses = lambda sent: False
    fleet.await_states(succeeded=jobs)
    print(f"\n{proxy.lost - already} replies lost, {jobs} jobs")
    assert_each_success_is_of_its_newest_claim_or_paid(fleet, paid)
    for job in fleet.jobs():
        # Only a payment whose own commit failed may have been tried again, and its history says so.
        assert job.attempt == 1 + len(fleet.store.reads.attempts(job.id)), job
        assert job.id in paid or job.attempt == 1, fleet.store.reads.attempts(job.id)
        assert job.crashes == 0
    starts = Counter(trace.job for trace in fleet.traces("start") if trace.job not in paid)
    assert set(starts.values()) == {1}
    payments = Counter(str(id) for (id,) in fleet.sql("select job from payments"))
    assert payments == Counter(paid), "each was paid once"
    fleet.stop(*workers)
    assert fleet.sql("select * from {leases} where held > 0") == []


def assert_each_success_is_of_its_newest_claim_or_paid(fleet: Fleet, paid: list[str]) -> None:
    assert_each_success_is_of_its_newest_claim(fleet, [job for job in fleet.jobs() if job.id not in paid])
    fences = {str(id): fence for id, fence in fleet.sql("select job, fence from payments")}
    assert {job.id: job.fence for job in fleet.jobs(paid)} == fences, "the payment is of the claim that succeeded"


def test_any_reply_may_be_lost(proxy: Proxy, fleet: Fleet, luck: random.Random) -> None:
    """Not only commits: looks, renewals, registrations, half a set-up of a connection."""
    workers = fleet.start_many(2, concurrency=4, threads=2, lease=2.0, heartbeat=0.5)
    already = proxy.lost
    proxy.loses = lambda sent: luck.random() < 0.05
    jobs = 0

    def enough() -> bool:
        nonlocal jobs
        if fleet.states()[State.QUEUED] < 30:
            jobs += len(fleet.enqueue("doze", 50, seconds=0.1)) + len(fleet.enqueue("nap", 10, seconds=0.2))
        return proxy.lost > already + 30

    wait_until(enough, what="replies are lost")
    proxy.loses = lambda sent: False
    fleet.await_states(succeeded=jobs)
    assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs())
    assert {job.attempt for job in fleet.jobs()} == {1}
    fleet.stop(*workers)


def test_an_enqueue_under_a_key_is_replayed_to_the_same_job(
    proxy: Proxy, fleet: Fleet, producer: Store, luck: random.Random
) -> None:
    proxy.loses = lambda sent: b"COMMIT" in sent and luck.random() < 0.3
    for number in range(150):
        new = NewJob(task="later", args=b"{}", key=f"order-{number}")
        first, _ = until_known(lambda new=new: producer.enqueue(new))  # type: ignore[misc]
        assert until_known(lambda new=new: producer.enqueue(new))[0].id == first.id  # type: ignore[misc]
    proxy.loses = lambda sent: False
    assert proxy.lost > 10, "replies were lost after the job was kept"
    assert len(fleet.jobs()) == 150, "one job for each key"


def test_a_bulk_enqueue_under_keys_is_replayed_as_a_whole(proxy: Proxy, fleet: Fleet, producer: Store) -> None:
    new = [NewJob(task="later", args=b"{}", key=f"order-{number}") for number in range(500)]
    once = [True]
    proxy.loses = lambda sent: b"COMMIT" in sent and bool(once) and once.pop()
    with pytest.raises(OutcomeUnknown):
        list(producer.enqueue_many(new))
    again = [done for chunk in producer.enqueue_many(new) for done in chunk]
    assert len({done.id for done in again}) == len(fleet.jobs()) == 500


def until_known(enqueue: Callable[[], Enqueued]) -> tuple[Enqueued, bool]:
    """As a careful producer does: an enqueue whose outcome is unknown is repeated under its key."""
    again = False
    while True:
        try:
            return enqueue(), again
        except StoreUnavailable:
            again = True


def test_notifications_that_a_pooler_swallows_leave_polling(
    proxy: Proxy, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that hears nothing says so, again and again; polling goes on, and nobody is kept from being rescued
    for it: that connection never worked, so it tells nothing of others."""
    monkeypatch.setattr("holdfast.store.postgres.wakeups.SELF_CHECK", 0.2)
    monkeypatch.setattr("holdfast.worker.wakeups.POOLED_DELAY", 0.1)
    proxy.deaf = True
    heard: list[str] = []
    end = events.subscribe(lambda name, fields: heard.append(name))
    app = Holdfast(proxy.url, schema=fleet.settings.schema, lease=2.0, heartbeat=0.5, poll_base=0.1, poll_max=0.2)

    @app.task
    async def greet() -> None: ...

    [dead] = fleet.enqueue("greet")
    claim(fleet.store, lease=0.1, worker="dead on another host")
    worker = app.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        fleet.await_states(succeeded=1, timeout=20)
        assert [attempt.worker for attempt in fleet.store.reads.attempts(dead)] == ["dead on another host"]
        assert heard.count("deaf") > 3
        fleet.enqueue("greet", 10)
        fleet.await_states(succeeded=11, timeout=20)
        assert "listening" not in heard
    finally:
        worker.stop()
        thread.join(30)
        end()
        app.close()
