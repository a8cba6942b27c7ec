"""Every state x every verb: it moves as model/lifecycle.py says, or is refused and nothing changed."""

from __future__ import annotations

import pytest

from holdfast.errors import JobNotFound, LeaseLost, Refused, StoreError
from holdfast.model.lifecycle import IN_PLACE, REQUESTS, TRANSITIONS, State
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import HOLDER_VERBS, PEOPLES_VERBS, everything, raw, stale_and_current
from tests.factories import LEASE, Clock, a_queued_job, a_running_job, claim, ref

STATES = list(State)
BY_THE_HOLDER = ("succeed", "fail", "reschedule", "release", "park", "stop")


@pytest.mark.parametrize("verb", HOLDER_VERBS)
@pytest.mark.parametrize("state", STATES)
def test_a_stale_fence_is_refused_in_every_state_and_changes_nothing(
    store: Store, clock: Clock, state: State, verb: str
) -> None:
    stale, _ = stale_and_current(store, clock, state)
    before = everything(store, stale.id)
    with pytest.raises(LeaseLost, match=rf"job {stale.id} .*{state}.*{verb}"):
        HOLDER_VERBS[verb](store, stale)
    assert everything(store, stale.id) == before


@pytest.mark.parametrize("verb", [*HOLDER_VERBS, "succeed_on", "rescue"])
@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED])
def test_a_finished_job_keeps_its_fence_and_no_verb_changes_it_by_that(
    store: Store, clock: Clock, state: State, verb: str
) -> None:  # terminal is final
    _, current = stale_and_current(store, clock, state)
    before = everything(store, current.id)
    assert store.reads.get(str(current.id)).fence == current.fence
    if verb in ("checkpoint", "progress", "step"):
        with pytest.raises(LeaseLost):
            HOLDER_VERBS[verb](store, current)
    elif verb == "succeed_on":
        with store.user_connections.transaction() as connection, pytest.raises(LeaseLost):
            store.attempts.succeed_on(connection, current, b'"late"')
    elif verb == "rescue":
        with store.db.transaction() as tx:
            rows = tx.rows(
                "rescue", id=current.id, fence=current.fence, state="queued", attempt=1,
                crashes=1, suspicion=0, error_code="CRASHED", error_message="gone",
                error_fingerprint="0123456789",
            )  # fmt: skip
        assert rows == []
    else:
        HOLDER_VERBS[verb](store, current)  # its outcome is recorded already, whichever comes after
    assert everything(store, current.id) == before


@pytest.mark.parametrize("verb", BY_THE_HOLDER)
def test_what_the_holder_does_moves_a_running_job_as_the_table_says(store: Store, verb: str) -> None:
    held = a_running_job(store)
    HOLDER_VERBS[verb](store, ref(held))
    sources, ends = TRANSITIONS[verb]
    assert sources == {State.RUNNING}
    assert store.reads.get(str(held.id)).state in ends


@pytest.mark.parametrize("verb", ["checkpoint", "progress", "step"])
def test_progress_under_the_lease_leaves_the_state_alone(store: Store, verb: str) -> None:
    held = a_running_job(store)
    HOLDER_VERBS[verb](store, ref(held))
    assert IN_PLACE[verb] == {State.RUNNING}
    assert store.reads.get(str(held.id)).state is State.RUNNING


@pytest.mark.parametrize("verb", PEOPLES_VERBS)
@pytest.mark.parametrize("state", STATES)
def test_what_people_do_moves_a_job_as_the_table_says_or_is_refused(
    store: Store, clock: Clock, state: State, verb: str
) -> None:
    _, current = stale_and_current(store, clock, state)
    id = str(current.id)
    before = everything(store, id)
    possible = IN_PLACE[verb] if verb in IN_PLACE else TRANSITIONS[verb][0]
    if state in possible:
        end = PEOPLES_VERBS[verb](store, id)
        if verb == "delete":
            assert end is state
            with pytest.raises(JobNotFound):
                store.reads.get(id)
        else:
            assert end in (possible if verb in IN_PLACE else TRANSITIONS[verb][1])
            assert store.reads.get(id).state is end
    elif state is State.RUNNING and verb in REQUESTS:
        assert PEOPLES_VERBS[verb](store, id) is State.RUNNING
        job = store.reads.get(id)
        assert (job.state, job.pause_requested, job.cancel_requested) == (
            State.RUNNING, verb == "pause", verb == "cancel",
        )  # fmt: skip
    else:
        with pytest.raises(Refused, match=rf"can't {verb} job {id}: it is {state}, and must be .*{min(possible)}"):
            PEOPLES_VERBS[verb](store, id)
        assert everything(store, id) == before


@pytest.mark.parametrize("state", STATES)
def test_only_a_queued_job_is_claimed(store: Store, clock: Clock, state: State) -> None:
    _, current = stale_and_current(store, clock, state)
    before = everything(store, current.id)
    jobs = claim(store, 10).jobs
    if state in TRANSITIONS["claim"][0]:
        assert [job.id for job in jobs] == [current.id]
        assert store.reads.get(str(current.id)).state in TRANSITIONS["claim"][1]
    else:
        assert jobs == []
        assert everything(store, current.id) == before


@pytest.mark.parametrize("state", STATES)
def test_only_a_running_job_is_rescued(store: Store, clock: Clock, state: State) -> None:
    _, current = stale_and_current(store, clock, state)
    before = everything(store, current.id)
    clock.advance(10 * LEASE)
    rescued = store.rescues.rescue(dead=["heir", "zombie"])
    if state in TRANSITIONS["rescue"][0]:
        assert [job.id for job in rescued] == [str(current.id)]
        assert store.reads.get(str(current.id)).state in TRANSITIONS["rescue"][1]
    else:
        assert rescued == []
        assert everything(store, current.id) == before


@pytest.mark.parametrize("state", STATES)
def test_only_a_queued_job_that_never_started_expires(store: Store, clock: Clock, state: State) -> None:
    id = a_queued_job(store, expires_in=1)
    if state is State.PAUSED:
        store.operator.pause(id)
    elif state is not State.QUEUED:
        [held] = claim(store).jobs
        if state is State.SUCCEEDED:
            store.attempts.succeed(ref(held))
        elif state is State.CANCELLED:
            store.attempts.stop(ref(held))
        elif state is State.FAILED:
            HOLDER_VERBS["fail"](store, ref(held))
    before = everything(store, id)
    clock.advance(2)
    store.retention.expire()
    if state in TRANSITIONS["expire"][0]:
        assert store.reads.get(id).state in TRANSITIONS["expire"][1]
    else:
        assert everything(store, id) == before


# what was asked while it ran, what ended the attempt -> where the job goes
TURNED_ASIDE = {
    ("pause", "succeed"): State.SUCCEEDED,
    ("pause", "fail"): State.FAILED,
    ("pause", "reschedule"): State.PAUSED,
    ("pause", "release"): State.PAUSED,
    ("pause", "park"): State.PAUSED,
    ("pause", "stop"): State.CANCELLED,
    ("pause", "rescue"): State.PAUSED,
    ("cancel", "succeed"): State.SUCCEEDED,
    ("cancel", "fail"): State.CANCELLED,
    ("cancel", "reschedule"): State.CANCELLED,
    ("cancel", "release"): State.CANCELLED,
    ("cancel", "park"): State.CANCELLED,
    ("cancel", "stop"): State.CANCELLED,
    ("cancel", "rescue"): State.CANCELLED,
    ("both", "succeed"): State.SUCCEEDED,
    ("both", "fail"): State.CANCELLED,
    ("both", "reschedule"): State.CANCELLED,
    ("both", "release"): State.CANCELLED,
    ("both", "park"): State.CANCELLED,
    ("both", "stop"): State.CANCELLED,
    ("both", "rescue"): State.CANCELLED,
}


@pytest.mark.parametrize(("asked", "verb"), TURNED_ASIDE)
def test_a_request_outlives_the_attempt(store: Store, clock: Clock, asked: str, verb: str) -> None:
    held = a_running_job(store)
    id = str(held.id)
    if asked in ("pause", "both"):
        assert store.operator.pause(id) is State.RUNNING
    if asked in ("cancel", "both"):
        assert store.operator.cancel(id) is State.RUNNING
    if verb == "rescue":
        clock.advance(LEASE + 1)
        store.rescues.rescue()
    else:
        HOLDER_VERBS[verb](store, ref(held))
    job = store.reads.get(id)
    assert job.state is TURNED_ASIDE[asked, verb]
    assert job.state in TRANSITIONS[verb][1]
    assert claim(store).jobs == []
    if job.state is State.PAUSED:
        assert job.finished_at is None
        assert not job.pause_requested
        assert store.operator.resume(id) is State.QUEUED
        clock.advance(LEASE)
        assert [again.id for again in claim(store).jobs] == [held.id]
    elif job.state is State.CANCELLED:
        assert job.finished_at is not None
        assert job.failed_at is None
        assert not job.cancel_requested
        assert job.error_code is not None, "a cancelled job says why"


def test_every_end_the_table_lists_is_one_that_happens() -> None:
    plain = {"succeed": State.SUCCEEDED, "fail": State.FAILED, "reschedule": State.QUEUED, "release": State.QUEUED,
             "park": State.QUEUED, "stop": State.CANCELLED, "rescue": State.QUEUED}  # fmt: skip
    for verb, end in plain.items():
        ends = {end} | {aside for (_, by), aside in TURNED_ASIDE.items() if by == verb}
        if verb == "rescue":
            ends.add(State.FAILED)  # attempts used up, or quarantined
        assert ends == TRANSITIONS[verb][1], verb


def test_a_request_to_pause_can_be_taken_back_while_the_job_runs(store: Store) -> None:
    held = a_running_job(store)
    store.operator.pause(str(held.id))
    assert store.operator.resume(str(held.id)) is State.RUNNING
    store.attempts.release(ref(held))
    assert store.reads.get(str(held.id)).state is State.QUEUED


def test_a_running_job_that_nobody_asked_to_pause_cannot_be_resumed(store: Store) -> None:
    held = a_running_job(store)
    with pytest.raises(Refused, match="running"):
        store.operator.resume(str(held.id))


def test_asking_twice_is_asking_once(store: Store) -> None:
    held = a_running_job(store)
    for _ in range(2):
        assert store.operator.cancel(str(held.id)) is State.RUNNING
        assert store.operator.pause(str(held.id)) is State.RUNNING
    store.attempts.release(ref(held))
    assert store.reads.get(str(held.id)).state is State.CANCELLED


@pytest.mark.parametrize("verb", PEOPLES_VERBS)
@pytest.mark.parametrize("id", ["4711", "-1", "x", "1 or 1=1", "", "9" * 30, "\N{ARABIC-INDIC DIGIT THREE}"])
def test_a_job_that_is_not_there_is_not_found(store: Store, verb: str, id: str) -> None:
    with pytest.raises(JobNotFound, match="there is no job"):
        PEOPLES_VERBS[verb](store, id)


def insert_in_state(settings: Settings, state: str) -> None:
    with raw(settings) as sql:
        sql(
            "insert into {jobs} (created_at, run_at, ready_at, queue, task, args, state, fence) "
            "values ('2030-01-01 00:00:00', '2030-01-01 00:00:00', ?, 'q', 't', '1', ?, "
            "'0f0e0d0c-0b0a-0908-0706-050403020100')",
            "2030-01-01 00:00:00" if state == "queued" else None,
            state,
        )


@pytest.mark.parametrize("state", STATES)
def test_the_schema_knows_every_state_of_the_enum(store: Store, settings: Settings, state: State) -> None:
    insert_in_state(settings, state.value)
    assert [job.state for job in store.reads.jobs()] == [state]


@pytest.mark.parametrize("state", ["done", "pending", "QUEUED", "Running", "canceled", "", "queued "])
def test_the_schema_refuses_any_other_state(store: Store, settings: Settings, state: str) -> None:
    with pytest.raises(Exception, match=r"(?i)check constraint"):
        insert_in_state(settings, state)
    assert store.reads.jobs() == []


def test_the_schema_refuses_a_running_job_without_a_fence(store: Store, settings: Settings) -> None:
    id = a_queued_job(store)
    with raw(settings) as sql, pytest.raises(Exception, match=r"(?i)check constraint"):
        sql("update {jobs} set state = 'running', ready_at = null where id = ?", int(id))


def test_a_queued_job_that_can_never_be_claimed_must_not_exist(store: Store) -> None:
    """Not even by a worker that reschedules an attempt that was the last."""
    held = a_running_job(store, max_attempts=1)
    with pytest.raises(StoreError):
        HOLDER_VERBS["reschedule"](store, ref(held))
    assert store.reads.get(str(held.id)).state is State.RUNNING
