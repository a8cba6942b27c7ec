from __future__ import annotations

import asyncio
import uuid

import psycopg
import pytest

from holdfast.errors import LeaseLost
from holdfast.model.job import ClaimedJob
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store.base import Ref, Store
from tests.contract.places import HOLDER_VERBS, everything, raw
from tests.factories import HOUR, LEASE, Clock, a_queued_job, a_running_job, claim, ref, wants


def lease_end(store: Store) -> float | None:
    return store.look("w1", ["greet"], None).next_lease_end


def leases(settings: Settings) -> int:
    with raw(settings) as sql:
        return int(sql("select count(*) from {leases}")[0][0])


# -- renewing -------------------------------------------------------------------------------------------------------


def test_renewing_extends_the_lease_by_the_databases_clock(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    assert lease_end(store) == pytest.approx(LEASE)
    clock.advance(15)
    assert store.attempts.renew([held.fence], [ref(held)], LEASE) == ({held.fence}, [])
    assert lease_end(store) == pytest.approx(LEASE)
    clock.advance(15)
    assert store.rescues.rescue() == []


def test_a_lease_is_only_ever_renewed_forward(store: Store, clock: Clock) -> None:
    held = a_running_job(store, lease=HOUR)
    assert store.attempts.renew([held.fence], [ref(held)], 1) == ({held.fence}, [])
    assert lease_end(store) == pytest.approx(HOUR)
    clock.advance(-60)  # a database whose clock was set back
    store.attempts.renew([held.fence], [ref(held)], HOUR)
    assert lease_end(store) == pytest.approx(HOUR + 60)


def test_a_lease_is_renewed_only_by_its_own_fence(store: Store) -> None:
    held = a_running_job(store)
    stranger = str(uuid.uuid4())
    standing, requests = store.attempts.renew([stranger], [Ref(held.id, stranger)], HOUR)
    assert standing == set()
    assert [(r.id, r.fence, r.lost) for r in requests] == [(held.id, stranger, True)]
    assert lease_end(store) == pytest.approx(LEASE)


def test_a_zombies_heartbeat_does_not_keep_its_heirs_lease_alive(store: Store, clock: Clock) -> None:
    zombie = a_running_job(store, worker="zombie")
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    [heir] = claim(store, worker="heir").jobs
    clock.advance(LEASE - 1)
    standing, requests = store.attempts.renew([zombie.fence], [ref(zombie)], LEASE)
    assert standing == set()
    assert [(r.id, r.lost) for r in requests] == [(zombie.id, True)]
    clock.advance(2)
    [rescued] = store.rescues.rescue()
    assert rescued.id == str(heir.id)


def test_an_expired_lease_that_nobody_rescued_is_still_its_holders(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    clock.advance(10 * LEASE)
    assert store.attempts.renew([held.fence], [ref(held)], LEASE) == ({held.fence}, [])
    assert store.rescues.rescue() == []
    clock.advance(10 * LEASE)
    store.attempts.checkpoint(ref(held), b'"still mine"')
    store.attempts.succeed(ref(held), b"1")
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED


def test_rescue_ends_the_lease(store: Store, clock: Clock, settings: Settings) -> None:
    held = a_running_job(store)
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    assert leases(settings) == 0
    standing, requests = store.attempts.renew([held.fence], [ref(held)], LEASE)
    assert standing == set()
    assert [r.lost for r in requests] == [True]


def test_renewing_tells_what_people_asked_and_what_is_lost(store: Store) -> None:
    for _ in range(5):
        a_queued_job(store)
    wanted = wants(5)
    quiet, paused, cancelled, both, gone = store.attempts.claim(wanted).jobs
    store.operator.pause(str(paused.id))
    store.operator.cancel(str(cancelled.id))
    store.operator.pause(str(both.id))
    store.operator.cancel(str(both.id))
    store.exchange([Outcome("release", gone.id, gone.fence, "released")], None)
    held = [ref(job) for job in (quiet, paused, cancelled, both, gone)]
    standing, requests = store.attempts.renew([wanted.fence], held, LEASE)
    assert standing == {wanted.fence}
    told = {r.id: (r.fence, r.lost, r.cancel, r.pause) for r in requests}
    assert told == {
        paused.id: (wanted.fence, False, False, True),
        cancelled.id: (wanted.fence, False, True, False),
        both.id: (wanted.fence, False, True, True),
        gone.id: (wanted.fence, True, False, False),
    }


def test_jobs_and_fences_are_pairs_never_two_lists(store: Store) -> None:
    """Rule 1: a job with the fence of another job of the same worker is lost, though both are ours."""
    one, two = a_running_job(store), a_running_job(store)
    standing, requests = store.attempts.renew(
        [one.fence, two.fence], [Ref(one.id, two.fence), Ref(two.id, one.fence)], LEASE
    )
    assert standing == {one.fence, two.fence}
    assert sorted((r.id, r.lost) for r in requests) == [(one.id, True), (two.id, True)]


def test_renewing_nothing_is_nothing(store: Store) -> None:
    held = a_running_job(store)
    assert store.attempts.renew([], [], LEASE) == (set(), [])
    assert store.attempts.renew([held.fence], [], LEASE) == ({held.fence}, [])


def test_a_deleted_job_is_lost(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.release(ref(held))
    store.operator.delete(str(held.id))
    assert [r.lost for r in store.attempts.renew([held.fence], [ref(held)], LEASE)[1]] == [True]
    for verb, act in HOLDER_VERBS.items():
        if verb in ("succeed", "fail", "reschedule", "park", "stop", "checkpoint", "progress"):
            with pytest.raises(LeaseLost, match=f"deleted.*{verb}"):
                act(store, Ref(held.id, str(uuid.uuid4())))


# -- the end of a lease ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["succeed", "fail", "reschedule", "release", "park", "stop"])
def test_a_lease_goes_with_the_last_job_under_it(store: Store, settings: Settings, verb: str) -> None:
    a_queued_job(store)
    a_queued_job(store)
    wanted = wants(2)
    first, second = store.attempts.claim(wanted).jobs
    HOLDER_VERBS[verb](store, ref(first))
    assert leases(settings) == 1, "the other job still stands under it"
    HOLDER_VERBS[verb](store, ref(second))
    assert leases(settings) == 0


def test_a_lease_said_to_be_drained_is_kept_while_a_job_stands_under_it(store: Store, settings: Settings) -> None:
    held = a_running_job(store)
    store.exchange([], None, [held.fence])
    assert leases(settings) == 1
    store.attempts.succeed(ref(held))
    assert leases(settings) == 0


def test_an_outcome_without_word_of_its_lease_leaves_it_to_the_watchdog(
    store: Store, clock: Clock, settings: Settings
) -> None:
    held = a_running_job(store)
    store.exchange([Outcome("succeed", held.id, held.fence)], None)
    assert leases(settings) == 1
    clock.advance(LEASE + 1)
    assert store.rescues.rescue() == []
    assert leases(settings) == 0
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED


# -- saving progress under it ---------------------------------------------------------------------------------------


def test_a_checkpoint_is_there_for_the_next_attempt(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    assert store.reads.get(str(held.id)).pending is None
    assert store.attempts.checkpoint(ref(held), b'{"seen":[1,2]}', pending=40, done=2) == (False, False)
    job = store.reads.get(str(held.id))
    assert (job.checkpoint, job.pending, job.done) == (b'{"seen":[1,2]}', 40, 2)
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    [again] = claim(store).jobs
    assert again.checkpoint == b'{"seen":[1,2]}'
    store.attempts.checkpoint(ref(again), None)
    job = store.reads.get(str(held.id))
    assert (job.checkpoint, job.pending, job.done) == (None, 0, 2)


def test_progress_keeps_what_it_is_not_told(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.progress(ref(held), 1, 10, "first")
    store.attempts.progress(ref(held), 2, None, None)
    job = store.reads.get(str(held.id))
    assert (job.done, job.total, job.note) == (2, 10, "first")


def test_saving_progress_tells_what_people_asked(store: Store) -> None:
    held = a_running_job(store)
    store.operator.pause(str(held.id))
    assert store.attempts.progress(ref(held), 1, None, None) == (False, True)
    store.operator.cancel(str(held.id))
    assert store.attempts.checkpoint(ref(held), b"1") == (True, True)


def test_the_sum_of_pending_work_needs_no_json(store: Store, settings: Settings) -> None:
    for pending in (3, 4, 5):
        store.attempts.checkpoint(ref(a_running_job(store, queue="crawl")), b"{}", pending=pending)
    parked = a_running_job(store, queue="crawl")
    store.attempts.checkpoint(ref(parked), b"{}", pending=100)
    store.operator.pause(str(parked.id))
    store.attempts.park(ref(parked))
    a_queued_job(store, queue="crawl")
    with raw(settings) as sql:
        assert sql("select sum(pending) from {jobs} where state = 'running'") == [(12,)]
    told = {(row["queue"], row["state"]): (row["jobs"], row["pending"]) for row in store.reads.counts()}
    assert told == {
        ("crawl", "running"): (3, 12), ("crawl", "paused"): (1, 100), ("crawl", "queued"): (1, None),
    }  # fmt: skip


def test_a_zombies_checkpoint_does_not_overwrite_its_heirs(store: Store, clock: Clock) -> None:
    zombie = a_running_job(store, worker="zombie")
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    [heir] = claim(store, worker="heir").jobs
    store.attempts.checkpoint(ref(heir), b'"heir"', 1, 1)
    before = everything(store, heir.id)
    for verb in ("checkpoint", "progress"):
        with pytest.raises(LeaseLost, match="running, held by worker heir"):
            HOLDER_VERBS[verb](store, ref(zombie))
    assert everything(store, heir.id) == before


# -- success on the handler's own transaction -----------------------------------------------------------------------


def test_a_success_recorded_on_ones_own_transaction_comes_with_its_commit(store: Store) -> None:
    held = a_running_job(store)
    with store.user_connections.transaction() as connection:
        store.attempts.succeed_on(connection, ref(held), b'"mine"')
    job = store.reads.get(str(held.id))
    assert (job.state, job.result) == (State.SUCCEEDED, b'"mine"')
    done = store.exchange([Outcome("succeed", held.id, held.fence)], None, [held.fence])
    assert done.lost == []
    assert store.reads.get(str(held.id)).result == b'"mine"'


class Undo(Exception):
    pass


def test_a_success_recorded_on_ones_own_transaction_goes_with_its_rollback(store: Store) -> None:
    held = a_running_job(store)
    before = everything(store, held.id)

    def record_and_fail() -> None:
        with store.user_connections.transaction() as connection:
            store.attempts.succeed_on(connection, ref(held), b'"mine"')
            raise Undo

    with pytest.raises(Undo):
        record_and_fail()
    assert everything(store, held.id) == before
    store.attempts.succeed(ref(held), b'"later"')


@pytest.mark.parametrize("reclaimed", [True, False])
def test_a_zombie_cannot_record_success_on_its_own_transaction(store: Store, clock: Clock, reclaimed: bool) -> None:
    zombie = a_running_job(store, worker="zombie")
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    if reclaimed:
        claim(store, worker="heir")
    before = everything(store, zombie.id)
    with (
        store.user_connections.transaction() as connection,
        pytest.raises(LeaseLost, match="roll this transaction back"),
    ):
        store.attempts.succeed_on(connection, ref(zombie), b"1")
    assert everything(store, zombie.id) == before


@pytest.mark.parametrize("engine", ["postgres"])
def test_success_on_an_asynchronous_connection_is_fenced_the_same(
    store: Store, clock: Clock, settings: Settings
) -> None:
    zombie = a_running_job(store, worker="zombie")
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    [heir] = claim(store, worker="heir").jobs

    async def record(held: ClaimedJob) -> None:
        async with await psycopg.AsyncConnection.connect(settings.url) as connection:
            await store.attempts.asucceed_on(connection, ref(held), b'"mine"')

    before = everything(store, zombie.id)
    with pytest.raises(LeaseLost):
        asyncio.run(record(zombie))
    assert everything(store, zombie.id) == before
    asyncio.run(record(heir))
    assert store.reads.get(str(heir.id)).result == b'"mine"'


def test_errors_of_a_handlers_own_statements_stay_its_own(store: Store, engine: str) -> None:
    def misspell() -> None:
        with store.user_connections.transaction() as connection:
            connection.execute("selectt 1")

    with pytest.raises(Exception, match="syntax error") as caught:
        misspell()
    assert type(caught.value).__module__.partition(".")[0] == {"sqlite": "sqlite3", "postgres": "psycopg"}[engine]
    held = a_running_job(store)  # and the store goes on
    store.attempts.succeed(ref(held))


def test_a_success_on_the_callers_own_connection(store: Store, settings: Settings) -> None:
    held = a_running_job(store)
    with raw(settings) as sql:
        store.attempts.succeed_on(sql.connection, ref(held), None)
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED
