"""Jobs taken in one at a time, their wake-ups behind them: answers stay apart, and a broken connection is noticed
before it is used."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from enum import Enum
from typing import Any

import psycopg
import pytest

from holdfast import events
from holdfast.errors import OutcomeUnknown, RowLocked, ValueRefused
from holdfast.model.lifecycle import State
from holdfast.model.outcome import returned
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.postgres import enqueue as enqueue_connection
from holdfast.store.postgres.store import PostgresStore
from tests.contract.places import listen_everywhere, raw
from tests.factories import a_queued_job, a_running_job, new_job, wants
from tests.servers import a_role
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


def test_after_a_refused_job_the_next_gets_its_own_answer(store: Store) -> None:
    first = a_queued_job(store)
    for _ in range(3):
        with pytest.raises(ValueRefused):
            store.enqueue(new_job(args=b"not json"))
        with pytest.raises(ValueRefused):
            store.enqueue(new_job(priority=101))
        with pytest.raises(ValueRefused, match="NUL"):
            store.enqueue(new_job(queue="a\0b"))
    made = [a_queued_job(store, queue=f"q{n}") for n in range(5)]
    assert [store.reads.get(id).queue for id in [first, *made]] == ["default", *(f"q{n}" for n in range(5))]
    assert len(store.reads.jobs()) == 6


def test_values_arrive_as_they_were_given(store: Store) -> None:
    args = '{"text": "ä\\\\ \\" € 🦀"}'.encode()
    id = a_queued_job(
        store, args=args, queue="ü", priority=-3, tags=("a b", 'c"d', "e\\f", "NULL", ""), correlation_id="c,{}",
        delay=5.5, expires_in=60.0,
    )  # fmt: skip
    job = store.reads.get(id)
    assert (job.args, job.queue, job.priority) == (args, "ü", -3)
    assert (job.tags, job.correlation_id) == (("a b", 'c"d', "e\\f", "NULL", ""), "c,{}")
    assert (job.run_at - job.created_at).total_seconds() == pytest.approx(5.5, abs=0.01)
    assert job.expires_at is not None
    assert (job.expires_at - job.created_at).total_seconds() == pytest.approx(60, abs=0.01)


def test_a_connection_that_ended_while_nobody_used_it_is_not_used(store: Store, settings: Settings) -> None:
    a_queued_job(store)

    def end_it() -> bool:
        """Once its wake-up is sent, too."""
        with raw(settings) as sql:
            return sql(
                "select bool_and(pg_terminate_backend(pid, 10000)) from pg_stat_activity where pid <> pg_backend_pid() "
                "and application_name = 'holdfast' and state = 'idle' and strpos(query, 'pg_notify') > 0"
            ) == [(True,)]

    wait_until(end_it)
    assert store.reads.get(a_queued_job(store)).queue == "default"


def test_what_fails_when_it_is_committed_was_not_enqueued(store: Store, settings: Settings) -> None:
    """Its row was sent by then."""
    with psycopg.connect(settings.url, autocommit=True) as db:
        jobs = f'"{settings.schema}".jobs'
        db.execute(
            f'create function "{settings.schema}".refuse() returns trigger language plpgsql as '
            "$$ begin raise exception 'not today' using errcode = '23514'; end $$".encode()
        )
        db.execute(
            f"create constraint trigger refused after insert on {jobs} deferrable initially deferred "
            f'for each row execute function "{settings.schema}".refuse()'.encode()
        )
        for _ in range(3):
            with pytest.raises(ValueRefused, match="not today"):
                store.enqueue(new_job())
        assert store.reads.jobs() == []
        db.execute(f"drop trigger refused on {jobs}".encode())
    assert store.reads.get(a_queued_job(store)).queue == "default"


def test_what_fails_when_outcomes_are_committed_is_told_as_what_it_is(store: Store, settings: Settings) -> None:
    """Not as a broken connection: the desk narrows it down, job by job."""
    held = a_running_job(store)
    with psycopg.connect(settings.url, autocommit=True) as db:
        db.execute(
            f'create function "{settings.schema}".refuse() returns trigger language plpgsql as '
            "$$ begin raise exception 'not today' using errcode = '23514'; end $$".encode()
        )
        db.execute(
            f'create constraint trigger refused after update on "{settings.schema}".jobs deferrable initially deferred '
            f'for each row execute function "{settings.schema}".refuse()'.encode()
        )
    with pytest.raises(ValueRefused, match="not today"):
        store.exchange([returned(held, None)], wants())
    assert store.reads.get(str(held.id)).state == "running"


def test_members_of_enumerations_are_kept_as_what_they_stand_for(store: Store) -> None:
    class Queue(str, Enum):  # noqa: UP042 - as people write it
        MAIL = "mail"

    class Urgency(int, Enum):
        HIGH = 7

    id = store.enqueue(new_job(queue=Queue.MAIL, priority=Urgency.HIGH)).id
    assert (store.reads.get(id).queue, store.reads.get(id).priority) == ("mail", 7)


def test_who_hears_of_a_lost_wake_up_may_enqueue(store: Store) -> None:
    """As an alert would: nothing of ours is locked while it is told."""
    told: list[str] = []

    def alert(name: str, fields: dict[str, Any]) -> None:
        if name == "notify_failed" and not told:
            told.append(a_queued_job(store, queue="alerts"))

    unsubscribe = events.subscribe(alert)
    try:
        assert isinstance(store, PostgresStore)
        with store.enqueueing.pool.use() as post:
            post.failure = ((store.wakeups.channel, "qmail"), "the queue is full")
        a_queued_job(store)
    finally:
        unsubscribe()
    assert [store.reads.get(id).queue for id in told] == ["alerts"]


def test_a_wake_up_that_failed_behind_its_job_is_sent_again(store: Store, settings: Settings) -> None:
    """It waits but shortly for the lock all of them take, as the next job waits behind it."""
    assert isinstance(store, PostgresStore)
    with psycopg.connect(settings.url, autocommit=True) as listener:
        listener.execute(listen_everywhere(store))
        a_queued_job(store)  # the connection is there
        assert len(list(listener.notifies(timeout=10, stop_after=1))) == 1  # it may come some time after its job
        with store.enqueueing.pool.use() as post:
            post.failure = ((store.wakeups.channel, "qearlier"), "canceling statement due to lock timeout")
        a_queued_job(store, queue="later")
        heard = {wakeup.payload for wakeup in listener.notifies(timeout=10, stop_after=2)}
    assert heard == {"qearlier", 'l["later", "greet", 0]'}


def test_who_does_not_know_whether_its_job_was_taken_tells_the_workers(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the wake-up was not to go along: the job may be there."""
    assert isinstance(store, PostgresStore)

    def lose(self: enqueue_connection.EnqueueConnection, *_: object) -> int:
        self.along = False
        raise psycopg.OperationalError("the connection is lost")

    with psycopg.connect(settings.url, autocommit=True) as listener:
        listener.execute(listen_everywhere(store))
        a_queued_job(store)
        assert len(list(listener.notifies(timeout=10, stop_after=1))) == 1  # it may come some time after its job
        with monkeypatch.context() as patch:
            patch.setattr(enqueue_connection.EnqueueConnection, "enqueue", lose)
            with pytest.raises(OutcomeUnknown):
                a_queued_job(store, queue="mail")
        assert [w.payload for w in listener.notifies(timeout=10, stop_after=1)] == ['l["mail", "greet", 0]']


def test_a_job_waits_for_whoever_has_the_table_and_workers_hear_of_it_then(store: Store, settings: Settings) -> None:
    assert isinstance(store, PostgresStore)
    with psycopg.connect(settings.url, autocommit=True) as listener, ThreadPoolExecutor(1) as thread:
        listener.execute(listen_everywhere(store))
        a_queued_job(store)
        [first] = listener.notifies(timeout=10, stop_after=1)  # it may come some time after its job
        assert first.payload == 'l["default", "greet", 0]'
        with psycopg.connect(settings.url) as somebody:
            somebody.execute(f'lock table "{settings.schema}".jobs'.encode())
            waiting = thread.submit(a_queued_job, store, queue="mail")
            until = time.monotonic() + 0.4
            wait_until(lambda: time.monotonic() >= until)
            assert not waiting.done()
            early = [w.payload for w in listener.notifies(timeout=0)]
        id = waiting.result(10)
        assert [w.payload for w in listener.notifies(timeout=10, stop_after=1)] == ['l["mail", "greet", 0]']
    assert early in ([], ['l["mail", "greet", 0]']), "one was on its way before it was known that there is nothing yet"
    assert store.reads.get(id).queue == "mail"
    assert a_queued_job(store) != id, "and the next gets its own answer"


def test_a_table_that_stays_locked_is_told_of_and_the_next_job_is_taken(store: Store, settings: Settings) -> None:
    a_queued_job(store)
    with psycopg.connect(settings.url) as somebody:
        somebody.execute(f'lock table "{settings.schema}".jobs'.encode())
        with pytest.raises(RowLocked):
            a_queued_job(store)
    a_queued_job(store, queue="later")
    assert [job.queue for job in store.reads.jobs()] == ["later", "default"]


@pytest.mark.parametrize("lost", [psycopg.errors.AdminShutdown, psycopg.OperationalError])
def test_a_job_whose_session_ended_is_not_sent_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch, lost: type[psycopg.Error]
) -> None:
    """It may have been committed: a server that is told to stop says so after that, too."""
    a_queued_job(store)

    def lose(self: enqueue_connection.EnqueueConnection, *args: Any) -> int:
        original(self, *args)
        raise lost("terminating connection due to administrator command")

    original = enqueue_connection.EnqueueConnection.enqueue
    with monkeypatch.context() as patch:
        patch.setattr(enqueue_connection.EnqueueConnection, "enqueue", lose)
        with pytest.raises(OutcomeUnknown):
            a_queued_job(store, queue="mail")
    assert [job.queue for job in store.reads.jobs()] == ["mail", "default"]


def test_a_role_that_may_only_insert_jobs_can_enqueue(store: Store, settings: Settings) -> None:
    schema = f'"{settings.schema}"'
    rights = f"usage on schema {schema}", f"insert, select (id) on {schema}.jobs", f"select on {schema}.meta"
    with a_role(settings.url, *rights) as url, closing(open_store(replace(settings, url=url))) as theirs:
        ids = [theirs.enqueue(new_job()).id for _ in range(3)]
    assert {store.reads.get(id).state for id in ids} == {State.QUEUED}
