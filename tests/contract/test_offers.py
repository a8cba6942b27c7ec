"""An idle worker offers to take the next job of a kind; who enqueues it claims it for that worker, in one transaction
(docs/decisions/0022). Whatever becomes of the offer, the job is there once, and somebody hears of it."""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from holdfast.errors import LeaseLost, ValueRefused
from holdfast.model.job import Held
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Ear, Store
from holdfast.store.postgres.enqueue import GIVEN
from holdfast.store.postgres.notify import Notifier
from holdfast.store.postgres.store import PostgresStore
from holdfast.work.listener import given_job
from tests.contract.places import at_once, raw
from tests.factories import LEASE, Clock, a_queued_job, claim, new_job, ref
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])
Stores = Callable[..., Store]

KIND = ("default", "greet")


@pytest.fixture(autouse=True)
def everybody_enqueues_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """However quickly tests do. When that is so, test_crowd.py tests."""
    monkeypatch.setattr(Notifier, "alone", lambda self: True)


@pytest.fixture
def ear(store: Store) -> Iterator[Ear]:
    register(store)
    yield from opened(store)


def opened(store: Store) -> Iterator[Ear]:
    ear = store.open_ear()
    assert ear is not None
    yield ear
    ear.close()


def register(store: Store, id: str = "w1") -> None:
    store.register(id=id, name=id, host="h", pid=1, queues=None, tasks=("greet",), slots=9, crons=(), lease=LEASE)


def offer(ear: Ear, *kinds: tuple[str, str], worker: str = "w1") -> list[str]:
    """The fences of what it offers."""
    offered = {str(uuid.uuid4()): kind for kind in kinds or (KIND,)}
    ear.offer(worker, offered)
    return list(offered)


def given(ear: Ear, count: int = 1) -> list[Held]:
    """So many jobs that it was told of as its own. Other wake-ups are not what this is about."""
    found: list[Held] = []

    def hear() -> bool:
        found.extend(given_job(what)[0] for kind, what in ear.hear() if kind == "given")
        return len(found) >= count

    wait_until(hear)
    return found


def hears_nothing_of_its_own(store: Store, ear: Ear, queue: str = "last") -> bool:
    """Of all that came before a last wake-up."""
    said: list[tuple[str, str]] = []
    a_queued_job(store, queue=queue)

    def hear() -> bool:
        said.extend(ear.hear())
        return any(queue in what for _, what in said)

    wait_until(hear)
    return all(kind != "given" for kind, _ in said)


def standing(settings: Settings) -> int:
    with raw(settings) as sql:
        return int(sql("select count(*) from {offers}")[0][0])


def leases(settings: Settings) -> list[tuple[Any, ...]]:
    with raw(settings) as sql:
        return sql("select fence::text, worker, held, job_ids, extract(epoch from expires_at)::float8 from {leases}")


# -- an offer is taken -----------------------------------------------------------------------------------------------


def test_the_next_job_of_its_kind_takes_an_offer(store: Store, ear: Ear, settings: Settings, clock: Clock) -> None:
    [fence] = offer(ear)
    id = a_queued_job(store)
    job = store.get(id)
    assert (job.state, job.fence, job.worker, job.attempt) == (State.RUNNING, fence, "w1", 1)
    assert (job.started_at, job.created_at) == (clock.now, clock.now)
    assert leases(settings) == [(fence, "w1", 1, [int(id)], clock.now.timestamp() + LEASE)]
    assert standing(settings) == 0
    [held] = given(ear)
    assert store.claim_of(fence).jobs == [held], "what is heard is what a claim would have brought"
    assert claim(store, 10).jobs == []


@pytest.mark.parametrize("options", [{}, {"expires_in": 60.0, "priority": 7, "tags": ("a",), "correlation_id": "c"}])
def test_a_job_that_was_given_is_as_one_that_was_claimed(
    store: Store, ear: Ear, settings: Settings, options: dict[str, Any]
) -> None:
    """In every column: so whatever is done with it from here on, is done as ever."""
    a_queued_job(store, **options)
    claim(store)
    offer(ear)
    a_queued_job(store, **options)
    given(ear)
    with raw(settings) as sql:
        claimed, given_ = sql("select to_jsonb(j) - 'id' - 'fence' from {jobs} j order by id")
        leases = sql("select held, cardinality(job_ids), worker, expires_at from {leases}")
    assert claimed == given_
    assert leases[0] == leases[1]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"args": '{"text": "ä\\\\ \\" € 🦀", "n": 1e400, "o": {"b": [null, true]}}'.encode()},
        {"args": b'{"nul": "\\u0000", "half": "\\ud800"}'},
        {"args": b'  {"spaced" :  [1,\n2]}  '},
        {"correlation_id": 'c,{}"\\\t\u2028', "max_attempts": 2, "priority": -100, "tags": ("a b", 'c"d')},
        {"expires_in": 60.0},
        {"args": b'"' + b"x" * (GIVEN - 100) + b'"'},
    ],
)
def test_whoever_is_given_a_job_is_told_all_of_it(store: Store, ear: Ear, options: dict[str, Any]) -> None:
    [fence] = offer(ear)
    id = a_queued_job(store, **options)
    [held] = given(ear)
    [claimed] = store.claim_of(fence).jobs
    # White space around JSON is nobody's.
    assert (held.args.strip(), claimed.args.strip()) == (options.get("args", b"{}").strip(),) * 2
    assert held == Held(**{name: getattr(claimed, name) for name in claimed.__struct_fields__} | {"args": held.args})
    assert str(held.id) == id
    assert store.get(id).tags == options.get("tags", ())


def test_names_of_any_kind_are_offered_for(store: Store, ear: Ear) -> None:
    queue, task = "q{},\"'\\ ü", "scan NULL"
    [fence] = offer(ear, (queue, task))
    a_queued_job(store, queue=queue, task=task)
    [held] = given(ear)
    assert (held.queue, held.task, held.fence) == (queue, task, fence)


def test_what_was_given_ends_as_any_other(store: Store, ear: Ear, settings: Settings) -> None:
    offer(ear)
    id = a_queued_job(store)
    [held] = given(ear)
    assert store.renew([held.fence], [ref(held)], 60.0) == ({held.fence}, [])
    store.succeed(ref(held), b"42")
    job = store.get(id)
    assert (job.state, job.result) == (State.SUCCEEDED, b"42")
    assert leases(settings) == []


def test_a_job_that_was_given_and_is_given_back_is_claimed_by_the_next(store: Store, ear: Ear) -> None:
    offer(ear)
    a_queued_job(store)
    [held] = given(ear)
    store.release(ref(held))
    [again] = claim(store).jobs
    assert (again.id, again.attempt) == (held.id, 1), "uncharged"


def test_the_lease_of_a_job_that_was_given_runs_out_as_any_other(  # I5 R1.5
    store: Store, ear: Ear, clock: Clock
) -> None:
    offer(ear)
    id = a_queued_job(store)
    [held] = given(ear)
    clock.advance(LEASE - 1)
    assert store.rescue() == []
    clock.advance(2)
    assert [job.id for job in store.rescue()] == [id]
    with pytest.raises(LeaseLost):
        store.succeed(ref(held))


def test_of_many_at_once_each_offer_gets_one(  # I3 I4
    store: Store, ear: Ear, stores: Stores, clock: Clock
) -> None:
    fences = offer(ear, *[KIND] * 5)
    others = [stores(clock=clock) for _ in range(8)]
    made = at_once(8, lambda n: [a_queued_job(others[n]) for _ in range(3)])
    ids = [id for some in made for id in some]
    held = given(ear, 5)
    assert {job.fence for job in held} == set(fences)
    assert len({job.id for job in held}) == 5
    rest = claim(store, 100).jobs
    assert sorted(str(job.id) for job in [*held, *rest]) == sorted(ids, key=str)


def test_who_enqueues_waits_for_nobody_who_does_so_as_well(store: Store, ear: Ear, settings: Settings) -> None:
    assert isinstance(store, PostgresStore)
    offer(ear, KIND, KIND)
    text, columns = store._way("enqueue_offered")
    with psycopg.connect(settings.url) as taker:
        psycopg.RawCursor(taker).execute(text, columns(new_job()))
        assert store.get(a_queued_job(store)).state is State.RUNNING, "the other offer is free"
        assert store.get(a_queued_job(store)).state is State.QUEUED, "there is none left"


def test_each_of_several_workers_is_told_of_its_own(store: Store, stores: Stores, clock: Clock) -> None:
    ears: dict[str, Ear] = {}
    for name in ("w1", "w2"):
        register(store, name)
        other = stores(clock=clock).open_ear()
        assert other is not None
        ears[name] = other
        offer(other, worker=name)
    ids = [a_queued_job(store) for _ in range(2)]
    held = {name: given(ear)[0] for name, ear in ears.items()}
    assert {str(job.id) for job in held.values()} == set(ids)
    assert {name: store.get(str(job.id)).worker for name, job in held.items()} == {"w1": "w1", "w2": "w2"}
    for ear in ears.values():
        ear.close()


# -- or it is not ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"queue": "other"}, {"task": "scan"}, {"delay": 5.0}, {"key": "k"}, {"max_attempts": 1},
        {"args": b'"' + b"x" * GIVEN + b'"'}, {"correlation_id": "c" * GIVEN},
    ],
)  # fmt: skip
def test_a_job_that_an_offer_does_not_fit_is_queued_as_ever(
    store: Store, ear: Ear, settings: Settings, options: dict[str, Any]
) -> None:
    offer(ear)
    id = a_queued_job(store, **options)
    assert store.get(id).state is State.QUEUED
    assert standing(settings) == 1
    assert hears_nothing_of_its_own(store, ear)


def test_a_job_at_a_set_time_takes_no_offer(store: Store, ear: Ear, clock: Clock) -> None:
    offer(ear)
    assert store.get(a_queued_job(store, run_at=clock.now)).state is State.QUEUED


def test_who_enqueues_on_a_transaction_of_its_own_takes_no_offer(store: Store, ear: Ear, settings: Settings) -> None:
    """It may last, and would hold the worker's offer."""
    offer(ear)
    with psycopg.connect(settings.url) as connection:
        id = store.enqueue_on(connection, new_job()).id
    assert store.get(id).state is State.QUEUED


def test_among_others_a_job_takes_no_offer(store: Store, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its wake-up in the transaction would make their commits queue up (F18)."""
    offer(ear)
    monkeypatch.setattr(Notifier, "alone", lambda self: False)
    assert store.get(a_queued_job(store)).state is State.QUEUED


@pytest.mark.parametrize("seconds", [1.4 * LEASE, 1.6 * LEASE])
def test_the_offer_of_a_worker_that_was_not_seen_of_late_does_not_count(
    store: Store, ear: Ear, clock: Clock, seconds: float
) -> None:
    offer(ear)
    clock.advance(seconds)
    state = store.get(a_queued_job(store)).state
    assert state is (State.RUNNING if seconds < 1.5 * LEASE else State.QUEUED)


def test_a_worker_that_looks_goes_on_to_offer(store: Store, ear: Ear, clock: Clock) -> None:
    offer(ear)
    for _ in range(5):
        clock.advance(LEASE)
        store.look("w1", ("greet",), None)
    assert store.get(a_queued_job(store)).state is State.RUNNING


def test_the_offer_of_a_session_that_is_gone_does_not_count_and_is_swept_up(
    store: Store, ear: Ear, settings: Settings
) -> None:
    """Its worker may live, or look as if: nobody would hear of the job."""
    offer(ear)
    ear.close()

    def nobody_hears() -> bool:
        with raw(settings) as sql:
            [(count,)] = sql(
                "select count(*) from pg_stat_activity where application_name = 'holdfast-listener'"
                " and datname = current_database() and query like ?",
                f"%{settings.schema}%",
            )
        return bool(count == 0)

    wait_until(nobody_hears)
    with psycopg.connect(settings.url, autocommit=True) as listener:
        assert isinstance(store, PostgresStore)
        listener.execute(f'listen "{store.channel}"'.encode())
        id = a_queued_job(store)
        assert [w.payload for w in listener.notifies(timeout=10, stop_after=1)] == ['l["default", "greet", 0]']
    assert store.get(id).state is State.QUEUED
    assert standing(settings) == 0


@pytest.mark.parametrize(
    ("pause", "state"),
    [
        ({"kind": "queue", "name": "default"}, State.QUEUED),
        ({"kind": "task", "name": "greet"}, State.QUEUED),
        ({"kind": "cron", "name": "greet"}, State.RUNNING),
    ],
)
def test_where_a_pause_stands_no_offer_is_taken(
    store: Store, ear: Ear, clock: Clock, pause: dict[str, str], state: State
) -> None:
    offer(ear)
    store.hold(pause["kind"], pause["name"], delay=60.0)
    assert store.get(a_queued_job(store)).state is state
    clock.advance(61.0)
    store.look("w1", ("greet",), None)
    offer(ear)
    assert store.get(a_queued_job(store)).state is State.RUNNING, "it is over"


def test_a_worker_that_went_takes_its_offers_along(store: Store, ear: Ear, settings: Settings, clock: Clock) -> None:
    register(store, "w2")
    offer(ear)
    offer(ear, worker="w2")
    store.unregister("w1")
    assert standing(settings) == 1
    clock.advance(3600.0)
    store.forget_workers(60.0)
    assert standing(settings) == 0


# -- and may be taken back -------------------------------------------------------------------------------------------


def test_an_offer_that_was_taken_back_is_taken_by_nobody(store: Store, ear: Ear, settings: Settings) -> None:
    fences = offer(ear, KIND, ("mail", "greet"))
    assert store.withdraw_offers(fences) == set(fences)
    assert store.get(a_queued_job(store)).state is State.QUEUED
    assert standing(settings) == 0
    assert leases(settings) == []


def test_who_takes_offers_back_learns_which_were_taken(store: Store, ear: Ear) -> None:
    greet, mail = offer(ear, KIND, ("mail", "greet"))
    id = a_queued_job(store)
    assert store.withdraw_offers([greet, mail]) == {mail}
    assert [str(job.id) for job in store.claim_of(greet).jobs] == [id]


def test_taking_it_back_waits_for_whoever_takes_it_just_now(store: Store, ear: Ear, settings: Settings) -> None:
    """Else the job would run for nobody."""
    assert isinstance(store, PostgresStore)
    [fence] = offer(ear)
    found: list[Held] = []

    def take_back() -> None:
        assert store.withdraw_offers([fence]) == set()
        found.extend(store.claim_of(fence).jobs)

    text, columns = store._way("enqueue_offered")
    with psycopg.connect(settings.url) as taker:
        psycopg.RawCursor(taker).execute(text, columns(new_job()))
        looking = threading.Thread(target=take_back)
        looking.start()
        with raw(settings) as sql:
            wait_until(lambda: sql("select 1 from pg_locks where not granted and locktype = 'transactionid'"))
        assert not found
        taker.commit()
    looking.join(20)
    assert [job.fence for job in found] == [fence]


def test_an_offer_that_arrives_after_its_fence_was_looked_up_is_taken_by_nobody(store: Store, ear: Ear) -> None:
    """The session that sent it is about to end, and nobody hears what it is told. The job is queued."""
    fence = str(uuid.uuid4())
    assert store.claim_of(fence).jobs == []
    ear.offer("w1", {fence: KIND})
    id = a_queued_job(store)
    assert store.get(id).state is State.QUEUED
    assert [str(job.id) for job in claim(store).jobs] == [id]


# -- who enqueues is never the worse for it --------------------------------------------------------------------------


def test_who_may_only_insert_jobs_enqueues_as_ever(store: Store, ear: Ear, settings: Settings) -> None:  # R1.2
    offer(ear)
    role, schema = f"r_{uuid.uuid4().hex[:12]}", f'"{settings.schema}"'
    with psycopg.connect(settings.url, autocommit=True) as admin:
        for statement in (
            f"create role {role} login", f"grant usage on schema {schema} to {role}",
            f"grant insert, select (id) on {schema}.jobs to {role}", f"grant select on {schema}.meta to {role}",
        ):  # fmt: skip
            admin.execute(statement.encode())
        try:
            with closing(open_store(Settings(url=as_user(settings.url, role), schema=settings.schema))) as theirs:
                assert isinstance(theirs, PostgresStore)
                ids = [theirs.enqueue(new_job()).id for _ in range(3)]
                assert theirs._gives_from == math.inf, "it is not tried again"
        finally:
            admin.execute(f"drop owned by {role}".encode())
            admin.execute(f"drop role {role}".encode())
    assert {store.get(id).state for id in ids} == {State.QUEUED}
    assert standing(settings) == 1


def as_user(url: str, user: str) -> str:
    before, _, host = url.partition("@")
    return f"{before.partition('://')[0]}://{user}@{host}"


def test_what_is_refused_is_refused_as_ever(store: Store, ear: Ear, settings: Settings) -> None:
    offer(ear)
    for wrong in ({"args": b"not json"}, {"priority": 101}, {"queue": "a\0b"}):
        with pytest.raises(ValueRefused):
            store.enqueue(new_job(**wrong))
    assert standing(settings) == 1
    assert store.get(a_queued_job(store)).state is State.RUNNING
    assert len(store.jobs()) == 1


@pytest.mark.parametrize("known", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("table", ["offers", "workers", "pauses", "leases"])
def test_nobody_waits_for_what_others_have_locked(
    store: Store, ear: Ear, settings: Settings, table: str, known: bool
) -> None:
    """Hardly: then it goes the plain way, and for a while it goes no other."""
    assert isinstance(store, PostgresStore)
    if known:
        a_queued_job(store)
    offer(ear)
    with psycopg.connect(settings.url) as somebody:
        somebody.execute(f'lock table "{settings.schema}".{table}'.encode())
        began = time.monotonic()
        ids = [a_queued_job(store) for _ in range(10)]
        assert time.monotonic() - began < 1.5, "one wait of 50 ms, not one for each; a plain one would be 2 s"
    assert {store.get(id).state for id in ids} == {State.QUEUED}
    store._gives_from = 0.0
    assert store.get(a_queued_job(store)).state is State.RUNNING, "it is tried again some day"


def test_nobody_who_may_not_read_offers_hears_what_is_given(store: Store, ear: Ear, settings: Settings) -> None:
    """Anyone may see locks and listen on any channel: neither tells where."""
    offer(ear)
    with raw(settings) as sql:
        [(name,)] = sql("select ear from {offers}")
        shown = sql("select classid::bigint, objid::bigint from pg_locks where locktype = 'advisory'")
    assert len(name) == 32
    assert shown, "one is the ear's"
    assert all(f"{high << 32 | low:x}" not in name for high, low in shown)


def test_behind_a_pooler_nothing_is_offered(store: Store, settings: Settings) -> None:
    """Its sessions are not ours, nor do their locks end with us."""
    with closing(open_store(replace(settings, prepare=False))) as pooled:
        ear = pooled.open_ear()
        assert ear is not None
        assert not ear.can_offer
        ear.close()
    ear = store.open_ear()
    assert ear is not None
    assert ear.can_offer
    ear.close()


def test_offers_of_workers_that_went_silent_are_swept_up(
    store: Store, ear: Ear, settings: Settings, clock: Clock
) -> None:
    register(store, "w2")
    offer(ear)
    offer(ear, worker="w2")
    clock.advance(3 * LEASE)
    store.look("w2", ("greet",), None)
    store.forget_workers(3600.0)
    with raw(settings) as sql:
        assert sql("select worker from {offers}") == [("w2",)]
