"""Jobs taken in one at a time, their wake-ups behind them: answers stay apart, and a broken connection is noticed
before it is used."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreError, ValueRefused
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import raw
from tests.factories import a_queued_job, new_job

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


def test_after_a_refused_job_the_next_gets_its_own_answer(store: Store) -> None:
    first = a_queued_job(store)
    for _ in range(3):
        with pytest.raises(ValueRefused):
            store.enqueue(new_job(args=b"not json"))
        with pytest.raises(ValueRefused):
            store.enqueue(new_job(priority=101))
        with pytest.raises(StoreError, match="NUL"):
            store.enqueue(new_job(queue="a\0b"))
    made = [a_queued_job(store, queue=f"q{n}") for n in range(5)]
    assert [store.get(id).queue for id in [first, *made]] == ["default", *(f"q{n}" for n in range(5))]
    assert len(store.jobs()) == 6


def test_values_arrive_as_they_were_given(store: Store) -> None:
    args = '{"text": "ä\\\\ \\" € 🦀"}'.encode()
    id = a_queued_job(
        store, args=args, queue="ü", priority=-3, tags=("a b", 'c"d', "e\\f", "NULL", ""), correlation_id="c,{}",
        delay=5.5, expires_in=60.0,
    )  # fmt: skip
    job = store.get(id)
    assert (job.args, job.queue, job.priority) == (args, "ü", -3)
    assert (job.tags, job.correlation_id) == (("a b", 'c"d', "e\\f", "NULL", ""), "c,{}")
    assert (job.run_at - job.created_at).total_seconds() == pytest.approx(5.5, abs=0.01)
    assert job.expires_at is not None
    assert (job.expires_at - job.created_at).total_seconds() == pytest.approx(60, abs=0.01)


def test_a_connection_that_ended_while_nobody_used_it_is_not_used(store: Store, settings: Settings) -> None:
    a_queued_job(store)
    with raw(settings) as sql:
        assert sql(
            "select bool_and(pg_terminate_backend(pid, 10000)) from pg_stat_activity where pid <> pg_backend_pid() "
            "and application_name = 'holdfast' and strpos(query, 'pg_notify') > 0"
        ) == [(True,)]
    assert store.get(a_queued_job(store)).queue == "default"
