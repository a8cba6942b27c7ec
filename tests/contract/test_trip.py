"""The worker's trip to PostgreSQL: one message, two transactions, the claim's answer first. Whatever becomes of one of
the two, the other stands, and answers are never taken for those of another trip."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.errors import OutcomeUnknown, RowLocked, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.job import Claimed, ClaimedJob
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Outcome, returned
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store, Trips
from holdfast.store.postgres.exchange import Trip
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.postgres.store import PostgresStore
from tests.factories import a_queued_job, a_running_job, claim, new_job, trip, wants
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


@contextmanager
def locked(settings: Settings, held: ClaimedJob) -> Iterator[None]:
    """Somebody's open transaction has this job's row: whoever records its outcome waits."""
    with psycopg.connect(settings.url) as someone:
        someone.execute(f'select 1 from "{settings.schema}".jobs where id = %s for update'.encode(), [held.id])
        yield


def pid_of_the_trip(store: Store) -> int:
    assert isinstance(store, PostgresStore)
    with store.exchanging.pool.use() as trip:
        return trip.connection.info.backend_pid


def once_it_waits(settings: Settings, pid: int, act: str) -> Callable[[Claimed], None]:
    """Hands out, and has the server do this to its session as soon as that waits for a lock."""

    def meanwhile() -> None:
        with psycopg.connect(settings.url, autocommit=True) as other:
            wait_until(
                lambda: (
                    other.execute(
                        "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'", [pid]
                    ).fetchone()
                    is not None
                )
            )
            other.execute(f"select {act}(%s)".encode(), [pid])

    return lambda claimed: threading.Thread(target=meanwhile).start()


def test_what_was_claimed_is_handed_out_before_the_outcomes_are_recorded(store: Store, settings: Settings) -> None:
    held, waiting = a_running_job(store), a_queued_job(store)
    seen: list[tuple[State, State]] = []

    def hand_out(claimed: Claimed) -> None:
        assert [str(job.id) for job in claimed.jobs] == [waiting]
        seen.append((store.reads.get(waiting).state, store.reads.get(str(held.id)).state))

    with locked(settings, held), pytest.raises(RowLocked):
        trip(store, [returned(held, b"1")], wants(), hand_out)
    assert seen == [(State.RUNNING, State.RUNNING)]
    assert store.reads.get(waiting).state is State.RUNNING
    assert store.exchange([returned(held, None)], None).lost == []


def test_a_claim_that_is_refused_costs_no_outcome(store: Store) -> None:
    held, waiting = a_running_job(store), a_queued_job(store)
    burnt = wants()
    assert store.claim_of(burnt.fence).jobs == []
    handed: list[Claimed] = []
    done = trip(store, [returned(held, b"1")], burnt, handed.append)
    assert isinstance(done.refused, ValueRefused)
    assert (handed, done.claimed.jobs, done.lost) == ([], [], [])
    assert store.reads.get(str(held.id)).result == b"1"
    assert store.reads.get(waiting).state is State.QUEUED
    assert len(claim(store).jobs) == 1


def test_without_outcomes_a_claim_that_is_refused_says_so(store: Store) -> None:
    a_queued_job(store)
    burnt = wants()
    store.claim_of(burnt.fence)
    with pytest.raises(ValueRefused):
        store.exchange([], burnt)
    assert len(claim(store).jobs) == 1


def test_where_both_are_refused_the_outcomes_are_told_of(store: Store) -> None:
    bad = a_running_job(store, max_attempts=1)
    burnt = wants()
    store.claim_of(burnt.fence)
    with pytest.raises(ValueRefused, match="jobs_check"):
        store.exchange([Outcome("reschedule", bad.id, bad.fence, "errored")], burnt)
    assert store.exchange([returned(bad, None)], wants()).lost == []


def test_a_session_that_ends_between_the_two_answers_leaves_the_claim_and_a_doubt(
    store: Store, settings: Settings
) -> None:
    held, waiting = a_running_job(store), a_queued_job(store)
    handed: list[Claimed] = []
    end = once_it_waits(settings, pid_of_the_trip(store), "pg_terminate_backend")

    def hand_out(claimed: Claimed) -> None:
        handed.append(claimed)
        end(claimed)

    with locked(settings, held), pytest.raises(OutcomeUnknown):
        trip(store, [returned(held, b"1")], wants(), hand_out)
    assert [str(job.id) for claimed in handed for job in claimed.jobs] == [waiting]
    assert [store.reads.get(id).state for id in (str(held.id), waiting)] == [State.RUNNING, State.RUNNING]
    assert store.exchange([returned(held, b"1")], wants(), [held.fence]).lost == []
    assert store.reads.get(str(held.id)).result == b"1"


def test_a_cancelled_statement_is_trouble_that_passes(store: Store, settings: Settings) -> None:
    held, waiting = a_running_job(store), a_queued_job(store)
    pid = pid_of_the_trip(store)
    with locked(settings, held), pytest.raises(StoreUnavailable) as told:
        trip(store, [returned(held, b"1")], wants(), once_it_waits(settings, pid, "pg_cancel_backend"))
    assert not isinstance(told.value, OutcomeUnknown), "the server has said that it was not recorded"
    assert [store.reads.get(id).state for id in (str(held.id), waiting)] == [State.RUNNING, State.RUNNING]
    assert store.exchange([returned(held, b"1")], None).lost == []
    assert pid_of_the_trip(store) == pid


def test_who_fails_to_hand_out_leaves_no_answers_to_others(store: Store) -> None:
    held, waiting = a_running_job(store), a_queued_job(store)

    def hand_out(claimed: Claimed) -> None:
        raise ZeroDivisionError

    wanted = wants()
    with pytest.raises(ZeroDivisionError):
        trip(store, [returned(held, b"1")], wanted, hand_out)
    assert [str(job.id) for job in store.claim_of(wanted.fence).jobs] == [waiting]
    again = store.exchange([returned(held, None)], wants())
    assert (again.lost, again.claimed.jobs) == ([], [])
    wait_until(lambda: store.reads.get(str(held.id)).state is State.SUCCEEDED)


def test_an_error_among_many_outcomes_leaves_the_answers_in_step(store: Store) -> None:
    for _ in range(6):
        a_queued_job(store)
    one, *others, last = claim(store, 6).jobs
    poison = Outcome("succeed", last.id, last.fence, result=b"not json")
    for _ in range(3):
        with pytest.raises(StoreError):
            store.exchange([returned(one, None), poison, *(returned(job, b"2") for job in others)], wants())
    done = store.exchange([returned(job, b"2") for job in others], None, [one.fence])
    assert (done.lost, done.already) == ([], [])
    assert {store.reads.get(str(job.id)).result for job in others} == {b"2"}
    assert store.reads.get(str(one.id)).state is State.RUNNING


def test_large_answers_and_large_outcomes_do_not_wait_for_each_other(store: Store) -> None:
    """Megabytes each way, more than any buffer between the two holds."""
    body = b'"' + b"x" * 20_000 + b'"'
    for chunk in store.enqueue_many(new_job(args=body) for _ in range(800)):
        assert chunk
    first = claim(store, 400).jobs
    done = store.exchange([returned(job, body) for job in first], wants(400), [first[0].fence])
    assert done.lost == []
    assert [job.args for job in done.claimed.jobs] == [body] * 400
    assert store.reads.get(str(first[-1].id)).result == body


# -- one behind the other ----------------------------------------------------------------------------------------------


def test_the_next_trip_may_depart_before_the_last_one_is_recorded(store: Store, settings: Settings) -> None:
    held, first, second = a_running_job(store), a_queued_job(store), a_queued_job(store)
    with store.trips() as trips:
        trips.depart([returned(held, b"1")], wants(), [held.fence])
        [one] = taken(trips)
        trips.depart([returned(one, b"2")], wants(), [])
        assert trips.recorded().lost == []
        [two] = taken(trips)
        assert (trips.recorded().lost, [str(one.id), str(two.id)]) == ([], [first, second])
    assert [store.reads.get(id).result for id in (str(held.id), first)] == [b"1", b"2"]
    assert store.reads.get(second).state is State.RUNNING


def taken(trips: Trips) -> list[ClaimedJob]:
    claimed = trips.claimed()
    assert claimed is not None
    return claimed.jobs


def test_what_one_trip_meets_is_no_matter_of_the_next(store: Store, settings: Settings) -> None:
    held, first, second = a_running_job(store), a_queued_job(store), a_queued_job(store)
    with store.trips() as trips:
        trips.depart([Outcome("succeed", held.id, held.fence, result=b"not json")], wants(), [])
        [one] = taken(trips)
        trips.depart([returned(one, b"2")], wants(), [])
        with pytest.raises(ValueRefused):
            trips.recorded()
        [two] = taken(trips)
        assert trips.recorded().lost == []
    assert (str(one.id), str(two.id)) == (first, second)
    assert [store.reads.get(id).state for id in (str(held.id), first, second)] == [
        State.RUNNING,
        State.SUCCEEDED,
        State.RUNNING,
    ]


def test_a_lost_lease_is_told_while_another_trip_is_under_way(store: Store, settings: Settings) -> None:
    held, done = a_running_job(store), a_running_job(store)
    a_queued_job(store)
    store.attempts.succeed(Ref(done.id, done.fence))
    gone = replace(held, fence=str(uuid.uuid4()))
    with store.trips() as trips:
        trips.depart([returned(gone, None), returned(done, None)], wants(), [])
        [one] = taken(trips)
        trips.depart([returned(one, None)], wants(), [])
        told = trips.recorded()
        assert [outcome.id for outcome in told.lost] == [held.id]
        assert [outcome.id for outcome in told.already] == [done.id]
        taken(trips)
        assert trips.recorded().lost == []


def sessions_of(settings: Settings) -> set[int]:
    with psycopg.connect(settings.url) as connection:
        return {pid for (pid,) in connection.execute("select pid from pg_stat_activity")}


def test_who_leaves_trips_under_way_leaves_no_answers_to_others(store: Store, settings: Settings) -> None:
    held = a_running_job(store)
    a_queued_job(store)
    pid = pid_of_the_trip(store)
    with store.trips() as trips:
        trips.depart([returned(held, None)], wants(), [])
    assert pid_of_the_trip(store) != pid, "its answers are nobody's"
    # The server may have done what it was sent, or not: it ends a session whose client is gone.
    wait_until(lambda: pid not in sessions_of(settings))
    with store.trips() as trips:
        trips.depart([], wants(), [])
        trips.claimed()
    a_queued_job(store)
    wanted = wants()
    assert [job.fence for job in store.exchange([], wanted).claimed.jobs] == [wanted.fence]


def overlapping(trips: Trips, finished: Sequence[Outcome]) -> Trip:
    """A trip under way, and another behind it that records these."""
    assert isinstance(trips, Trip)
    trips.depart([], wants(), [])
    taken(trips)
    trips.depart(finished, wants(), [])
    return trips


def test_the_outcomes_of_a_trip_behind_another_are_recorded_by_a_session_of_their_own(store: Store) -> None:
    held, waiting = a_running_job(store), a_queued_job(store)
    pids: set[int] = set()
    for _ in range(3):
        with store.trips() as trips:
            trip = overlapping(trips, [returned(held, None)])
            assert trip._aside is not None
            pids.add(trip._aside.connection.info.backend_pid)
            assert trip._aside.connection is not trip.connection
            trips.recorded()
            trips.claimed()
            trips.recorded()
    assert len(pids) == 1, "it is kept"
    assert [store.reads.get(id).state for id in (str(held.id), waiting)] == [State.SUCCEEDED, State.RUNNING]


def test_where_that_session_ends_its_outcomes_are_in_doubt_and_another_is_opened(
    store: Store, settings: Settings
) -> None:
    held = a_running_job(store)
    with locked(settings, held), store.trips() as trips:
        trip = overlapping(trips, [returned(held, b"1")])
        trips.recorded()
        trips.claimed()
        assert trip._aside is not None
        once_it_waits(settings, trip._aside.connection.info.backend_pid, "pg_terminate_backend")(Claimed())
        with pytest.raises(OutcomeUnknown):
            trips.recorded()
    assert store.reads.get(str(held.id)).state is State.RUNNING
    with store.trips() as trips:
        overlapping(trips, [returned(held, b"1")])
        trips.recorded()
        trips.claimed()
        assert trips.recorded().lost == []
    assert store.reads.get(str(held.id)).result == b"1"


def test_where_that_session_ended_while_nobody_used_it_another_is_opened(store: Store, settings: Settings) -> None:
    one, two = a_running_job(store), a_running_job(store)
    for held in (one, two):
        with store.trips() as trips:
            trip = overlapping(trips, [returned(held, None)])
            trips.recorded()
            trips.claimed()
            assert trips.recorded().lost == []
            assert trip._aside is not None
            pid = trip._aside.connection.info.backend_pid
        with psycopg.connect(settings.url, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s, 5000)", [pid])
    assert [store.reads.get(str(held.id)).state for held in (one, two)] == [State.SUCCEEDED, State.SUCCEEDED]


def test_where_there_is_no_connection_to_be_had_all_goes_by_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held = a_running_job(store)

    def refuse() -> Pipeline:
        raise StoreUnavailable("too many clients")

    with store.trips() as trips:
        assert isinstance(trips, Trip)
        monkeypatch.setattr(trips, "_open_aside", refuse)
        overlapping(trips, [returned(held, None)])
        trips.recorded()
        trips.claimed()
        assert trips.recorded().lost == []
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED
