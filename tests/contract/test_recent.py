"""Claims while looking everywhere takes long: from floors on, with surveys beside them. Nothing is forgotten: what
stands before a floor waits for the next survey (docs/decisions/0013). SQLite has no such state."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from holdfast import events
from holdfast.errors import StoreUnavailable
from holdfast.model.job import Wants
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.postgres import claim_floors
from holdfast.store.postgres.claim_floors import (
    IN_A_ROW,
    LEAST_REST,
    MANY_ENTRIES,
    MANY_LANES,
    MANY_PAGES,
    MOMENT,
    PER_LANE,
    REST,
    SLACK,
    SLOW,
    LaneFloors,
    Survey,
)
from holdfast.store.postgres.store import PostgresStore
from tests.contract.places import raw
from tests.factories import BOOM, LEASE, Clock, a_queued_job, claim, claim_as_a_desk, ref, wants
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])
HERE = ("default", "greet", 0)
QUEUES, TASKS, PRIORITIES = ("a", "b"), ("greet", "scan"), (-1, 0, 5)
NEVER = 1e9  # seconds


@pytest.fixture
def store(stores: Callable[..., PostgresStore], clock: Clock) -> PostgresStore:
    store = stores(clock=clock)
    store.schema.migrate()
    return store


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, store: PostgresStore, clock: Clock) -> PostgresStore:
    """A store that finds very many entries in every survey, and has made one; the next comes when a test asks."""
    monkeypatch.setattr(claim_floors, "MANY_ENTRIES", -1)
    monkeypatch.setattr(claim_floors, "IN_A_ROW", 1)
    monkeypatch.setattr(claim_floors, "SLOW", -1.0)
    monkeypatch.setattr(claim_floors, "LEAST_REST", NEVER)
    for _ in range(2):
        assert not claim(store, tasks=TASKS).jobs
        surveyed(store)
    assert memory_of(store).narrow
    clock.advance(10)
    return store


def memory_of(store: PostgresStore) -> LaneFloors:
    return store.exchanging.floors.of(wants())


def surveyed(store: PostgresStore) -> None:
    """The survey under way has ended."""
    wait_until(lambda: not store.exchanging.floors.under_way())


def survey(store: PostgresStore) -> None:
    """As if the rest after the last one were over."""
    memory_of(store)._ended -= 2 * NEVER
    memory_of(store)
    surveyed(store)


def ids(store: PostgresStore, limit: int = 1, **options: Any) -> list[str]:
    return [str(job.id) for job in claim(store, limit, tasks=TASKS, **options).jobs]


def test_the_usual_jobs_are_taken_from_the_floors_on(narrow: PostgresStore, clock: Clock) -> None:
    for told in ((), [HERE]):
        id = a_queued_job(narrow)
        assert ids(narrow, told=told) == [id]
        clock.advance(1)


def test_it_really_looks_from_floors_on(narrow: PostgresStore, settings: Settings) -> None:
    a_queued_job(narrow)
    with raw(settings) as sql:
        sql("update {jobs} set ready_at = ready_at - interval '1 hour'")
    assert not ids(narrow)
    assert not ids(narrow, told=[HERE])


def test_what_stands_before_a_floor_is_found_by_the_next_survey(
    narrow: PostgresStore, settings: Settings, clock: Clock
) -> None:
    """As a job that was committed long after it was enqueued."""
    id = a_queued_job(narrow)
    with raw(settings) as sql:
        sql("update {jobs} set ready_at = ready_at - interval '1 hour'")
    for _ in range(3):
        clock.advance(60)
        assert not ids(narrow)
    survey(narrow)
    assert ids(narrow) == [id]


def test_who_connects_anew_remembers_nothing(narrow: PostgresStore, settings: Settings) -> None:
    """The server may have crashed, and claims not on disk yet with it; or it is the standby that took over."""
    id = a_queued_job(narrow)
    with raw(settings) as sql:
        sql("update {jobs} set ready_at = ready_at - interval '1 hour'")
    assert not ids(narrow)
    with psycopg.connect(settings.url, autocommit=True) as other:
        other.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
            "where query like %s and pid <> pg_backend_pid()",
            (f'%"{settings.schema}".%',),
        )
    with suppress(StoreUnavailable):
        narrow.claim_of(str(uuid.uuid4()))
    assert ids(narrow) == [id]


def test_what_is_committed_a_little_late_is_found_at_once(
    narrow: PostgresStore, settings: Settings, clock: Clock
) -> None:
    assert ids(narrow, told=[HERE]) == []
    id = a_queued_job(narrow)
    with raw(settings) as sql:
        sql(f"update {{jobs}} set ready_at = ready_at - interval '{SLACK / 2} seconds'")
    assert ids(narrow, told=[HERE]) == [id]


@pytest.mark.parametrize("told", [(), [HERE]], ids=["everywhere", "told"])
def test_a_job_given_back_is_found_soon(narrow: PostgresStore, clock: Clock, told: list[tuple[str, str, int]]) -> None:
    id = a_queued_job(narrow)
    clock.advance(1)
    [held] = claim(narrow, tasks=TASKS, told=told).jobs
    clock.advance(5)
    assert not ids(narrow, told=told)
    narrow.attempts.release(ref(held))
    assert wait_until(lambda: ids(narrow, told=told)) == [id], "it waits in its old place, so we survey at once"


def test_one_that_another_gave_back_is_found_by_the_next_survey(
    narrow: PostgresStore, stores: Any, clock: Clock
) -> None:
    other = stores(clock=clock)
    id = a_queued_job(narrow)
    [held] = claim(other, tasks=TASKS).jobs
    clock.advance(5)
    assert not ids(narrow)
    other.attempts.release(ref(held))
    assert not ids(narrow)
    surveyed(narrow)
    assert not ids(narrow)
    survey(narrow)
    assert ids(narrow) == [id]


@pytest.mark.parametrize("how", ["reschedule", "rescue", "retry"])
def test_a_job_that_waits_again_from_now_on_is_found_at_once(narrow: PostgresStore, clock: Clock, how: str) -> None:
    id = a_queued_job(narrow)
    [held] = claim(narrow, tasks=TASKS).jobs
    clock.advance(5)
    assert not ids(narrow)
    if how == "reschedule":
        narrow.attempts.reschedule(ref(held), 7, BOOM)
        assert claim(narrow, tasks=TASKS).next_due == pytest.approx(7)
        clock.advance(7)
    elif how == "retry":
        narrow.attempts.fail(ref(held), BOOM)
        narrow.operator.retry(id)
    else:
        clock.advance(LEASE + 1)
        assert len(narrow.rescues.rescue()) == 1
    assert ids(narrow) == [id]


@pytest.mark.parametrize("lane", [("other", "greet", 0), ("default", "scan", 0), ("default", "greet", -7)])
def test_a_lane_that_nobody_told_of_is_found_by_its_new_jobs(narrow: PostgresStore, clock: Clock, lane: Any) -> None:
    queue, task, priority = lane
    for _ in range(2):
        id = a_queued_job(narrow, queue=queue, task=task, priority=priority)
        assert ids(narrow) == [id]
        clock.advance(1)
    later = a_queued_job(narrow, queue="later", task=task, priority=priority, delay=30)
    assert claim(narrow, tasks=TASKS).next_due == pytest.approx(30)
    clock.advance(31)
    assert ids(narrow) == [later]


def test_jobs_of_others_are_left_alone(narrow: PostgresStore) -> None:
    a_queued_job(narrow, task="stranger")
    a_queued_job(narrow, queue="elsewhere")
    assert not ids(narrow, queues=("default",))


@pytest.mark.parametrize(("kind", "name"), [("queue", "default"), ("task", "greet")])
def test_what_came_during_a_pause_is_taken_when_it_ends(
    narrow: PostgresStore, clock: Clock, kind: str, name: str
) -> None:
    narrow.pauses.add(kind, name, delay=30)
    id = a_queued_job(narrow)
    for told in ((), [HERE]):
        clock.advance(10)
        claimed = claim(narrow, tasks=TASKS, told=told)
        assert not claimed.jobs
    assert claimed.next_due is None or claimed.next_due == pytest.approx(10)
    clock.advance(11)
    assert ids(narrow) == [id]


def test_what_a_pause_by_filter_set_aside_is_found_by_the_next_survey(narrow: PostgresStore, clock: Clock) -> None:
    narrow.pauses.add("filter", "task:greet")
    id, other = a_queued_job(narrow), a_queued_job(narrow, task="scan")
    _, free = claim_as_a_desk(narrow, wants(5, tasks=TASKS))
    assert [str(job.id) for job in free] == [other]
    assert narrow.reads.get(id).held_by == "pause:task:greet"
    clock.advance(20)
    assert not ids(narrow)
    narrow.pauses.drop("filter", "task:greet")
    assert not ids(narrow)
    survey(narrow)
    assert ids(narrow) == [id]


@pytest.mark.parametrize("told", [(), [HERE]], ids=["everywhere", "told"])
def test_what_others_have_locked_keeps_its_place(
    narrow: PostgresStore, settings: Settings, clock: Clock, told: list[tuple[str, str, int]]
) -> None:
    first, second = a_queued_job(narrow), a_queued_job(narrow)
    with psycopg.connect(settings.url) as other:
        other.execute(f'select 1 from "{settings.schema}".jobs where id = %s for update', (int(first),))
        claimed = claim(narrow, 2, tasks=TASKS, told=told)
        assert [str(job.id) for job in claimed.jobs] == [second]
        assert claimed.more
        clock.advance(20)
        assert claim(narrow, 2, tasks=TASKS, told=told).more
    assert ids(narrow, 2, told=told) == [first]


@pytest.mark.parametrize("seed", range(8))
def test_many_claims_take_all_there_is_in_order(narrow: PostgresStore, clock: Clock, seed: int) -> None:
    """Jobs come, fall due and are taken in small numbers, so that lanes are seldom empty; no survey helps."""
    draw = random.Random(seed)
    waiting: dict[str, tuple[int, float, int]] = {}
    taken: list[str] = []
    start = clock.now
    for _ in range(12):
        for _ in range(draw.randrange(6)):
            priority, delay = draw.choice(PRIORITIES), draw.choice([0.0, 0.0, 3.0])
            id = a_queued_job(
                narrow, queue=draw.choice(QUEUES), task=draw.choice(TASKS), priority=priority, delay=delay
            )
            waiting[id] = (-priority, (clock.now - start).total_seconds() + delay, int(id))
        clock.advance(draw.choice([0.5, 1, 4]))
        due = sorted((place, id) for id, place in waiting.items() if place[1] <= (clock.now - start).total_seconds())
        found = ids(narrow, 3)
        assert found == [id for _, id in due[:3]]
        taken += found
        for id in found:
            del waiting[id]
    clock.advance(4)
    assert sorted(ids(narrow, 100), key=int) == sorted(waiting, key=int)
    assert len(set(taken)) == len(taken)


def test_a_job_enqueued_for_the_past_in_a_known_lane_waits_for_a_survey_at_most(
    narrow: PostgresStore, clock: Clock
) -> None:
    id = a_queued_job(narrow, run_at=clock.now.replace(year=clock.now.year - 1))
    survey(narrow)
    assert ids(narrow) == [id]
    assert narrow.reads.get(id).state is State.RUNNING


@pytest.mark.parametrize("verb", ["resume", "change"])
def test_what_people_put_back_or_move_is_found_by_the_next_survey(
    narrow: PostgresStore, clock: Clock, verb: str
) -> None:
    id = a_queued_job(narrow)
    narrow.operator.pause(id) if verb == "resume" else narrow.pauses.add("task", "greet")
    clock.advance(5)
    assert not ids(narrow)
    if verb == "resume":
        narrow.operator.resume(id)
    else:
        narrow.operator.change(id, priority=3)
        narrow.pauses.drop("task", "greet")
    survey(narrow)
    assert ids(narrow) == [id]


def test_a_clock_set_back_is_noticed_at_once(narrow: PostgresStore, clock: Clock) -> None:
    assert ids(narrow, told=[HERE]) == []
    clock.advance(-3600)
    assert not ids(narrow)
    for told in ((), [HERE]):
        id = a_queued_job(narrow)
        assert ids(narrow, told=told) == [id]


def test_who_looks_for_other_tasks_has_no_floors_until_a_survey_was_made_for_them(
    narrow: PostgresStore, clock: Clock
) -> None:
    past = clock.now.replace(year=clock.now.year - 1)
    first, second = (a_queued_job(narrow, task="other", run_at=past) for _ in range(2))
    assert [str(job.id) for job in claim(narrow, tasks=("other",)).jobs] == [first]
    survey(narrow)
    assert [str(job.id) for job in claim(narrow, tasks=("other",)).jobs] == [second]
    third = a_queued_job(narrow, task="other", run_at=past)
    assert not claim(narrow, tasks=("other",)).jobs, "from here on it has"
    survey(narrow)
    assert [str(job.id) for job in claim(narrow, tasks=("other",)).jobs] == [third]


def test_who_looks_thoroughly_looks_everywhere(narrow: PostgresStore, clock: Clock) -> None:
    """As a drain does, which ends when nothing is found."""
    id = a_queued_job(narrow, run_at=clock.now.replace(year=clock.now.year - 1))
    assert not ids(narrow)
    assert [str(job.id) for job in narrow.attempts.claim(wants(thorough=True)).jobs] == [id]


# -- surveys -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def told(engine: str) -> Iterator[list[str]]:
    told: list[str] = []
    unsubscribe = events.subscribe(lambda name, fields: told.append(name))
    yield told
    unsubscribe()


def held_up(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The next survey is made, but ends only when this is set."""
    may_end, make = threading.Event(), store.exchanging.floors._survey

    def slowly(*scope: Any) -> Survey:
        found = make(*scope)
        assert may_end.wait(20)
        return found

    monkeypatch.setattr(store.exchanging.floors, "_survey", slowly)
    memory_of(store)._ended -= 2 * NEVER
    memory_of(store)
    wait_until(lambda: store.exchanging.floors.under_way())
    return may_end


@pytest.mark.parametrize("told", [(), [HERE]], ids=["everywhere", "told"])
def test_no_claim_waits_for_a_survey(
    narrow: PostgresStore, monkeypatch: pytest.MonkeyPatch, clock: Clock, told: list[tuple[str, str, int]]
) -> None:
    may_end = held_up(narrow, monkeypatch)
    for _ in range(3):
        id = a_queued_job(narrow)
        assert ids(narrow, told=told) == [id]
        clock.advance(1)
    assert narrow.exchanging.floors.under_way()
    may_end.set()
    surveyed(narrow)
    id = a_queued_job(narrow)
    assert ids(narrow, told=told) == [id]


def test_an_empty_look_is_repeated_when_a_survey_has_ended(
    narrow: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle worker, too, finds what stood before a floor."""
    may_end = held_up(narrow, monkeypatch)
    due = claim(narrow, tasks=TASKS).next_due
    assert due is not None
    assert due < 5
    may_end.set()
    surveyed(narrow)
    due = claim(narrow, tasks=TASKS).next_due
    assert due is not None
    assert due > NEVER / 2, "when the next one is due"


def test_a_job_given_back_while_a_survey_is_under_way_is_found_by_another(
    narrow: PostgresStore, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    id = a_queued_job(narrow)
    [held] = claim(narrow, tasks=TASKS).jobs
    clock.advance(5)
    may_end = held_up(narrow, monkeypatch)
    narrow.attempts.release(ref(held))
    may_end.set()
    surveyed(narrow)
    assert wait_until(lambda: ids(narrow)) == [id]


def test_a_store_that_closes_waits_for_its_survey(narrow: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = held_up(narrow, monkeypatch)
    threading.Timer(0.1, may_end.set).start()
    narrow.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-survey"]


def test_where_a_survey_fails_looks_are_made_everywhere(
    narrow: PostgresStore, clock: Clock, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what stands before a floor might never be found."""
    id = a_queued_job(narrow, run_at=clock.now.replace(year=clock.now.year - 1))
    assert not ids(narrow)
    narrow.db.statements.define("walked", "select pg_sleep(60)")
    memory_of(narrow)._ended -= 2 * NEVER
    memory_of(narrow)
    with psycopg.connect(narrow.db.settings.url, autocommit=True) as other:
        ending = (
            "select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep(60)%' "
            "and state = 'active' and pid <> pg_backend_pid()"
        )
        wait_until(lambda: other.execute(ending).fetchall())
    surveyed(narrow)
    assert "survey_failed" in told
    assert ids(narrow) == [id]


def test_where_no_thread_can_be_had_looks_are_made_everywhere(
    narrow: PostgresStore, clock: Clock, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    id = a_queued_job(narrow, run_at=clock.now.replace(year=clock.now.year - 1))
    with monkeypatch.context() as patched:

        def refuse(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", refuse)
        memory_of(narrow)._ended -= 2 * NEVER
        assert ids(narrow) == [id]
    assert "survey_failed" in told
    assert not narrow.exchanging.floors.under_way()


def test_a_forked_child_remembers_nothing_and_makes_surveys_of_its_own(
    narrow: PostgresStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The survey that is under way in the parent is none of the child's."""
    id = a_queued_job(narrow, run_at=clock.now.replace(year=clock.now.year - 1))
    assert not ids(narrow)
    may_end = held_up(narrow, monkeypatch)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            may_end.set()
            found = ids(narrow) == [id]
            ids(narrow)  # a slow one was made: now a survey
            surveyed(narrow)
            status = 0 if found and memory_of(narrow).narrow else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not ids(narrow), "the child has it"
    may_end.set()


# -- when --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def slow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that is busy with other things, or across a slow network: every look takes long."""
    monkeypatch.setattr(claim_floors, "SLOW", -1.0)
    monkeypatch.setattr(claim_floors, "LEAST_REST", 0.0)
    monkeypatch.setattr(claim_floors, "REST", 0.0)


def many_jobs_come_and_go(settings: Settings, count: int) -> None:
    with raw(settings) as sql:
        sql(
            "insert into {jobs} (queue, task, args, run_at, ready_at) select 'default', 'greet', '{{}}', at, at "
            f"from generate_series(1, {count}) n, lateral (select timestamptz '2029-01-01' + n * interval '1 s') d (at)"
        )
    with raw(settings) as sql:
        sql("update {jobs} set state = 'succeeded', ready_at = null")


def looks_and_surveys(store: PostgresStore, count: int) -> list[bool]:
    """Look as often; was it narrow after each survey?"""
    found = []
    for _ in range(count):
        for _ in range(IN_A_ROW):
            claim(store, tasks=TASKS)
        claim(store, tasks=TASKS)
        surveyed(store)
        found.append(memory_of(store).narrow)
        surveyed(store)
    return found


@pytest.mark.usefixtures("slow_looks")
@pytest.mark.parametrize("pinned", [False, True], ids=["no snapshot", "a snapshot"])
def test_slow_looks_alone_change_nothing(store: PostgresStore, settings: Settings, pinned: bool) -> None:
    """Only very many dead entries do: not a busy machine, a slow network, or a snapshot that did no harm yet."""
    with psycopg.connect(settings.url) as elsewhere:
        elsewhere.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        if pinned:
            elsewhere.execute("select count(*) from pg_class")
        many_jobs_come_and_go(settings, MANY_ENTRIES - 500)
        assert looks_and_surveys(store, 5) == [False] * 5


@pytest.mark.usefixtures("slow_looks")
def test_it_is_for_dead_entries_that_looks_are_narrow_and_as_long_as_they_are_many(
    store: PostgresStore, settings: Settings
) -> None:
    with psycopg.connect(settings.url) as elsewhere:
        elsewhere.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        elsewhere.execute("select count(*) from pg_class")
        many_jobs_come_and_go(settings, MANY_PAGES * 250)
        assert not memory_of(store).narrow
        assert looks_and_surveys(store, 3) == [True] * 3
        id = a_queued_job(store)
        assert ids(store) == [id]
    with psycopg.connect(settings.url, autocommit=True) as connection:

        def over() -> bool:
            connection.execute(f'vacuum "{settings.schema}".jobs'.encode())
            return not looks_and_surveys(store, 1)[0]

        wait_until(over)


# -- when, without a server --------------------------------------------------------------------------------------------


class Watch:
    def __init__(self) -> None:
        self.now = 1000.0


ANY = Wants(fence="f", worker="w", tasks=("greet",), limit=1, lease=20)
TOLD = Wants(fence="f", worker="w", tasks=("greet",), limit=1, lease=20, told=(HERE,))
AT = 5000.0  # seconds, by the clock of the database


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, engine: str) -> Watch:
    watch = Watch()
    monkeypatch.setattr(claim_floors, "monotonic", lambda: watch.now)
    return watch


@pytest.fixture
def memory(watch: Watch) -> LaneFloors:
    """With one look made."""
    memory = LaneFloors()
    memory.looked_everywhere(ANY, SLOW / 2)
    return memory


def begin(memory: LaneFloors) -> bool:
    return memory.begin_survey() == ("greet",)


def make_survey(memory: LaneFloors, watch: Watch, took: float = 0.2, first: float = AT - 3, newest: int = 7) -> None:
    for _ in range(IN_A_ROW):
        memory.looked_everywhere(ANY, SLOW * 2)
    assert begin(memory)
    watch.now += took
    memory.end_survey(Survey([(*HERE, first)], AT, newest, met=1, entries=MANY_ENTRIES + 2, pages=0))


def test_as_long_as_looks_are_quick_nothing_differs(memory: LaneFloors, watch: Watch) -> None:
    for took in (SLOW / 2, SLOW * 5, SLOW * 5, SLOW / 2) * 3:
        memory.looked_everywhere(ANY, took)
        assert not begin(memory)
        assert memory.next(ANY) is None
        assert memory.next(TOLD) is None


def test_after_slow_looks_in_a_row_a_survey_is_made_and_what_it_walked_over_decides(
    memory: LaneFloors, watch: Watch
) -> None:
    for _ in range(IN_A_ROW):
        assert not begin(memory)
        memory.looked_everywhere(ANY, SLOW * 2)
    assert begin(memory)
    assert not begin(memory), "one at a time"
    watch.now += 100.0  # however long it takes
    memory.end_survey(Survey([(*HERE, 0.0)], AT, 0, met=300, entries=MANY_ENTRIES + 300, pages=9999))
    assert memory.next(ANY) is None
    for _ in range(IN_A_ROW):
        memory.looked_everywhere(ANY, SLOW * 2)
    assert not begin(memory), "not so soon again"
    watch.now += REST * 100.0
    assert begin(memory)
    memory.end_survey(Survey([(*HERE, 0.0)], AT, 0, met=300, entries=MANY_ENTRIES + 301, pages=0))
    assert memory.next(ANY) is not None


def test_it_is_over_when_what_was_marked_as_dead_is_gone(memory: LaneFloors, watch: Watch) -> None:
    make_survey(memory, watch)
    for pages in (MANY_PAGES + PER_LANE + 1, MANY_PAGES + PER_LANE):
        assert memory.next(ANY) is not None
        watch.now += 100
        assert begin(memory)
        memory.end_survey(Survey([(*HERE, 0.0)], AT, 0, met=1, entries=1, pages=pages))
    assert memory.next(ANY) is None


@pytest.mark.parametrize("took", [0.001, 0.23, 3.0])
def test_surveys_take_a_twentieth_of_the_time_and_come_as_often(memory: LaneFloors, watch: Watch, took: float) -> None:
    make_survey(memory, watch, took)
    recent = memory.next(ANY)
    assert recent is not None
    assert (recent.floors, recent.since, memory.newest(ANY)) == ({HERE: AT - 3}, AT, 7)
    rest = max(LEAST_REST, REST * took)
    assert memory.wait(recent) == pytest.approx(rest)
    watch.now += rest * 0.99
    assert not begin(memory)
    watch.now += rest * 0.02
    assert begin(memory)
    assert memory.wait(recent) == pytest.approx(max(MOMENT, took))
    memory.end_survey(Survey([], AT + rest, 7, met=0, entries=3, pages=3))
    assert memory.next(ANY) is None, "it is over"
    assert memory.wait(recent) == MOMENT


def test_after_a_job_was_given_back_a_survey_comes_at_once(memory: LaneFloors, watch: Watch) -> None:
    make_survey(memory, watch, took=1.0)
    watch.now += 1.01
    assert not begin(memory)
    memory.given_back()
    assert begin(memory)
    memory.given_back()  # perhaps too late for the one under way
    watch.now += 1.0
    memory.end_survey(Survey([], AT, 7, met=0, entries=MANY_ENTRIES * 2, pages=0))
    assert not begin(memory), "half of the time at most"
    watch.now += 1.01
    assert begin(memory)
    memory.end_survey(Survey([], AT, 7, met=0, entries=MANY_ENTRIES * 2, pages=0))
    watch.now += 1.01
    assert not begin(memory)


def test_a_survey_is_not_undone_by_a_look_that_began_before_it(memory: LaneFloors, watch: Watch) -> None:
    make_survey(memory, watch)
    before = memory.next(TOLD), memory.next(ANY)
    watch.now += 100
    make_survey(memory, watch, first=AT - 500, newest=9)
    for wanted, look in zip((TOLD, ANY), before, strict=True):
        assert look is not None
        memory.met(wanted, 7, [HERE], 8)
        memory.looked(look, [(*HERE, AT)])
    after = memory.next(ANY)
    assert after is not None
    assert (after.floors, memory.newest(ANY)) == ({HERE: AT - 500}, 9)


def test_a_lane_is_known_from_its_first_look_on(memory: LaneFloors, watch: Watch) -> None:
    make_survey(memory, watch)
    new, paused = ("new", "greet", 0), ("paused", "greet", 0)
    look = memory.next(ANY)
    assert look is not None
    memory.met(ANY, 7, [new, paused], 12)
    memory.looked(look, [(*HERE, AT + 1), (*new, AT + 2), (*paused, None)])
    then = memory.next(ANY)
    assert then is not None
    assert then.floors == {HERE: AT + 1, new: AT + 2, paused: AT}
    assert memory.newest(ANY) == 12
    told = memory.next(TOLD)
    assert told is not None
    assert (told.floors, memory.newest(TOLD)) == ({HERE: AT + 1}, None)


def test_with_very_many_lanes_it_looks_everywhere(memory: LaneFloors, watch: Watch) -> None:
    make_survey(memory, watch)
    watch.now += 100
    assert begin(memory)
    lanes = [(f"q{n}", "greet", 0, 0.0) for n in range(MANY_LANES + 1)]
    memory.end_survey(Survey(lanes, AT, 0, met=len(lanes), entries=MANY_ENTRIES * 2, pages=0))
    assert memory.next(ANY) is None
    assert memory.next(TOLD) is not None
