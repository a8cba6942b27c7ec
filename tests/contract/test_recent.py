"""Claims while looking everywhere takes long: from floors on, and with a survey now and then. Nothing is forgotten:
what stands before a floor waits for the next survey (F22; docs/decisions/0013). SQLite has no such state."""

from __future__ import annotations

import random
import uuid
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.filter import parse
from holdfast.model.job import Wants
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.postgres import looks
from holdfast.store.postgres.looks import AGAIN, IN_A_ROW, LONGEST, REST, SLACK, SLOW, Looks
from tests.contract.places import raw
from tests.factories import BOOM, LEASE, Clock, a_queued_job, claim, ref

pytestmark = pytest.mark.parametrize("engine", ["postgres"])
HERE = ("default", "greet", 0)
QUEUES, TASKS, PRIORITIES = ("a", "b"), ("greet", "scan"), (-1, 0, 5)


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch, store: Store, clock: Clock) -> Store:
    """A store that finds every look slow, and has surveyed: the next survey is LONGEST away."""
    monkeypatch.setattr(looks, "SLOW", -1.0)
    monkeypatch.setattr(looks, "IN_A_ROW", 0)
    monkeypatch.setattr(looks, "REST", 1e9)
    monkeypatch.setattr(looks, "SOONER", 0.0)
    assert not claim(store, tasks=TASKS).jobs
    clock.advance(10)
    return store


def ids(store: Store, limit: int = 1, **options: Any) -> list[str]:
    return [str(job.id) for job in claim(store, limit, tasks=TASKS, **options).jobs]


def test_the_usual_jobs_are_taken_from_the_floors_on(narrow: Store, clock: Clock) -> None:
    for told in ((), [HERE]):
        id = a_queued_job(narrow)
        assert ids(narrow, told=told) == [id]
        clock.advance(1)


def test_it_really_looks_from_floors_on(narrow: Store, settings: Settings) -> None:
    a_queued_job(narrow)
    with raw(settings) as sql:
        sql("update {jobs} set ready_at = ready_at - interval '1 hour'")
    assert not ids(narrow)
    assert not ids(narrow, told=[HERE])


def test_what_stands_before_a_floor_is_found_by_the_next_survey(
    narrow: Store, settings: Settings, clock: Clock
) -> None:
    """As a job that was committed long after it was enqueued."""
    id = a_queued_job(narrow)
    with raw(settings) as sql:
        sql("update {jobs} set ready_at = ready_at - interval '1 hour'")
    clock.advance(LONGEST - 11)
    assert not ids(narrow)
    clock.advance(1)
    assert ids(narrow) == [id]


def test_who_connects_anew_remembers_nothing(narrow: Store, settings: Settings) -> None:
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


def test_what_is_committed_a_little_late_is_found_at_once(narrow: Store, settings: Settings, clock: Clock) -> None:
    assert ids(narrow, told=[HERE]) == []
    id = a_queued_job(narrow)
    with raw(settings) as sql:
        sql(f"update {{jobs}} set ready_at = ready_at - interval '{SLACK / 2} seconds'")
    assert ids(narrow, told=[HERE]) == [id]


@pytest.mark.parametrize("told", [(), [HERE]], ids=["everywhere", "told"])
def test_a_job_given_back_is_found_soon(narrow: Store, clock: Clock, told: list[tuple[str, str, int]]) -> None:
    id = a_queued_job(narrow)
    clock.advance(1)
    [held] = claim(narrow, tasks=TASKS, told=told).jobs
    clock.advance(5)
    assert not ids(narrow, told=told)
    narrow.release(ref(held))
    assert not ids(narrow, told=[HERE]), "it waits in its old place"
    assert ids(narrow) == [id], "so we survey sooner"


def test_one_that_another_gave_back_is_found_by_the_next_survey(narrow: Store, stores: Any, clock: Clock) -> None:
    other = stores(clock=clock)
    id = a_queued_job(narrow)
    [held] = claim(other, tasks=TASKS).jobs
    clock.advance(5)
    assert not ids(narrow)
    other.release(ref(held))
    assert not ids(narrow)
    clock.advance(LONGEST)
    assert ids(narrow) == [id]


@pytest.mark.parametrize("how", ["reschedule", "rescue", "retry"])
def test_a_job_that_waits_again_from_now_on_is_found_at_once(narrow: Store, clock: Clock, how: str) -> None:
    id = a_queued_job(narrow)
    [held] = claim(narrow, tasks=TASKS).jobs
    clock.advance(5)
    assert not ids(narrow)
    if how == "reschedule":
        narrow.reschedule(ref(held), 7, BOOM)
        assert claim(narrow, tasks=TASKS).next_due == pytest.approx(7)
        clock.advance(7)
    elif how == "retry":
        narrow.fail(ref(held), BOOM)
        narrow.retry(id)
    else:
        clock.advance(LEASE + 1)
        assert len(narrow.rescue()) == 1
    assert ids(narrow) == [id]


@pytest.mark.parametrize("lane", [("other", "greet", 0), ("default", "scan", 0), ("default", "greet", -7)])
def test_a_lane_that_nobody_told_of_is_found_by_its_new_jobs(narrow: Store, clock: Clock, lane: Any) -> None:
    queue, task, priority = lane
    for _ in range(2):
        id = a_queued_job(narrow, queue=queue, task=task, priority=priority)
        assert ids(narrow) == [id]
        clock.advance(1)
    later = a_queued_job(narrow, queue="later", task=task, priority=priority, delay=30)
    assert claim(narrow, tasks=TASKS).next_due == pytest.approx(30)
    clock.advance(31)
    assert ids(narrow) == [later]


def test_jobs_of_others_are_left_alone(narrow: Store) -> None:
    a_queued_job(narrow, task="stranger")
    a_queued_job(narrow, queue="elsewhere")
    assert not ids(narrow, queues=("default",))


@pytest.mark.parametrize(("kind", "name"), [("queue", "default"), ("task", "greet")])
def test_what_came_during_a_pause_is_taken_when_it_ends(narrow: Store, clock: Clock, kind: str, name: str) -> None:
    narrow.hold(kind, name, delay=30)
    id = a_queued_job(narrow)
    for told in ((), [HERE]):
        clock.advance(10)
        claimed = claim(narrow, tasks=TASKS, told=told)
        assert not claimed.jobs
    assert claimed.next_due is None or claimed.next_due == pytest.approx(10)
    clock.advance(11)
    assert ids(narrow) == [id]


def test_what_a_pause_by_filter_set_aside_is_found_by_the_next_survey(narrow: Store, clock: Clock) -> None:
    narrow.hold("filter", "task:greet", filter=parse("task:greet"))
    id, other = a_queued_job(narrow), a_queued_job(narrow, task="scan")
    assert ids(narrow, 5) == [other]
    assert narrow.get(id).barred_by == "task:greet"
    clock.advance(20)
    assert not ids(narrow)
    narrow.let_go("filter", "task:greet")
    clock.advance(LONGEST)
    assert ids(narrow) == [id]


def test_a_suspect_is_run_alone_at_once(narrow: Store, clock: Clock) -> None:
    suspects = [a_queued_job(narrow, task="scan") for _ in range(2)]
    assert ids(narrow, 2, held=1) == suspects
    clock.advance(LEASE + 1)
    assert len(narrow.rescue()) == 2
    id = a_queued_job(narrow)
    assert claim(narrow, tasks=TASKS, told=[HERE]).alone
    first = claim(narrow, 5, tasks=TASKS)
    assert first.alone
    assert [str(job.id) for job in first.jobs] == suspects[:1]
    assert ids(narrow, held=1) == [id]


@pytest.mark.parametrize("told", [(), [HERE]], ids=["everywhere", "told"])
def test_what_others_have_locked_keeps_its_place(
    narrow: Store, settings: Settings, clock: Clock, told: list[tuple[str, str, int]]
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
def test_many_claims_take_all_there_is_in_order(narrow: Store, clock: Clock, seed: int) -> None:
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


def test_a_job_enqueued_for_the_past_in_a_known_lane_waits_for_a_survey_at_most(narrow: Store, clock: Clock) -> None:
    id = a_queued_job(narrow, run_at=clock.now.replace(year=clock.now.year - 1))
    clock.advance(LONGEST)
    assert ids(narrow) == [id]
    assert narrow.get(id).state is State.RUNNING


# -- when ------------------------------------------------------------------------------------------------------------


class Watch:
    def __init__(self) -> None:
        self.now = 1000.0


ANY = Wants(fence="f", worker="w", tasks=("greet",), limit=1, lease=20)
TOLD = Wants(fence="f", worker="w", tasks=("greet",), limit=1, lease=20, told=(HERE,))


@pytest.fixture
def watch(engine: str) -> Watch:
    return Watch()


@pytest.fixture
def memory(watch: Watch) -> Looks:
    return Looks(lambda: watch.now)


def look(memory: Looks, watch: Watch, took: float) -> None:
    began = watch.now
    watch.now += took
    memory.looked_everywhere(began)


def test_as_long_as_looks_are_quick_nothing_differs(memory: Looks, watch: Watch) -> None:
    for took in (SLOW / 2, SLOW * 5, SLOW * 5, SLOW / 2) * 3:
        look(memory, watch, took)
        assert not memory.owes_survey(ANY)
        assert memory.next(ANY) is None
        assert memory.next(TOLD) is None


def test_after_slow_looks_in_a_row_a_survey_decides(memory: Looks, watch: Watch) -> None:
    for _ in range(IN_A_ROW):
        assert not memory.owes_survey(ANY)
        look(memory, watch, SLOW * 2)
    assert not memory.owes_survey(TOLD)
    assert memory.owes_survey(ANY)
    memory.surveyed(watch.now, [], 0, SLOW / 2)  # it is not the lanes: a slow network, or very many jobs taken
    assert memory.next(ANY) is None
    for _ in range(IN_A_ROW):
        look(memory, watch, SLOW * 2)
    assert not memory.owes_survey(ANY), "not so soon again"
    watch.now += AGAIN
    assert memory.owes_survey(ANY)


@pytest.mark.parametrize("took", [SLOW * 2, 1.0])
def test_surveys_take_little_of_the_time_and_come_once_a_minute(memory: Looks, watch: Watch, took: float) -> None:
    memory.surveyed(watch.now, [(*HERE, 3.0)], 7, took)
    recent = memory.next(ANY)
    assert recent is not None
    assert recent.age(HERE) == pytest.approx(3.0 + SLACK)
    assert recent.newest == 7
    rest = min(REST * took, LONGEST)
    watch.now += rest * 0.99
    assert not memory.owes_survey(ANY)
    watch.now += rest * 0.02
    assert memory.owes_survey(ANY)
    memory.surveyed(watch.now, [], 7, SLOW / 2)
    assert memory.next(ANY) is None, "it is over"


def test_a_survey_is_not_undone_by_a_look_that_began_before_it(memory: Looks, watch: Watch) -> None:
    memory.surveyed(watch.now, [(*HERE, 0.0)], 0, 1.0)
    watch.now += 10
    before = memory.next(TOLD)
    assert before is not None
    memory.surveyed(watch.now, [(*HERE, 500.0)], 0, 1.0)
    memory.looked(before, [(*HERE, 0.0)], 0)
    after = memory.next(TOLD)
    assert after is not None
    assert after.age(HERE) == pytest.approx(500 + SLACK)


def test_with_very_many_lanes_it_looks_everywhere(memory: Looks, watch: Watch) -> None:
    memory.surveyed(watch.now, [(f"q{n}", "greet", 0, 0.0) for n in range(looks.MANY + 1)], 0, 1.0)
    assert memory.next(ANY) is None
