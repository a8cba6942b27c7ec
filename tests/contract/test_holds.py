"""Pauses by filter: what they mean is held, whenever it comes, and goes on in its old order when they end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from holdfast import events
from holdfast.errors import RowLocked, StoreError
from holdfast.model.filter import parse
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import pauses as filter_pauses
from holdfast.store.base import Store
from holdfast.store.why import why
from holdfast.worker.intake import FilterPauses
from tests.contract.places import PEOPLES_VERBS, at_once, raw
from tests.factories import (
    BOOM,
    HOUR,
    LEASE,
    MINUTE,
    Clock,
    a_queued_job,
    a_running_job,
    claim,
    claim_as_a_desk,
    new_job,
    ref,
    wants,
)

CUSTOMER = "args.customer:42"
THEIRS, OTHERS = b'{"customer":42}', b'{"customer":7}'


def hold(store: Store, filter: str = CUSTOMER, **options: Any) -> int | None:
    return store.pauses.add("filter", filter, **options).jobs


def claimed(store: Store, limit: int = 9, **options: Any) -> list[str]:
    return [str(job.id) for job in claim_as_a_desk(store, wants(limit, **options))[1]]


def is_held(store: Store, *ids: str) -> list[bool]:
    return [store.reads.get(id).held_by is not None for id in ids]


def test_what_waits_is_set_aside_and_others_are_not_disturbed(store: Store) -> None:
    theirs = [a_queued_job(store, args=THEIRS, priority=n) for n in (0, 5)]
    text = a_queued_job(store, args=b'{"customer":"42"}')
    other, none = a_queued_job(store, args=OTHERS), a_queued_job(store)
    assert hold(store) == 3
    for id in (*theirs, text):
        job = store.reads.get(id)
        assert (job.state, job.held_by, job.attempt) == (State.QUEUED, f"pause:{CUSTOMER}", 0)
    assert claimed(store) == [other, none]
    assert claimed(store) == []


@pytest.mark.parametrize("told", [(), (("default", "greet", 0),)])
def test_what_comes_later_is_claimed_and_given_back_as_held(
    store: Store, told: tuple[tuple[str, str, int], ...]
) -> None:
    hold(store)
    first, other, last = (a_queued_job(store, args=args) for args in (THEIRS, OTHERS, THEIRS))
    _, free = claim_as_a_desk(store, wants(9, told=told))
    assert [str(job.id) for job in free] == [other]
    assert is_held(store, first, other, last) == [True, False, True]
    again = claim(store, 9, told=told)
    assert (again.jobs, again.passed, again.more) == ([], False, False)
    assert store.reads.get(first).attempt == 0
    assert store.reads.attempts(first) == []


def test_a_filter_means_a_task_and_a_queue_too(store: Store) -> None:
    place = {"args": THEIRS, "task": "sync", "queue": "mail"}
    ids = [a_queued_job(store, **place | change) for change in ({}, {"task": "other"}, {"queue": "news"})]
    hold(store, f"task:sync queue:mail {CUSTOMER}")
    tasks = ("sync", "other")
    assert sorted(claimed(store, tasks=tasks)) == ids[1:]
    ids = [a_queued_job(store, **place | change) for change in ({}, {"task": "other"}, {"queue": "news"})]
    assert sorted(claimed(store, tasks=tasks)) == ids[1:]


def test_every_argument_of_the_filter_must_match_at_any_depth(store: Store) -> None:
    whole, part = a_queued_job(store, args=b'{"user":{"id":5},"dry":true}'), a_queued_job(store, args=b'{"dry":true}')
    hold(store, "args.user.id:5 args.dry:true")
    assert claimed(store) == [part]
    assert is_held(store, whole) == [True]


@pytest.mark.parametrize("text", [b"\\u0000", b"\\ud800"], ids=["NUL", "half a character"])
@pytest.mark.parametrize("first", [True, False])
def test_arguments_that_hold_what_no_text_can_are_in_nobodys_way(store: Store, text: bytes, first: bool) -> None:
    if not first:
        hold(store)
    odd = a_queued_job(store, args=b'{"x":"%s","customer":42}' % text)
    theirs, other = a_queued_job(store, args=THEIRS), a_queued_job(store, args=OTHERS)
    if first:
        hold(store)
    assert other in claimed(store)
    assert is_held(store, theirs) == [True]
    assert found_ids(store, CUSTOMER, not_of=odd) == [theirs]


def found_ids(store: Store, filter: str, *, not_of: str) -> list[str]:
    return [job.id for job in store.reads.jobs(parse(filter)) if job.id != not_of]


def test_retried_rescheduled_resumed_released_and_rescued_jobs_are_caught(store: Store, clock: Clock) -> None:
    retried, rescheduled, released, resumed, rescued = (
        a_running_job(store, args=THEIRS, worker=f"w{n}", lease=LEASE if n == 4 else HOUR) for n in range(5)
    )
    store.attempts.fail(ref(retried), BOOM)
    hold(store)
    store.operator.retry(str(retried.id))
    store.attempts.reschedule(ref(rescheduled), 0, BOOM)
    store.attempts.release(ref(released))
    store.operator.pause(str(resumed.id))
    store.attempts.park(ref(resumed))
    store.operator.resume(str(resumed.id))
    clock.advance(LEASE + 1)
    assert [job.id for job in store.rescues.rescue()] == [str(rescued.id)]
    ids = [str(held.id) for held in (retried, rescheduled, released, resumed, rescued)]
    assert is_held(store, *ids) == [False] * 5
    assert claimed(store) == []
    assert is_held(store, *ids) == [True] * 5
    assert [store.reads.get(id).attempt for id in ids] == [0, 1, 0, 0, 1]  # charged for what they had run, no more


def test_what_runs_goes_on(store: Store) -> None:
    held = a_running_job(store, args=THEIRS)
    assert hold(store) == 0
    store.attempts.checkpoint(ref(held), b"1")
    store.attempts.succeed(ref(held))
    assert store.reads.get(str(held.id)).state is State.SUCCEEDED


def test_when_it_is_ended_they_go_on_in_their_old_order(store: Store, clock: Clock) -> None:
    ids = []
    for n in range(6):
        ids.append(a_queued_job(store, args=THEIRS if n % 2 else OTHERS, priority=n == 3))
        clock.advance(1)
    later = a_queued_job(store, args=THEIRS, delay=HOUR)
    hold(store)
    assert is_held(store, later) == [True]
    assert store.pauses.drop("filter", CUSTOMER)
    assert not store.pauses.drop("filter", CUSTOMER)
    assert claimed(store) == [ids[3], ids[0], ids[1], ids[2], ids[4], ids[5]]
    assert claim(store).next_due == pytest.approx(HOUR - 6, abs=7)


def test_it_ends_by_itself(store: Store, clock: Clock) -> None:
    id = a_queued_job(store, args=THEIRS)
    hold(store, delay=MINUTE)
    look = store.look("w1", ["greet"], None)
    assert (look.filter_pauses, look.ended_holds) == (True, False)
    assert look.next_pause_end == pytest.approx(MINUTE)
    assert claim(store).next_due == pytest.approx(MINUTE)
    assert store.pauses.let_go() == 0
    clock.advance(MINUTE + 1)
    look = store.look("w1", ["greet"], None)
    assert (look.filter_pauses, look.ended_holds, look.next_pause_end) == (False, True, None)
    assert store.pauses.let_go() == 1
    assert claimed(store) == [id]


def test_it_frees_them_even_if_its_row_vanished(store: Store, settings: Settings) -> None:
    id = a_queued_job(store, args=THEIRS)
    hold(store)
    with raw(settings) as sql:
        sql("delete from {pauses}")
    assert store.look("w1", ["greet"], None).ended_holds
    assert store.pauses.let_go() == 1
    assert not store.look("w1", ["greet"], None).ended_holds
    assert claimed(store) == [id]


def test_what_another_pause_means_too_stays_aside(store: Store) -> None:
    both, one = a_queued_job(store, args=b'{"customer":42,"dry":true}'), a_queued_job(store, args=THEIRS)
    hold(store)
    hold(store, "args.dry:true")
    store.pauses.drop("filter", CUSTOMER)
    assert store.reads.get(both).held_by == "pause:args.dry:true"
    assert claimed(store) == [one]
    store.pauses.drop("filter", "args.dry:true")
    assert claimed(store) == [both]


def test_many_are_set_aside_and_let_go_in_bounded_batches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_pauses, "PAGE", 7)
    monkeypatch.setattr(filter_pauses, "CHUNK", 5)
    jobs = [new_job(args=THEIRS if n % 3 else OTHERS, priority=n % 2) for n in range(60)]
    ids = [done.id for chunk in store.enqueue_many(jobs) for done in chunk]
    assert hold(store) == 40
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_pauses, "CHUNK", 15)
        store.pauses.add("filter", CUSTOMER, delay=-1)
        assert [store.pauses.let_go() for _ in range(4)] == [15, 15, 10, 0]
    assert sorted(claimed(store, 100), key=int) == ids


def test_a_flood_that_comes_later_is_cleared_from_the_heads_of_lanes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filter_pauses, "PAGE", 10)
    hold(store)
    for _ in store.enqueue_many(new_job(args=THEIRS) for _ in range(95)):
        pass
    due = a_queued_job(store)
    assert store.pauses.hold_heads(40) == 40
    assert store.pauses.hold_heads() == 55
    assert claimed(store) == [due]


def test_expiry_counts_while_set_aside(store: Store, clock: Clock) -> None:
    id = a_queued_job(store, args=THEIRS, expires_in=MINUTE)
    hold(store)
    clock.advance(MINUTE + 1)
    assert store.look("w1", ["greet"], None).expired_jobs
    assert [str(row["id"]) for row in store.retention.expire()] == [id]
    assert (store.reads.get(id).state, store.reads.get(id).error_code) == (State.CANCELLED, "EXPIRED")


@pytest.mark.parametrize("verb", PEOPLES_VERBS)
def test_people_steer_what_is_set_aside_like_any_queued_job(store: Store, verb: str) -> None:
    plain, aside = a_queued_job(store), a_queued_job(store, args=THEIRS)
    hold(store)

    def outcome(id: str) -> str:
        try:
            return str(PEOPLES_VERBS[verb](store, id))
        except StoreError:
            raise
        except Exception as refused:  # noqa: BLE001 - which one is compared
            return str(refused).replace(f"job {id}", "it")

    assert outcome(aside) == outcome(plain)
    if verb in ("pause", "cancel"):
        assert is_held(store, aside) == [False]
    elif verb != "delete":
        assert is_held(store, aside) == [True]
        store.pauses.drop("filter", CUSTOMER)
        assert sorted(claimed(store)) == [plain, aside]


def test_a_changed_due_time_and_priority_hold_when_it_is_let_go(store: Store, clock: Clock) -> None:
    first, second = (a_queued_job(store, args=THEIRS) for _ in range(2))
    hold(store)
    store.operator.change(second, priority=9)
    store.operator.change(first, delay=HOUR)
    store.pauses.drop("filter", CUSTOMER)
    found = claim(store, 9)
    assert [str(job.id) for job in found.jobs] == [second]
    assert store.reads.get(first).run_at == clock.now + timedelta(hours=1)
    assert found.next_due == pytest.approx(HOUR)


def test_nothing_is_queued_that_can_never_be_claimed(store: Store, settings: Settings) -> None:
    id = a_queued_job(store, args=THEIRS)
    hold(store)
    for change in ("held_by = null", "state = 'paused'", "ready_at = run_at"):
        with pytest.raises(Exception, match=r"(?i)check"), raw(settings) as sql:
            sql(f"update {{jobs}} set {change} where id = ?", int(id))
    with pytest.raises(Exception, match=r"(?i)check"), raw(settings) as sql:
        sql("update {jobs} set ready_at = null, held_by = null where id = ?", int(id))
    assert is_held(store, id) == [True]


def test_pauses_tell_how_many_jobs_a_filter_holds(store: Store, clock: Clock) -> None:
    for _ in range(3):
        a_queued_job(store, args=THEIRS)
    hold(store, by="ana", reason="their API is down", delay=HOUR)
    store.pauses.add("queue", "mail")
    filter, queue = store.pauses.all()
    assert (filter.kind, filter.name, filter.by, filter.reason, filter.jobs) == (
        "filter", CUSTOMER, "ana", "their API is down", 3,
    )  # fmt: skip
    assert filter.until == clock.now + timedelta(hours=1)
    assert queue.jobs is None


def test_events_tell_of_it(store: Store) -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    done = events.subscribe(lambda name, fields: heard.append((name, fields)))
    try:
        a_queued_job(store, args=THEIRS)
        hold(store, by="ana", reason="a bug")
        store.pauses.drop("filter", CUSTOMER)
    finally:
        done()
    told = [(name, fields) for name, fields in heard if name in ("held", "freed", "let_go")]
    assert told == [
        ("held", {"kind": "filter", "name": CUSTOMER, "by": "ana", "reason": "a bug"}),
        ("freed", {"count": 1}),
        ("let_go", {"kind": "filter", "name": CUSTOMER}),
    ]


def test_once_it_stands_no_claim_takes_what_it_means(stores: Callable[..., Store]) -> None:
    """Claims, a flood of jobs and the pause at once: whatever was taken was taken before hold() returned."""
    store = stores()
    store.schema.migrate()
    taken: list[list[str]] = [[], []]
    stands = False
    after: list[str] = []

    def work(number: int) -> None:
        nonlocal stands
        mine = stores()
        pauses = FilterPauses(mine)
        if number == 0:
            for n in range(60):
                for _ in mine.enqueue_many(new_job(args=OTHERS if k % 4 else THEIRS) for k in range(20)):
                    pass
                if n == 30:
                    hold(mine)
                    stands = True
            return
        while True:
            late = stands
            found, free = claim_as_a_desk(mine, wants(7, worker=f"w{number}"), pauses)
            theirs = [str(job.id) for job in free if job.args == THEIRS]
            taken[number - 1] += [str(job.id) for job in free]
            if late:
                after.extend(theirs)
                if not found.jobs and not found.passed and not found.more and len(store.reads.jobs(limit=2000)) == 1200:
                    return

    at_once(3, work)
    assert after == []
    assert len({*taken[0], *taken[1]}) == len(taken[0]) + len(taken[1])
    aside = [job.id for job in store.reads.jobs(state="queued", limit=2000)]
    assert len(aside) + len(taken[0]) + len(taken[1]) == 1200
    assert all(store.reads.get(id).held_by for id in aside[:5])
    store.pauses.drop("filter", CUSTOMER)
    while store.pauses.let_go():
        pass
    assert len(claimed(store, 2000)) == len(aside)


def test_a_claim_under_way_is_waited_for(settings: Settings, stores: Callable[..., Store], engine: str) -> None:
    if engine == "sqlite":
        pytest.skip("SQLite has one writer: nothing is under way while it writes")
    store = stores()
    store.schema.migrate()
    id = a_queued_job(store, args=THEIRS)
    with psycopg.connect(settings.url) as other:
        other.execute(f'select 1 from "{settings.schema}".jobs where id = %s for update'.encode(), (int(id),))
        with pytest.raises(RowLocked, match=r"HF3004 the pause stands, .* could not all be set aside"):
            hold(store)
    assert claimed(store) == []  # it was caught all the same
    assert is_held(store, id) == [True]


def test_a_worker_that_dies_before_it_gives_them_back_loses_nothing(store: Store, clock: Clock) -> None:
    hold(store)
    id = a_queued_job(store, args=THEIRS)
    assert [str(job.id) for job in claim(store, worker="w1").jobs] == [id]
    clock.advance(LEASE + 1)
    assert [job.id for job in store.rescues.rescue()] == [id]
    assert claimed(store) == []
    assert is_held(store, id) == [True]
    store.pauses.drop("filter", CUSTOMER)
    assert claimed(store) == [id]


def test_what_is_given_back_as_held_after_the_pause_has_ended_is_ready_again(store: Store, clock: Clock) -> None:
    hold(store, delay=MINUTE)
    id = a_queued_job(store, args=THEIRS)
    found = claim(store)
    free, held = FilterPauses(store).split(found.jobs, found.filter_version)
    assert (free, [outcome.held_by for outcome in held]) == ([], [f"pause:{CUSTOMER}"])
    clock.advance(MINUTE)
    assert store.exchange(held, None).requeued == {"default"}
    assert is_held(store, id) == [False]
    assert claimed(store) == [id]


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_what_was_asked_of_a_claimed_job_comes_before_the_hold(store: Store, verb: str) -> None:
    hold(store)
    id = a_queued_job(store, args=THEIRS)
    found = claim(store)
    getattr(store.operator, verb)(id)
    _, held = FilterPauses(store).split(found.jobs, found.filter_version)
    assert not store.exchange(held, None).requeued
    job = store.reads.get(id)
    assert (job.state, job.held_by, job.attempt) == (State.PAUSED if verb == "pause" else State.CANCELLED, None, 0)


def test_a_desk_reads_the_pauses_when_their_version_has_changed_and_not_before(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    read = store.db.read

    def noting(name: str, /, **parameters: Any) -> Any:
        names.append(name)
        return read(name, **parameters)

    monkeypatch.setattr(store.db, "read", noting)
    pauses = FilterPauses(store)

    def reads() -> bool:
        names.clear()
        a_queued_job(store, args=OTHERS)
        assert len(claim_as_a_desk(store, wants(9), pauses)[1]) == 1
        return "standing_filters" in names

    assert not reads()
    hold(store)
    assert (reads(), reads()) == (True, False)
    store.pauses.drop("filter", CUSTOMER)
    assert (reads(), reads()) == (True, False)


def test_a_desk_does_not_go_by_a_pause_that_was_deleted_by_hand(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.worker.intake.TRUSTED", 0.0)
    pauses = FilterPauses(store)
    hold(store)
    a_queued_job(store, args=THEIRS)
    assert claim_as_a_desk(store, wants(9), pauses)[1] == []
    with raw(settings) as sql:
        sql("delete from {pauses}")
    id = a_queued_job(store, args=THEIRS)
    assert [str(job.id) for job in claim_as_a_desk(store, wants(9), pauses)[1]] == [id]


@pytest.mark.parametrize("unknown", ["args", "state:failed", "", "args.:1"])
def test_a_pause_whose_name_is_no_filter_means_nothing(store: Store, settings: Settings, unknown: str) -> None:
    with raw(settings) as sql:
        sql("insert into {pauses} (kind, name, created_at) values ('filter', ?, '2030-01-01 00:00:00')", unknown)
        sql("update {meta} set filter_version = 7")
    id = a_queued_job(store, args=THEIRS)
    assert claimed(store) == [id]
    assert why(store, id)


VALUES = [
    b"42", b'"42"', b"42.0", b"4.2e1", b"null", b"true", b'"true"', b'""', b'"a b"', b'"\\u00e4"', '"ä"'.encode(),
    b'{"id": 42}', b'{"id": {"id": "42"}}', b"[42]", b'"x\\"y"',
]  # fmt: skip
FILTERS = [
    "args.a:42", "args.a:null", "args.a:true", 'args.a:"a b"', "args.a:ä", "args.a.id:42", "args.a.id.id:42",
    "args.b:42", 'args.a:"x\\"y"', "args.a:42 args.b:42", "queue:other args.a:42", "task:greet queue:default args.a:42",
]  # fmt: skip


@pytest.mark.parametrize("filter", FILTERS)
def test_a_pause_means_the_jobs_that_a_list_with_its_filter_shows(store: Store, filter: str) -> None:
    for value in VALUES:
        a_queued_job(store, args=b'{"a":%s}' % value)
        a_queued_job(store, args=b'{ "b" : 42 , "a" : %s }' % value)
    listed = {job.id for job in store.reads.jobs(parse(filter), limit=100)}
    if filter == "args.a:ä":  # SQL compares the text as it was written, we what it says
        listed |= {job.id for job in store.reads.jobs(limit=100) if b"u00e4" in job.args}
    assert hold(store, filter) == len(listed)
    assert {job.id for job in store.reads.jobs(limit=100) if job.held_by} == listed
