"""On PostgreSQL: what a row says becomes its job's, and what a job does becomes its row's."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import BadArguments, Refused, ResultMisfit
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Outcome
from holdfast.store.base import Ref, Store
from tests.adopt.postgres import STATES, Side, adopt, claim, finish, inbox, job, jobs, settle
from tests.factories import BOOM, Clock

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


# -- from the job to the row ---------------------------------------------------------------------------------------


def test_a_row_that_waits_is_a_job_and_its_success_is_written_to_it(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending')")
    [held] = claim(store)
    assert json.loads(held.args) == {"row": {"id": 1, "url": "a"}}
    row = side.row()
    told = row["status"], row["worker_id"], row["retry_count"], str(row["fence"]), row["version"]
    assert told == ("processing", "w1", 1, held.fence, 2)
    assert row["started_at"] == row["heartbeat"] == row["updated_at"] == clock()
    clock.advance(1)
    finish(store, held, result={"score": 7, "more": [1]})
    row = side.row()
    assert (row["status"], row["score"], row["report"]) == ("completed", 7, {"score": 7, "more": [1]})
    assert (row["worker_id"], row["fence"], row["finished_at"], row["version"]) == (None, None, clock(), 3)
    assert inbox(store) == 0


def test_a_failed_attempt_waits_with_its_error_and_its_due_time(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending')")
    [held] = claim(store)
    finish(store, held, "reschedule", delay=60.0, error=BOOM)
    row = side.row()
    assert (row["status"], row["code"], row["message"]) == ("pending", "Boom", "it broke")
    assert row["run_at"] == clock() + timedelta(seconds=60)
    assert (row["retry_count"], row["worker_id"], row["finished_at"]) == (1, None, None)
    assert claim(store) == []
    clock.advance(61)
    [held] = claim(store)
    assert held.attempt == 2
    assert side.row()["message"] == "it broke"  # unchanged while it runs
    finish(store, held, "fail", error=BOOM)
    assert (side.row()["status"], side.row()["finished_at"]) == ("failed", clock())


@pytest.mark.parametrize(
    ("counting", "counts"),
    [
        ("at_claim", {"running": 1, "queued": 1, "succeeded": 2, "failed": 2}),
        ("at_failure", {"running": 0, "queued": 1, "succeeded": 1, "failed": 2}),
        ("at_recovery", {"running": 0, "queued": 1, "succeeded": 1, "failed": 1}),
    ],
)
def test_attempts_are_counted_as_the_table_counts_them(
    store: Store, side: Side, clock: Clock, counting: str, counts: dict[str, int]
) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')", counting=counting)
    claimed = claim(store)
    assert side.row(1)["retry_count"] == counts["running"]
    for held in claimed:
        finish(store, held, "reschedule", error=BOOM)
    assert side.row(1)["retry_count"] == counts["queued"]
    clock.advance(1)
    first, second = sorted(claim(store), key=lambda held: held.id)
    finish(store, first)
    finish(store, second, "fail", error=BOOM)
    assert side.row(1)["retry_count"] == counts["succeeded"]
    assert side.row(2)["retry_count"] == counts["failed"]


def test_a_state_without_a_word_is_written_as_its_stand_in(store: Store, side: Side) -> None:
    states = {state: word for state, word in STATES.items() if state not in ("paused", "cancelled")}
    adopt(store, side, "('a', 'pending'), ('b', 'pending')", states=states)
    store.operator.pause(job(store, 1).id)
    store.operator.cancel(job(store, 2).id)
    assert (side.row(1)["status"], side.row(2)["status"]) == ("pending", "failed")
    settle(store)
    assert [job(store, id).state for id in (1, 2)] == [State.PAUSED, State.CANCELLED]


def test_texts_are_cut_to_what_their_columns_hold(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    claim(store, worker="a-worker-with-a-rather-long-name")
    assert (side.row()["status"], side.row()["worker_id"]) == ("processing", "a-worker-with-a-rath")


def test_a_word_that_already_means_the_state_is_kept(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'again')", states=STATES | {"queued": ["pending", "again"]})
    store.operator.change(job(store, 1).id, priority=5)
    assert (side.row()["status"], side.row()["priority"]) == ("again", 5)
    [held] = claim(store)
    finish(store, held, "release")
    assert side.row()["status"] == "pending"


def test_what_people_do_with_jobs_shows_in_the_rows(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    id = job(store, 1).id
    store.operator.pause(id)
    assert side.row()["status"] == "paused"
    store.operator.resume(id)
    assert side.row()["status"] == "pending"
    store.operator.cancel(id)
    assert (side.row()["status"], side.row()["code"]) == ("cancelled", "CANCELLED")
    store.operator.retry(id)
    assert (side.row()["status"], side.row()["finished_at"], side.row()["retry_count"]) == ("pending", None, 0)


def test_a_result_that_does_not_fit_fails_that_job_alone(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    first, second = claim(store)
    returned = ((first, b'{"score": "not a number"}'), (second, b'{"score": 2}'))
    results = [Outcome("succeed", held.id, held.fence, result=result) for held, result in returned]
    with pytest.raises(ResultMisfit, match=r"result of job \d+ does not fit its row in audits: invalid input syntax"):
        store.exchange(results, None)
    assert {one.state for one in jobs(store)} == {State.RUNNING}  # all or none: the kernel narrows it down
    store.exchange(results[1:], None)
    assert side.row(int(job(store, 2).source_id or 0))["score"] == 2


def test_counts_are_written_to_a_second_table(store: Store, side: Side, clock: Clock) -> None:
    side.sql("create table {s}.crawls (id bigint primary key, status text)")
    side.sql("create table {s}.crawl_states (crawl_id bigint, total_pending integer default 0, seen integer)")
    side.sql("insert into {s}.crawls values (1, 'pending'), (2, 'pending')")
    side.sql("insert into {s}.crawl_states values (1)")
    counts = {"pending": "total_pending", "done": "seen", "table": f"{side.schema}.crawl_states", "id": "crawl_id"}
    store.adopted.install(side.mapping("crawls", counts=counts))
    first, second = claim(store, tasks=["crawls"])
    for held in (first, second):
        store.attempts.checkpoint(Ref(held.id, held.fence), b"{}", pending=5, done=3)
    assert side.sql("select * from {s}.crawl_states") == [(1, 5, 3)]
    finish(store, first)
    assert side.sql("select * from {s}.crawl_states") == [(1, 0, 3)]
    with side.connect() as other, other.transaction():
        side.sql("select * from {s}.crawl_states for update", on=other)
        side.sql("update {s}.crawls set status = 'pending' where id = 1")
        settle(store, "crawls")
        assert claim(store, tasks=["crawls"]) == []  # or others would take what its row says still waits
        assert side.row(1, "crawls")["status"] == "pending"
    clock.advance(1)
    [again] = claim(store, tasks=["crawls"])
    assert side.row(1, "crawls")["status"] == "processing"
    assert again.attempt == 1


# -- from the row to the job ---------------------------------------------------------------------------------------


def test_any_write_that_makes_a_row_wait_makes_a_job(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side)
    side.sql("insert into {s}.audits (url, run_at, priority, max_retries) values ('a', '2030-06-01Z', 7, 9)")
    side.sql("insert into {s}.audits (url, status) values ('b', 'draft'), ('c', 'completed'), ('d', 'paused')")
    settle(store)
    one, paused = job(store, 1), job(store, 4)
    assert (one.run_at, one.priority, one.max_attempts) == (datetime(2030, 6, 1, tzinfo=UTC), 7, 9)
    assert paused.state is State.PAUSED
    assert len(jobs(store)) == 2
    side.sql("update {s}.audits set status = 'pending' where url = 'b'")
    settle(store)
    assert job(store, 2).run_at == datetime(2026, 1, 1, tzinfo=UTC)  # it was created then
    side.sql("update {s}.audits set run_at = null, priority = 1, retry_count = 2 where id = 1")
    settle(store)
    assert (job(store, 1).run_at, job(store, 1).priority) == (clock(), 1)


def test_due_time_and_priority_of_a_paused_row_follow_whoever_changes_them(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    id = job(store, 1).id
    store.operator.pause(id)
    store.operator.change(id, priority=5)
    assert (side.row()["status"], side.row()["priority"]) == ("paused", 5)
    side.sql("update {s}.audits set priority = 7, run_at = '2030-06-01Z' where id = 1")
    settle(store)
    paused = job(store, 1)
    assert (paused.state, paused.priority, paused.run_at) == (State.PAUSED, 7, datetime(2030, 6, 1, tzinfo=UTC))
    store.operator.resume(id)
    assert (side.row()["priority"], side.row()["run_at"]) == (7, datetime(2030, 6, 1, tzinfo=UTC))


def test_a_finished_job_gets_another_life_when_its_row_waits_again(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    finish(store, claim(store)[0], "fail", error=BOOM)
    side.sql("update {s}.audits set status = 'pending', url = 'other' where id = 1")
    settle(store)
    again = job(store, 1)
    assert (again.state, again.life, again.attempt, again.error_code) == (State.QUEUED, 2, 1, None)
    side.sql("update {s}.audits set status = 'failed' where id = 1")
    settle(store)
    side.sql("update {s}.audits set status = 'pending', retry_count = 3 where id = 1")
    settle(store)
    assert job(store, 1).attempt == 0  # they are used up, and somebody wants it all the same
    [held] = claim(store)
    assert json.loads(held.args)["row"]["url"] == "other"


def test_arguments_are_the_rows_at_claim(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    side.sql("update {s}.audits set url = 'changed' where id = 2")
    assert [json.loads(held.args)["row"]["url"] for held in claim(store)] == ["a", "changed"]
    assert json.loads(job(store, 2).args)["row"]["url"] == "changed"


def test_a_word_outside_the_map_ends_what_nobody_holds(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    side.sql("update {s}.audits set status = 'draft'")
    settle(store)
    ended = job(store, 1)
    assert (ended.state, ended.error_message) == (State.CANCELLED, "its row says 'draft'")
    assert side.row()["status"] == "draft"


def test_a_deleted_row_cancels_its_job_or_asks_for_it(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    [held] = claim(store, 1)
    side.sql("delete from {s}.audits")
    settle(store)
    assert (job(store, 2).state, job(store, 2).error_message) == (State.CANCELLED, "its row was deleted")
    running = job(store, 1)
    assert (running.state, running.cancel_requested, running.asked_by) == (State.RUNNING, True, "audits")
    finish(store, held, "stop")
    settle(store)
    assert job(store, 1).state is State.CANCELLED
    assert inbox(store) == 0


def test_truncate_is_heard(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'paused')")
    side.sql("truncate {s}.audits")
    settle(store)
    assert {one.state for one in jobs(store)} == {State.CANCELLED}


def test_words_of_others_while_ours_holds_it_are_requests_or_overruled(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending'), ('c', 'pending')")
    held = claim(store)
    side.sql("update {s}.audits set status = (array['paused', 'cancelled', 'pending'])[id]")
    settle(store)
    first, second, third = (job(store, id) for id in (1, 2, 3))
    assert (first.pause_requested, first.cancel_requested, first.asked_by) == (True, False, "audits")
    assert (second.pause_requested, second.cancel_requested) == (False, True)
    assert second.asked_why == "its row says 'cancelled'"
    assert (third.state, side.row(3)["status"]) == (State.RUNNING, "processing")
    finish(store, held[0], "park")
    finish(store, held[1])  # it succeeded first
    settle(store)
    assert (side.row(1)["status"], side.row(2)["status"]) == ("paused", "completed")
    assert inbox(store) == 0


def test_a_request_that_nobody_saw_in_time_still_counts(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    [held] = claim(store)
    side.sql("update {s}.audits set status = 'cancelled'")
    finish(store, held, "reschedule", error=BOOM)
    settle(store)
    assert (job(store, 1).state, side.row()["status"]) == (State.CANCELLED, "cancelled")


@pytest.mark.parametrize(("word", "verb", "attempt"), [("paused", "park", 1), ("cancelled", "stop", 2)])
def test_who_takes_a_request_back_while_it_is_obeyed_has_the_last_word(
    store: Store, side: Side, word: str, verb: str, attempt: int
) -> None:
    adopt(store, side, "('a', 'pending')")
    [held] = claim(store)
    side.sql(f"update {{s}}.audits set status = '{word}'")
    settle(store)
    side.sql("update {s}.audits set status = 'pending', worker_id = null")
    finish(store, held, verb)
    settle(store)
    assert (job(store, 1).state, side.row()["status"]) == (State.QUEUED, "pending")
    assert inbox(store) == 0
    [again] = claim(store)
    assert (again.attempt, side.row()["retry_count"], side.row()["status"]) == (attempt, attempt, "processing")


@pytest.mark.parametrize("word", ["paused", "cancelled"])
def test_a_request_that_a_dead_worker_never_saw_frees_the_row(
    store: Store, side: Side, clock: Clock, word: str
) -> None:
    """Or people could never resume it: they wait until nobody holds it any more."""
    adopt(store, side, "('a', 'pending')")
    claim(store, lease=60)
    side.sql("update {s}.audits set status = %s", word)
    clock.advance(120)
    store.rescues.rescue()
    settle(store)
    row = side.row()
    assert (job(store, 1).state, row["status"], row["worker_id"], row["fence"]) == (State(word), word, None, None)
    assert inbox(store) == 0


def test_resuming_as_the_table_does_queues_the_job(store: Store, side: Side) -> None:
    adopt(store, side, "('a', 'pending')")
    store.operator.pause(job(store, 1).id)
    side.sql("update {s}.audits set status = 'processing'")  # nobody works it
    settle(store)
    assert (job(store, 1).state, side.row()["status"]) == (State.QUEUED, "pending")


# -- foreign workers -----------------------------------------------------------------------------------------------


def foreign_claim(side: Side, clock: Clock, id: int = 1) -> None:
    side.sql(
        "update {s}.audits set status = 'processing', worker_id = 'old', heartbeat = %s, retry_count = retry_count + 1 "
        "where id = %s", clock(), id,
    )  # fmt: skip


def test_a_foreign_worker_that_died_is_rescued_by_the_tables_rule(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending')")
    foreign_claim(side, clock)
    settle(store)
    running = job(store, 1)
    assert (running.state, running.worker, running.attempt) == (State.RUNNING, "foreign:audits:1", 1)
    assert claim(store) == []
    clock.advance(100)
    side.sql("update {s}.audits set heartbeat = %s", clock())
    clock.advance(100)
    assert store.rescues.rescue() == []  # its heartbeat was heard first
    store.adopted.beat("audits")
    clock.advance(21)
    [rescued] = store.rescues.rescue()
    assert rescued.worker == "foreign:audits:1"
    assert (side.row()["status"], side.row()["worker_id"], side.row()["retry_count"]) == ("pending", None, 1)
    assert [held.attempt for held in claim(store)] == [2]


def test_a_foreign_worker_that_finished_in_the_meantime_is_not_rescued(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    foreign_claim(side, clock)
    foreign_claim(side, clock, 2)
    settle(store)
    clock.advance(121)
    side.sql("update {s}.audits set status = 'completed' where id = 1")
    with side.connect() as other, other.transaction():
        side.sql("select * from {s}.audits where id = 2 for update", on=other)
        assert store.rescues.rescue() == []  # the one is done, the other can't be asked
    settle(store)
    assert job(store, 1).state is State.SUCCEEDED
    clock.advance(6)
    [rescued] = store.rescues.rescue()
    assert rescued.id == job(store, 2).id


def test_beats_reach_the_table_and_its_leases(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending')")
    [held] = claim(store, lease=1000.0)
    began = clock()
    clock.advance(11)
    store.adopted.beat("audits")
    assert side.row()["heartbeat"] == began  # young enough
    clock.advance(2)
    store.adopted.beat("audits")
    assert side.row()["heartbeat"] == clock()
    with side.connect() as other, other.transaction():
        side.sql("select * from {s}.audits for update", on=other)
        clock.advance(20)
        asked = time.monotonic()
        store.adopted.beat("audits")
        assert time.monotonic() - asked < 1  # nobody waits
    assert side.row()["heartbeat"] < clock()
    assert held.attempt == 1


@pytest.mark.parametrize("renew", [True, False])
def test_an_explicit_expiry_is_kept_and_cleared(store: Store, side: Side, clock: Clock, renew: bool) -> None:
    side.sql("create table {s}.docs (id uuid primary key, state text, until timestamp)")
    side.sql("insert into {s}.docs values (gen_random_uuid(), 'pending')")
    store.adopted.install(side.mapping("docs", status="state", lease_until="until", lease=120.0, renew=renew))
    [held] = claim(store, tasks=["docs"], lease=1000.0)
    began = clock().replace(tzinfo=None)
    minutes = timedelta(seconds=120)
    assert side.sql("select until from {s}.docs") == [(began + minutes,)]
    clock.advance(60)
    store.adopted.beat("docs")
    beaten = began + minutes + (timedelta(seconds=60) if renew else timedelta())
    assert side.sql("select until from {s}.docs") == [(beaten,)]
    finish(store, held)
    assert side.sql("select state, until from {s}.docs") == [("completed", None)]


# -- no trigger ----------------------------------------------------------------------------------------------------


def test_the_sweep_alone_converges(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, *[f"('{n}', 'pending')" for n in range(7)])
    claimed = claim(store, 2)
    side.sql("alter table {s}.audits disable trigger user")
    side.sql("update {s}.audits set status = (array['cancelled', 'completed', 'draft', 'failed'])[id] where id < 5")
    side.sql("update {s}.audits set priority = 9 where id = 5")
    side.sql("delete from {s}.audits where id = 7")
    side.sql("insert into {s}.audits (url) values ('new')")
    assert inbox(store) == 0
    after, strays = None, 0
    while True:
        swept = store.adopted.sweep("audits", after, 2)
        strays += swept.strays
        after = swept.reached
        if after is None:
            break
    assert strays == 7
    settle(store)
    assert job(store, 1).cancel_requested
    assert side.row(2)["status"] == "processing"  # one of ours holds it
    states = [job(store, id).state for id in (3, 4, 7, 8)]
    assert states == [State.CANCELLED, State.FAILED, State.CANCELLED, State.QUEUED]
    assert job(store, 5).priority == 9
    assert len(claimed) == 2


# -- submit, delete ------------------------------------------------------------------------------------------------


def test_submit_inserts_a_row_and_its_job_in_one_transaction(store: Store, side: Side) -> None:
    mapping = adopt(store, side)
    id, job_ = store.adopted.submit(mapping, {"url": "a", "report": {"so": "far"}})
    assert (job_.created, job(store, id).id) == (True, job_.id)
    assert side.row(int(id))["report"] == {"so": "far"}
    with side.connect() as other, other.transaction(force_rollback=True):
        store.adopted.submit(mapping, {"url": "b"}, conn=other)
    assert len(jobs(store)) == 1
    assert side.sql("select count(*) from {s}.audits") == [(1,)]
    with pytest.raises(BadArguments, match="audits has no column 'uri' \\(perhaps 'url'\\)"):
        store.adopted.submit(mapping, {"uri": "b"})


def test_submit_notices_that_a_column_was_renamed(store: Store, side: Side) -> None:
    mapping = adopt(store, side)
    store.adopted.submit(mapping, {"url": "a"})
    side.sql("alter table {s}.audits rename url to address")
    with pytest.raises(BadArguments, match="audits has no column 'url'"):
        store.adopted.submit(mapping, {"url": "a"})
    with pytest.raises(Refused, match="HF1167"):  # until it is adopted again
        store.adopted.submit(mapping, {"address": "a"})
    store.adopted.install(mapping)
    assert store.adopted.submit(mapping, {"address": "a"})[1].created


def test_submit_with_a_key_returns_the_job_that_has_it(store: Store, side: Side) -> None:
    side.sql("create table {s}.keyed (id serial primary key, status text, hash text unique)")
    mapping = side.mapping("keyed", key="hash")
    store.adopted.install(mapping)
    first = store.adopted.submit(mapping, {"hash": "x"})
    second = store.adopted.submit(mapping, {"hash": "x"})
    assert (first[1].created, second[1].created) == (True, False)
    assert (first[0], first[1].id) == (second[0], second[1].id)
    assert job(store, first[0], "keyed").key == "x"


def test_a_job_whose_row_waits_can_not_be_deleted(store: Store, side: Side, clock: Clock) -> None:
    adopt(store, side, "('a', 'pending'), ('b', 'pending')")
    waiting = job(store, 1).id
    [held] = claim(store, 1)
    with side.connect() as other, other.transaction():
        side.sql("select * from {s}.audits for update", on=other)
        finish(store, held)
        assert delete(store, str(held.id)) == 0  # its row has not heard of it
        clock.advance(1000)
        assert store.retention.purge(0, finished=10, failed=10)[0] == 0
    assert delete(store, job(store, 2).id) == 0
    settle(store)
    assert delete(store, waiting) == 1
    after = None
    while (after := store.adopted.sweep("audits", after).reached) is not None:
        pass
    settle(store)
    assert len(jobs(store)) == 1  # a finished word without a job is nothing to do


def delete(store: Store, id: str) -> int:
    with store.db.transaction() as tx:
        return len(tx.rows("delete", ids=[int(id)], unfinished=True))


def test_what_rows_hold_arrives_as_type_hints_read_it(store: Store, side: Side) -> None:
    side.sql(
        "create table {s}.kinds (id text primary key, status text, u uuid, d numeric(5,2), t timestamptz, n timestamp, "
        "b bytea, j jsonb, f float8, y boolean, a text[])"
    )
    side.sql(
        "insert into {s}.kinds values ('x', 'pending', '00000000-0000-0000-0000-000000000001', 1.50, "
        "'2026-01-01 02:00+02', '2026-01-01 00:00', decode(repeat('ab', 60), 'hex'), '[1]', 0.5, true, '{p,q}')"
    )
    store.adopted.install(side.mapping("kinds"))
    [held] = claim(store, tasks=["kinds"])
    row: dict[str, Any] = json.loads(held.args)["row"]
    assert "\n" not in row.pop("b")
    assert row == {
        "id": "x", "u": "00000000-0000-0000-0000-000000000001", "d": "1.50", "t": "2026-01-01T00:00:00+00:00",
        "n": "2026-01-01T00:00:00+00:00", "j": [1], "f": 0.5, "y": True, "a": ["p", "q"],
    }  # fmt: skip
