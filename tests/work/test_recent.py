"""A real worker while looking everywhere takes long: it finds what is new at once and what is old by its surveys, busy
or idle (docs/decisions/0013)."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast import Holdfast, State
from holdfast.settings import Settings
from holdfast.store.postgres import claim_floors
from holdfast.store.postgres.store import PostgresStore
from tests.contract.places import raw
from tests.running import await_state, working
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look counts as slow, and every survey finds very many entries; they come once in two seconds."""
    for name, value in {"SLOW": -1.0, "IN_A_ROW": 1, "MANY_ENTRIES": -1, "REST": 0.0, "LEAST_REST": 2.0}.items():
        monkeypatch.setattr(claim_floors, name, value)


def insert_an_old_job(settings: Settings) -> None:
    """As if committed an hour after it was enqueued, and nobody told."""
    with raw(settings) as sql:
        sql(
            "insert into {jobs} (queue, task, args, run_at, ready_at) values "
            "('default', 'note', '{{\"n\":101}}', now() - interval '1 hour', now() - interval '1 hour')"
        )


@pytest.mark.usefixtures("slow")
def test_a_drain_ends_only_when_nothing_is_due(
    hasty: Holdfast, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim_floors, "LEAST_REST", 1e9)

    @hasty.task(name="note")
    def note(n: int) -> None: ...

    with working(hasty):
        for n in range(3):
            note.enqueue(n).wait(timeout=20)
        store = hasty.store
        assert isinstance(store, PostgresStore)
        wait_until(lambda: any(memory.narrow for memory in store.exchanging.floors._by_queues.values()))
    insert_an_old_job(settings)
    assert hasty.worker().drain() == 1


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_nothing_is_forgotten(hasty: Holdfast, settings: Settings, busy: bool) -> None:
    ran: Counter[int] = Counter()

    @hasty.task(name="note")
    def note(n: int) -> None:
        ran[n] += 1

    with working(hasty):
        note.enqueue(0)
        wait_until(lambda: ran[0])
        queues = ("default", "other")
        bound = [note.using(queue=queue, priority=n % 3).bind(n) for queue in queues for n in range(1, 100)]
        jobs = hasty.enqueue_many(bound)
        wait_until(lambda: sum(ran.values()) == 199)
        later = note.using(queue="third", delay=0.5).enqueue(100)
        insert_an_old_job(settings)
        n = 1000
        while busy and not ran[101]:
            n += 1
            note.enqueue(n).wait(timeout=20)
        wait_until(lambda: ran[100] and ran[101], timeout=30)
        await_state(later, State.SUCCEEDED)
    assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
    assert max(ran.values()) == 2, "1 to 99 came twice, no other"
