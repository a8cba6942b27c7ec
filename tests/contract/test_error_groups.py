"""What failed for one reason is one group: it is stored with the outcome, listed, found by a filter and retried."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from holdfast.model.filter import parse
from holdfast.model.job import Changed, ErrorGroup
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Crash, Error
from holdfast.store import reads
from holdfast.store.base import Store
from tests.contract.places import raw
from tests.factories import BOOM, HOUR, LEASE, MINUTE, Clock, a_queued_job, a_running_job, claim, ref

AWAY = Error("OSError", "can't reach 10.0.0.7", place="shop.fetch")


def kind_of(store: Store, id: object) -> str | None:
    return store.reads.get(str(id)).error_fingerprint


def a_failed_job(store: Store, error: Error = BOOM, task: str = "greet") -> str:
    held = a_running_job(store, task=task)
    store.attempts.fail(ref(held), error)
    return str(held.id)


def groups(store: Store, text: str = "") -> list[ErrorGroup]:
    return store.reads.error_groups(parse(text))


# -- when it is written ------------------------------------------------------------------------------------------------


def test_a_failed_attempt_leaves_the_fingerprint_of_its_error_until_the_job_succeeds(
    store: Store, clock: Clock
) -> None:
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), 5, AWAY)
    assert kind_of(store, held.id) == AWAY.fingerprint
    clock.advance(6)
    [held] = claim(store).jobs
    assert kind_of(store, held.id) == AWAY.fingerprint
    store.attempts.succeed(ref(held), b"1")
    assert kind_of(store, held.id) is None
    plain = a_running_job(store)
    store.attempts.reschedule(ref(plain), 0, AWAY)
    [plain] = claim(store).jobs
    store.attempts.succeed(ref(plain))
    assert kind_of(store, plain.id) is None


def test_a_failed_job_keeps_it_until_it_is_retried_or_dismissed(store: Store) -> None:
    failed = a_failed_job(store, AWAY)
    assert kind_of(store, failed) == AWAY.fingerprint
    store.operator.retry(failed)
    assert kind_of(store, failed) is None
    [held] = claim(store).jobs
    store.attempts.fail(ref(held), AWAY)
    store.operator.cancel(failed)
    assert kind_of(store, failed) is None


@pytest.mark.parametrize("verb", ["fail", "reschedule", "stop", "park", "release"])
def test_a_cancelled_job_has_none(store: Store, verb: str) -> None:
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), 0, AWAY)
    [held] = claim(store).jobs
    store.operator.cancel(str(held.id))
    assert kind_of(store, held.id) == AWAY.fingerprint, "it runs still"
    told = {"fail": (BOOM,), "reschedule": (0.0, BOOM)}.get(verb, ())
    getattr(store.attempts, verb)(ref(held), *told)
    job = store.reads.get(str(held.id))
    assert (job.state, job.error_fingerprint) == (State.CANCELLED, None)


def test_a_job_given_back_keeps_the_fingerprint_of_its_last_error(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), 0, AWAY)
    [held] = claim(store).jobs
    store.attempts.release(ref(held))
    assert kind_of(store, held.id) == AWAY.fingerprint


def test_a_crash_and_a_silent_worker_leave_one_by_task(store: Store, clock: Clock) -> None:
    found = []
    for task in ("greet", "greet", "scan"):
        held = a_running_job(store, task=task)
        store.rescues.crashed([(ref(held), Crash("its process died", company=False))], "w1", quarantine_after=1)
        assert store.reads.get(str(held.id)).state is State.FAILED
        found.append(kind_of(store, held.id))
    assert found[0] == found[1] != found[2]
    assert None not in found
    silent = a_running_job(store, max_attempts=1)
    clock.advance(LEASE + 1)
    assert store.rescues.rescue()
    assert kind_of(store, silent.id) not in (None, *found)


def test_a_rescued_job_that_was_to_be_cancelled_has_none(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    store.operator.cancel(str(held.id))
    clock.advance(LEASE + 1)
    assert store.rescues.rescue()
    job = store.reads.get(str(held.id))
    assert (job.state, job.error_fingerprint) == (State.CANCELLED, None)


# -- groups ------------------------------------------------------------------------------------------------------------


def test_failed_jobs_are_grouped_by_their_error_the_largest_group_first(store: Store, clock: Clock) -> None:
    boom = a_failed_job(store)
    first = clock.now + timedelta(minutes=1)
    for n, task in enumerate(("scan", "fetch", "scan")):
        clock.advance(MINUTE)
        newest = a_failed_job(store, replace(AWAY, message=f"can't reach 10.0.0.{n}"), task)
    a_queued_job(store)
    away, other = groups(store)
    assert away == ErrorGroup(
        id=AWAY.fingerprint, jobs=3, tasks=("fetch", "scan"), first_at=first, last_at=clock.now, error_code="OSError",
        error_message="can't reach 10.0.0.2", example=newest,
    )  # fmt: skip
    assert (other.id, other.jobs, other.example) == (BOOM.fingerprint, 1, boom)
    assert store.reads.error_groups(limit=1) == [away]


def test_a_filter_narrows_groups_and_counts_alike(store: Store, clock: Clock) -> None:
    ids = []
    for n in range(5):
        ids.append(a_failed_job(store, AWAY, "scan" if n % 2 else "fetch"))
        clock.advance(MINUTE)
    assert [group.jobs for group in groups(store, f"id:{ids[0]},{ids[1]},999")] == [2]
    assert [group.jobs for group in groups(store, "task:fetch")] == [3]
    [all_of_them] = groups(store, "since:1d")
    assert [all_of_them] == groups(store)
    assert groups(store, "task:none") == []
    assert groups(store, "state:retrying") == []


def test_jobs_that_are_tried_again_can_be_grouped_too(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), MINUTE, AWAY)
    assert groups(store) == []
    [group] = groups(store, "state:retrying")
    assert (group.id, group.jobs, group.example) == (AWAY.fingerprint, 1, str(held.id))


def test_a_group_is_a_word_of_the_filter(store: Store, clock: Clock) -> None:
    boom, away = a_failed_job(store), a_failed_job(store, AWAY)
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), MINUTE, AWAY)
    for text, ids in {
        f"group:{BOOM.fingerprint}": [boom],
        f"group:{AWAY.fingerprint}": [str(held.id), away],
        f"group:{AWAY.fingerprint} state:failed": [away],
        f"group:{AWAY.fingerprint},{BOOM.fingerprint}": [str(held.id), away, boom],
        f"group:{AWAY.fingerprint} task:none": [],
        "group:0000000000": [],
    }.items():
        assert [job.id for job in store.reads.jobs(parse(text))] == ids, text


def test_a_group_larger_than_a_page_looks_through_is_found_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [a_failed_job(store, AWAY) for _ in range(4)]
    monkeypatch.setattr(reads, "INDEXED", 3)
    text = f"group:{AWAY.fingerprint}"
    assert [job.id for job in store.reads.jobs(parse(text))] == ids[::-1]
    assert store.operator.bulk("retry", parse(text)) == Changed(4, 0, 0)


# -- retried, some and slowly ------------------------------------------------------------------------------------------


def due_in(store: Store, clock: Clock, ids: list[str]) -> list[float]:
    return [(store.reads.get(id).run_at - clock.now).total_seconds() for id in ids]


def test_the_oldest_are_retried_evenly_over_a_time(store: Store, clock: Clock) -> None:
    ids = [a_failed_job(store, AWAY) for _ in range(6)]
    clock.advance(MINUTE)
    group = parse(f"group:{AWAY.fingerprint}")
    assert store.operator.bulk_some("retry", group, limit=4, spread=10 * MINUTE) == Changed(4, 0, 0)
    assert due_in(store, clock, ids[:4]) == [0, 150, 300, 450]
    assert [job.id for job in store.reads.jobs(parse("state:failed"))] == ids[:3:-1]
    assert [str(job.id) for job in claim(store, 9).jobs] == ids[:1]
    clock.advance(150)
    assert [str(job.id) for job in claim(store, 9).jobs] == ids[1:2]
    assert store.operator.bulk_some("retry", group, limit=None, spread=0.0) == Changed(2, 0, 0)


def test_only_jobs_that_can_be_retried_count_towards_the_limit(store: Store) -> None:
    waits = a_queued_job(store, task="other")
    ids = [a_failed_job(store) for _ in range(3)]
    assert store.operator.bulk_some("retry", parse("queue:default"), limit=2, spread=0.0) == Changed(2, 1, 0)
    assert [job.id for job in store.reads.jobs(parse("state:failed"))] == ids[2:]
    assert store.operator.bulk_some("retry", parse("state:queued"), limit=2, spread=0.0) == Changed(0, 3, 0)
    assert store.reads.get(waits).state is State.QUEUED


def test_jobs_are_retried_into_another_queue(store: Store, clock: Clock) -> None:
    ids = [a_failed_job(store) for _ in range(5)]
    store.operator.retry(ids[0], queue="slow")
    assert store.operator.bulk_some("retry", parse("state:failed"), limit=2, spread=60.0, queue="slow").changed == 2
    assert store.operator.bulk("retry", parse("state:failed"), queue="slow").changed == 2
    assert claim(store, 9, queues=["default"]).jobs == []
    assert due_in(store, clock, ids) == [0, 0, 30, 0, 0]
    assert [str(job.id) for job in claim(store, 9, queues=["slow"]).jobs] == [ids[0], ids[1], *ids[3:]]
    assert store.audit.all(limit=1)[0].parameters == {"queue": "slow"}


def test_only_the_oldest_are_cancelled(store: Store) -> None:
    done = a_failed_job(store)
    store.operator.cancel(done)
    ids = [a_queued_job(store) for _ in range(3)]
    assert store.operator.bulk_some("cancel", parse("queue:default"), "twice", "ops", limit=2) == Changed(2, 1, 0)
    assert [store.reads.get(id).state for id in ids] == [State.CANCELLED, State.CANCELLED, State.QUEUED]
    recorded = store.audit.all(limit=1)[0]
    assert (recorded.verb, recorded.by, recorded.parameters) == ("cancel", "ops", {"limit": 2})


@pytest.mark.parametrize("filter", ["queue:default", "state:queued,failed", "state:scheduled,failed", "id:1,2,3,99"])
def test_a_spread_retry_counts_what_it_refused_as_any_retry_does(store: Store, filter: str) -> None:
    def scene() -> None:
        store.operator.bulk("cancel", parse("task:greet,other"))
        store.operator.bulk("delete", parse("task:greet,other"), unfinished=True)
        for _ in range(2):
            a_failed_job(store)
        a_queued_job(store, task="other")
        a_queued_job(store, task="other", delay=HOUR)

    scene()
    wanted = parse(filter.replace("1,2,3", ",".join(job.id for job in store.reads.jobs())))
    spread = store.operator.bulk_some("retry", wanted, limit=None, spread=60.0)
    recorded = store.audit.all(limit=1)[0]
    assert (recorded.changed, recorded.refused) == (spread.changed, spread.refused)
    scene()
    wanted = parse(filter.replace("1,2,3", ",".join(job.id for job in store.reads.jobs())))
    assert store.operator.bulk("retry", wanted) == spread


def test_many_jobs_share_few_instants(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.store import bulk_calls

    monkeypatch.setattr(bulk_calls, "STEPS", 4)
    monkeypatch.setattr(bulk_calls, "CHUNK", 3)
    ids = [a_failed_job(store) for _ in range(8)]
    assert store.operator.bulk_some("retry", parse("state:failed"), limit=None, spread=40.0) == Changed(8, 0, 0)
    assert due_in(store, clock, ids) == [0, 0, 10, 10, 20, 20, 30, 30]


def test_a_job_that_was_failed_by_hand_is_in_no_group(store: Store) -> None:
    failed = a_failed_job(store)
    with raw(store.db.settings) as sql:  # type: ignore[attr-defined]
        sql("update {jobs} set error_fingerprint = null")
    assert groups(store) == groups(store, "since:1d") == []
    assert [job.id for job in store.reads.jobs(parse("state:failed"))] == [failed]
