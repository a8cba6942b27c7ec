"""What people do to jobs: pause, resume, cancel, retry, change, delete."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.errors import JobNotFound, Refused, StoreError
from holdfast.model.filter import parse
from holdfast.model.job import ClaimedJob
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import statements
from holdfast.store.audit import Call
from holdfast.store.base import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.tasks.options import changes
from tests.contract.places import at_once, listen_everywhere, raw, reclaim
from tests.factories import (
    BOOM,
    HOUR,
    LEASE,
    Clock,
    a_queued_job,
    a_running_job,
    claim,
    claim_as_a_desk,
    new_job,
    ref,
    wants,
)


def test_a_refusal_of_what_has_changed_meanwhile_says_so(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = a_running_job(store, key="k")
    original = store.operator.act

    def act(verb: str, ids: Sequence[Any], call: Call, **parameters: Any) -> list[Any]:
        rows = original(verb, ids, call, **parameters)
        store.attempts.fail(ref(held), BOOM)
        return rows

    monkeypatch.setattr(store.operator, "act", act)
    with pytest.raises(Refused, match=f"can't retry job {held.id}: it was not failed yet when this was asked"):
        store.operator.retry(str(held.id))


def test_resume_charges_no_attempt_and_keeps_the_checkpoint(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.checkpoint(ref(held), b'{"page":3}', pending=7)
    store.operator.pause(str(held.id))
    store.attempts.park(ref(held))
    job = store.reads.get(str(held.id))
    assert (job.state, job.attempt, job.checkpoint, job.pending) == (State.PAUSED, 0, b'{"page":3}', 7)
    store.operator.resume(str(held.id))
    again = reclaim(store, held.id)
    assert (again.attempt, again.checkpoint) == (1, b'{"page":3}')


def test_resume_keeps_the_due_time(store: Store, clock: Clock) -> None:
    id = a_queued_job(store, delay=HOUR)
    store.operator.pause(id)
    store.operator.resume(id)
    assert store.reads.get(id).run_at == clock.now + timedelta(seconds=HOUR)
    assert claim(store).next_due == pytest.approx(HOUR)


def test_cancel_says_why(store: Store, clock: Clock) -> None:
    queued, paused = a_queued_job(store), a_queued_job(store)
    store.operator.pause(paused)
    for id in (queued, paused):
        assert store.operator.cancel(id, "no longer wanted") is State.CANCELLED
        job = store.reads.get(id)
        assert (job.error_code, job.error_message) == ("CANCELLED", "no longer wanted")
        assert (job.finished_at, job.failed_at) == (clock.now, None)
    assert claim(store, 5).jobs == []


def test_a_job_cancelled_while_it_runs_ends_cancelled_or_succeeded_never_queued(store: Store) -> None:
    held = a_running_job(store)
    store.operator.cancel(str(held.id))
    store.attempts.reschedule(ref(held), 0, BOOM)
    job = store.reads.get(str(held.id))
    assert (job.state, job.error_code) == (State.CANCELLED, "Boom")
    other = a_running_job(store)
    store.operator.cancel(str(other.id))
    store.attempts.succeed(ref(other))
    assert store.reads.get(str(other.id)).state is State.SUCCEEDED


def test_retry_begins_another_life(store: Store, clock: Clock) -> None:
    """Attempts go back to 0, so that what is queued again can be claimed again."""
    held = a_running_job(store, max_attempts=1, expires_in=10, queue="mail")
    store.attempts.fail(ref(held), BOOM)
    failed = store.reads.get(str(held.id))
    assert (failed.failed_at, failed.attempt) == (clock.now, 1)
    clock.advance(HOUR)
    assert store.operator.retry(str(held.id)) is State.QUEUED
    job = store.reads.get(str(held.id))
    assert (job.state, job.attempt, job.life, job.run_at, job.queue) == (State.QUEUED, 0, 2, clock.now, "mail")
    assert (job.fence, job.worker, job.started_at, job.finished_at, job.failed_at) == (None, None, None, None, None)
    assert (job.error_code, job.expires_at, job.crashes) == (None, None, 0)
    assert store.retention.expire() == []
    again = reclaim(store, held.id)
    assert again.attempt == 1
    store.attempts.succeed(ref(again))


def test_a_quarantined_job_can_be_retried(store: Store, clock: Clock) -> None:
    held = a_running_job(store, max_attempts=9)
    for _ in range(3):
        clock.advance(LEASE + 1)
        store.rescues.rescue()
        claim(store)
    assert store.reads.get(str(held.id)).error_code == "QUARANTINED"
    store.operator.retry(str(held.id))
    job = store.reads.get(str(held.id))
    assert (job.crashes, job.suspicion) == (0, 0)
    reclaim(store, held.id)


def test_priority_due_time_and_tags_of_a_waiting_job_change(store: Store, clock: Clock) -> None:
    id, other = a_queued_job(store, tags=("a",)), a_queued_job(store)
    store.operator.change(id, priority=-5)
    assert [str(job.id) for job in claim(store, 2).jobs] == [other, id]
    id = a_queued_job(store, tags=("a",))
    store.operator.change(id, delay=60)
    assert store.reads.get(id).run_at == clock.now + timedelta(seconds=60)
    assert claim(store).jobs == []
    store.operator.change(id, run_at=clock.now + timedelta(seconds=5))
    assert claim(store).next_due == pytest.approx(5)
    store.operator.change(id, tags=["b", "c"])
    job = store.reads.get(id)
    assert (job.tags, job.priority, job.run_at) == (("b", "c"), 0, clock.now + timedelta(seconds=5))
    store.operator.change(id, tags=[])
    assert store.reads.get(id).tags == ()
    store.operator.change(id, delay=0)
    assert [str(job.id) for job in claim(store).jobs] == [id]


def test_a_waiting_job_moves_to_another_queue(store: Store, clock: Clock) -> None:
    first, id = a_queued_job(store, queue="old"), a_queued_job(store, queue="old", delay=HOUR, priority=3)
    assert store.operator.change(id, queue="new") is State.QUEUED
    job = store.reads.get(id)
    assert (job.queue, job.priority, job.run_at) == ("new", 3, clock.now + timedelta(seconds=HOUR))
    clock.advance(HOUR)
    assert [str(job.id) for job in claim(store, 2, queues=("old",)).jobs] == [first]
    assert [(str(job.id), job.queue) for job in claim(store, 2, queues=("new",)).jobs] == [(id, "new")]


def test_a_paused_job_moves_and_stays_paused(store: Store, clock: Clock) -> None:
    id = a_queued_job(store, queue="old")
    store.operator.pause(id, "for a while", "ops")
    assert store.operator.change(id, queue="new", delay=60) is State.PAUSED
    job = store.reads.get(id)
    assert (job.state, job.queue, job.asked_by, job.asked_why) == (State.PAUSED, "new", "ops", "for a while")
    assert claim(store).jobs == []
    store.operator.resume(id)
    assert claim(store).next_due == pytest.approx(60)
    clock.advance(60)
    assert [job.queue for job in claim(store, queues=("new",)).jobs] == ["new"]


def test_a_held_job_that_moves_is_held_where_a_pause_means_it_and_free_elsewhere(store: Store) -> None:
    ids = [a_queued_job(store, queue="old", args=b'{"n":1}') for _ in range(3)]
    assert store.pauses.add("filter", "queue:old args.n:1").jobs == 3
    store.operator.change(ids[0], queue="free")
    store.operator.change(ids[1], queue="old", priority=1)
    store.pauses.add("filter", "queue:other args.n:1")
    store.operator.change(ids[2], queue="other")
    assert [str(job.id) for job in claim_as_a_desk(store, wants(9))[1]] == [ids[0]]
    assert [store.reads.get(id).held_by for id in ids] == [
        None, "pause:queue:old args.n:1", "pause:queue:other args.n:1",
    ]  # fmt: skip


def test_a_running_or_finished_job_is_not_moved(store: Store) -> None:
    held = a_running_job(store, queue="old")
    with pytest.raises(Refused, match="it is running, and must be queued or paused"):
        store.operator.change(str(held.id), queue="new")
    store.attempts.fail(ref(held), BOOM)
    with pytest.raises(Refused, match="it is failed"):
        store.operator.change(str(held.id), queue="new")
    assert store.reads.get(str(held.id)).queue == "old"


def test_a_job_that_moves_while_others_claim_runs_once(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    """Each is moved, or refused because it runs already; none is lost."""
    own = [stores(clock=clock) for _ in range(3)]
    list(store.enqueue_many(new_job(queue="old") for _ in range(60)))

    def act(number: int) -> Any:
        if number == 0:
            return own[0].operator.bulk("change", parse("queue:old"), **changes(queue="new"))
        taken = []
        while jobs := claim(own[number], 7).jobs:
            taken += [job.id for job in jobs]
        return taken

    done, *taken = at_once(3, act)
    taken.append([job.id for job in claim(store, 99).jobs])
    assert sorted(id for some in taken for id in some) == sorted(int(job.id) for job in store.reads.jobs(limit=99))
    assert len(store.reads.jobs(parse("queue:new"), limit=99)) == done.changed
    assert done.changed + done.refused <= 60


def test_a_change_of_nothing_changes_nothing(store: Store) -> None:
    id = a_queued_job(store, priority=3, tags=("a",), delay=9)
    before = store.reads.get(id)
    assert store.operator.change(id) is State.QUEUED
    assert store.reads.get(id) == before


def test_a_change_the_schema_refuses_changes_nothing(store: Store) -> None:
    id = a_queued_job(store)
    before = store.reads.get(id)
    with pytest.raises(StoreError):
        store.operator.change(id, priority=1000, tags=["x"])
    assert store.reads.get(id) == before


def test_a_deleted_job_is_forgotten_with_its_history(store: Store, settings: Settings) -> None:
    held, kept = a_running_job(store), a_running_job(store)
    for one in (held, kept):
        store.attempts.fail(ref(one), BOOM)
    assert store.operator.delete(str(held.id)) is State.FAILED
    with pytest.raises(JobNotFound):
        store.reads.get(str(held.id))
    assert store.reads.attempts(str(held.id)) == []
    assert len(store.reads.attempts(str(kept.id))) == 1
    with raw(settings) as sql:
        assert sql("select count(*) from {attempts}") == [(1,)]


@pytest.mark.parametrize("verb", ["pause", "cancel", "delete"])
def test_of_many_who_ask_the_same_at_once_one_wins(
    store: Store, stores: Callable[..., Store], clock: Clock, verb: str
) -> None:
    id = a_queued_job(store)
    own = [stores(clock=clock) for _ in range(6)]

    def ask(number: int) -> str:
        try:
            return str(getattr(own[number].operator, verb)(id))
        except (Refused, JobNotFound) as refused:
            return type(refused).__name__

    answers = at_once(6, ask)
    won = {"pause": "paused", "cancel": "cancelled", "delete": "queued"}[verb]
    assert answers.count(won) == 1
    assert set(answers) - {won} <= {"Refused", "JobNotFound"}


def test_a_pause_and_a_claim_at_once_leave_no_job_between(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    own = [stores(clock=clock) for _ in range(2)]
    for _ in range(20):
        id = a_queued_job(store)

        def act(number: int, id: str = id) -> State | list[ClaimedJob]:
            return own[0].operator.pause(id) if number == 0 else claim(own[1]).jobs

        state, taken = at_once(2, act)
        job = store.reads.get(id)
        if isinstance(taken, list) and taken:
            assert (job.state, job.pause_requested, state) == (State.RUNNING, True, State.RUNNING)
            store.attempts.stop(ref(taken[0]))
        else:
            assert (job.state, state) == (State.PAUSED, State.PAUSED)


def test_jobs_are_listed_newest_first_in_pages(store: Store) -> None:
    ids = [a_queued_job(store, queue="ab"[n % 2], task=("greet", "scan")[n % 3 == 0]) for n in range(12)]
    assert [job.id for job in store.reads.jobs()] == ids[::-1]
    first = store.reads.jobs(limit=5)
    second = store.reads.jobs(limit=5, before=first[-1].id)
    assert [job.id for job in first + second] == ids[:1:-1]
    assert {job.id for job in store.reads.jobs(queue="a", task="scan")} == {ids[0], ids[6]}
    store.operator.pause(ids[3])
    assert [job.id for job in store.reads.jobs(state=State.PAUSED)] == [ids[3]]
    assert store.reads.jobs(state=State.PAUSED, queue="a") == []


@pytest.mark.parametrize("engine", ["postgres"])
def test_every_return_to_queued_wakes_and_so_do_requests(store: Store, settings: Settings) -> None:
    """An insert-only trigger misses jobs that come back."""
    assert isinstance(store, PostgresStore)
    with psycopg.connect(settings.url, autocommit=True) as ear:
        ear.execute(listen_everywhere(store))

        def heard() -> str:
            [notice] = ear.notifies(timeout=5, stop_after=1)
            return notice.payload

        held = a_running_job(store, queue="mail")
        assert heard() == 'l["mail", "greet", 0]'
        store.attempts.release(ref(held))
        assert heard() == "qmail"
        store.attempts.reschedule(ref(reclaim(store, held.id)), 0, BOOM)
        assert heard() == "qmail"
        store.operator.pause(str(held.id))
        store.operator.resume(str(held.id))
        assert heard() == "qmail"
        store.operator.cancel(str(held.id))
        store.operator.retry(str(held.id))
        assert heard() == "qmail"
        store.operator.change(str(held.id), priority=1)
        assert heard() == "qmail"
        store.operator.change(str(held.id), queue="news")
        assert heard() == "qnews", "the workers of its new queue"
        reclaim(store, held.id)
        store.operator.cancel(str(held.id))
        assert heard() == "r"
        store.pauses.add("queue", "mail")
        store.pauses.drop("queue", "mail")
        assert heard() == "qmail"
        store.pauses.add("task", "greet")
        store.pauses.drop("task", "greet")
        assert heard() == "q", "whichever queue its jobs wait in"


def test_a_job_without_attempts_left_is_not_even_rescheduled_to_be_paused(store: Store) -> None:
    """Nobody could resume it."""
    held = a_running_job(store, max_attempts=1)
    store.operator.pause(str(held.id))
    with pytest.raises(StoreError):
        store.attempts.reschedule(ref(held), 0.0, BOOM)
    assert store.reads.get(str(held.id)).state == "running"


def test_a_store_that_is_open_needs_no_files_of_ours(
    stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release may be removed, or replaced by the next one, under a process that goes on for a while."""
    stores().schema.migrate()
    statements.sources.cache_clear()
    store = stores()

    def gone(*args: object, **kwargs: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", gone)
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), 0, BOOM)
    for id in (a_queued_job(store), a_queued_job(store)):
        store.operator.pause(id)
        store.operator.resume(id)
        store.operator.cancel(id)
        store.operator.retry(id)
    store.look("w1", ["greet"], None)
    store.attempts.renew([held.fence], [], 5.0)
    assert len(store.reads.jobs()) == 3
