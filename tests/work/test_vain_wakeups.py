"""Anyone who can connect to the database can send notifications. A flood of them costs few looks; honest ones are acted
on at once, whoever takes the job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Holdfast, State, events
from holdfast.model.job import Claimed
from holdfast.model.peers import LATE, Place
from holdfast.store.postgres.store import PostgresStore
from holdfast.worker.poller import APART, LONGEST, LOOKS, SHORTEST, VainWakeups
from holdfast.worker.rescuer import now
from holdfast.worker.watchdog import SPREAD
from tests.running import await_state, working
from tests.waiting import wait_until
from tests.work.scripted import Bench, held, listening

HERE = '["default", "greet", 0]'
STEP = 0.001  # seconds between two wake-ups of a flood


class Jobs:
    """How many were ever enqueued."""

    def __init__(self) -> None:
        self.newest = 0
        self.read = 0

    def __call__(self) -> int:
        self.read += 1
        return self.newest


def rests_of(vain: VainWakeups, jobs: Jobs, looks: int, *, jobs_a_look: float, every: float = STEP) -> list[float]:
    """How long it rests after each of so many looks in vain."""
    now, rests = 100.0, []
    for look in range(looks):
        now = max(now + every, vain.until)
        jobs.newest = round(look * jobs_a_look)
        vain.in_vain(now)
        rests.append(round(max(0.0, vain.until - now), 6))
    return rests


def test_looks_that_nothing_was_enqueued_for_are_followed_by_growing_rests() -> None:
    jobs = Jobs()
    rests = rests_of(VainWakeups(jobs), jobs, 100, jobs_a_look=0.0)
    first = 2 * LOOKS - 1
    assert rests[:first] == [0.0] * first, "nothing is held against the first ones"
    assert rests[first : first + 3] == [SHORTEST, 2 * SHORTEST, 4 * SHORTEST]
    assert rests[-1] == LONGEST
    assert jobs.read == 100 // LOOKS, "and that costs a statement now and then"


@given(jobs_a_look=st.floats(0.6, 50), every=st.floats(0.0001, 10))
def test_where_jobs_come_it_never_rests_whoever_takes_them(jobs_a_look: float, every: float) -> None:
    jobs = Jobs()
    assert set(rests_of(VainWakeups(jobs), jobs, 500, jobs_a_look=jobs_a_look, every=every)) == {0.0}


def test_a_wakeup_now_and_then_is_not_held_against_the_sender() -> None:
    jobs = Jobs()
    assert set(rests_of(VainWakeups(jobs), jobs, 200, jobs_a_look=0.0, every=1.1 * APART)) == {0.0}
    assert jobs.read == 0


def test_a_job_found_ends_the_rest_and_so_does_the_news_that_jobs_come() -> None:
    jobs = Jobs()
    vain = VainWakeups(jobs)
    assert rests_of(vain, jobs, 60, jobs_a_look=0.0)[-1] == LONGEST
    vain.found()
    assert vain.until == 0.0
    assert rests_of(vain, jobs, LOOKS, jobs_a_look=0.0)[-1] == 0.0
    assert rests_of(vain, jobs, 60, jobs_a_look=0.0)[-1] == LONGEST
    assert rests_of(vain, jobs, 2 * LOOKS, jobs_a_look=50.0)[-1] == 0.0


# -- at the desk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench(monkeypatch, slots=5)
    listening(bench)
    bench.until_idle()
    return bench


WAKEUPS = {
    "for all": ("queue", "", None), "to a few": ("queue", "default", 0), "a lane": ("lane", HERE, 0),
    "due now": ("due", "0", 0), "due soon": ("due", "0.0005", 0),
    "second in line": ("queue", "default", 1), "a lane, second in line": ("lane", HERE, 1),
    "due now, second in line": ("due", "0", 1),
}  # fmt: skip


def flood(bench: Bench, *wakeups: tuple[str, str, int | None], seconds: float) -> list[float]:
    """The times of the looks that these make, over and over."""
    until, before = bench.time.now + seconds, len(bench.store.polls)
    number = 0
    while bench.time.now < until:
        bench.heard(*wakeups[number % len(wakeups)])
        number += 1
        bench.until_idle()
        at = bench.time.now
        with suppress(AssertionError):  # it has nothing in mind
            bench.desk.wait(STEP)
        bench.time.now = max(bench.time.now, at + STEP)
    return bench.store.polls[before:]


@pytest.mark.parametrize("wakeup", WAKEUPS.values(), ids=WAKEUPS)
def test_a_flood_makes_few_looks(bench: Bench, wakeup: tuple[str, str, int | None]) -> None:
    seconds = 10.0
    assert len(flood(bench, wakeup, seconds=seconds)) <= 2 * LOOKS + 10 + seconds * (1 / LATE + 1 / LONGEST)


def test_a_flood_of_all_kinds_makes_few_looks(bench: Bench) -> None:
    seconds = 10.0
    looks = flood(bench, *WAKEUPS.values(), seconds=seconds)
    assert len(looks) <= 2 * LOOKS + 10 + 3 * seconds / LATE + seconds / LONGEST


@pytest.mark.parametrize("late", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("wakeup", list(WAKEUPS.values())[:4], ids=list(WAKEUPS)[:4])
def test_a_wakeup_during_a_rest_leads_to_a_look_at_its_end(
    bench: Bench, wakeup: tuple[str, str, int | None], late: float
) -> None:
    flood(bench, WAKEUPS["to a few"], seconds=3.0)
    bench.desk.wakeups.wake()  # so that nothing from the flood is still asked for
    bench.until_idle()
    rest = bench.desk.poller.vain.until - bench.time.now
    assert rest > 0
    bench.time.now += late * rest
    bench.store.answers = [Claimed([held(1)])]
    bench.heard(*wakeup)
    bench.until_idle()
    assert not bench.runner.running, "it rests"
    at, _, _ = bench.next_trip()
    assert at == pytest.approx(bench.desk.poller.vain.until or at)
    assert len(bench.runner.running) == 1
    now = bench.time.now
    bench.heard(*wakeup)
    assert bench.next_trip()[0] == now, "it found a job, so the next wake-up is believed"


def test_what_a_worker_looks_for_by_itself_does_not_wait_for_the_rest(bench: Bench) -> None:
    flood(bench, WAKEUPS["to a few"], seconds=3.0)
    now = bench.time.now
    assert bench.desk.poller.vain.until > now
    bench.desk.wakeups.wake()
    assert bench.next_trip()[0] == now


def test_wakeups_for_jobs_that_peers_take_are_believed(bench: Bench) -> None:
    """So they are where the handlers they are for have no free slot."""
    looks = 0

    def taken(wants: object) -> Claimed:
        nonlocal looks
        looks += 1
        bench.store.newest_id += 1
        return Claimed()

    bench.store.always = taken
    for _ in range(300):
        before = looks
        bench.heard(*WAKEUPS["for all"])
        bench.until_idle()
        assert looks == before + 1, "at once"
        bench.time.now += STEP


def test_looks_in_the_place_of_others_are_not_counted(bench: Bench) -> None:
    """Who comes second in line looks in vain as a rule. Its own turn must not suffer for that."""
    bench.desk.wakeups.peers_changed(Place(rank=1, count=5))
    flood(bench, *(WAKEUPS[name] for name in WAKEUPS if "second" in name), seconds=20.0)
    now = bench.time.now
    bench.heard(*WAKEUPS["a lane"])
    assert bench.next_trip()[0] == now


def test_a_full_worker_passes_on_few_of_the_times_it_is_told(bench: Bench) -> None:
    bench.desk.wakeups.peers_changed(Place(rank=0, count=5))
    bench.store.answers = [Claimed([held(id) for id in range(1, 6)])]
    bench.desk.wakeups.wake()
    bench.until_idle()
    bench.runner.may_wait = False
    began = bench.time.now
    for _ in range(1000):
        bench.heard(*WAKEUPS["due now"])
        bench.desk.turn()
        bench.time.now += STEP
    assert 1 <= len(bench.store.hints) <= (bench.time.now - began) / LATE + 2


# -- for real ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> str:
    return "postgres"


class Chances:
    """Late at first, and then early."""

    def __init__(self) -> None:
        self._asked = 0

    def random(self) -> float:
        self._asked += 1
        return 0.9 if self._asked == 1 else 0.0


class Stranger:
    """Sends notifications, one after the other, from a thread."""

    def __init__(self, url: str, channels: list[str], payloads: list[str]) -> None:
        self.sent = 0
        self._stop = threading.Event()
        self._notify = [(channel, payload) for channel in channels for payload in payloads]
        self._thread = threading.Thread(target=self._run, args=(url,), daemon=True)

    def _run(self, url: str) -> None:
        with psycopg.connect(url, autocommit=True) as db:
            while not self._stop.is_set():
                db.execute("select pg_notify(%s, %s)", self._notify[self.sent % len(self._notify)])
                self.sent += 1

    def __enter__(self) -> Stranger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_flood_costs_few_looks_and_a_job_in_its_middle_starts_soon(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(lease=600, heartbeat=200)  # so that no look of the watchdog's finds the job
    store = app.store
    assert isinstance(store, PostgresStore)
    app.task(name="task")(lambda: "done")
    seen: list[str] = []
    unsubscribe = events.subscribe(lambda name, fields: seen.append(name), only=["woken_in_vain", "deaf"])
    payloads = ["q", "qdefault", 'l["default","task",0]', "d0", "d0.001", "w", "r", "?"]
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.desk.poller.nothing_due and worker.desk.idle())
        with Stranger(app.settings.url, [store.wakeups.channel, *store.wakeups.channels[:3]], payloads) as stranger:
            wait_until(lambda: "woken_in_vain" in seen, "it rests")
            polls, sent, began = worker.desk.meters.polls, stranger.sent, time.monotonic()
            wait_until(lambda: stranger.sent > sent + 2000)
            looks, took = worker.desk.meters.polls - polls, time.monotonic() - began
            job = app.find_task("task").enqueue()
            enqueued = time.monotonic()
            await_state(job, State.SUCCEEDED)
            started = time.monotonic() - enqueued
        await_state(app.find_task("task").enqueue(), State.SUCCEEDED)
    unsubscribe()
    assert looks <= 20 + 30 * took, f"{looks} looks within {took:.1f} s"
    assert started < 5.0
    assert seen == ["woken_in_vain"]


def test_a_worker_that_hears_of_jobs_for_others_believes_what_it_hears(make_app: Callable[..., Holdfast]) -> None:
    """All are woken for several jobs, and it has no handler for these: each of its looks is in vain."""
    seen: list[str] = []
    unsubscribe = events.subscribe(lambda name, fields: seen.append(name), only=["woken_in_vain"])
    app, elsewhere = make_app(lease=600, heartbeat=200), make_app()
    mine = app.task(name="mine")(lambda: "done")
    others = elsewhere.task(name="others")(lambda: None)
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.desk.poller.nothing_due)
        for number in range(3 * LOOKS):
            elsewhere.enqueue_many([others.bind(), others.bind()])
            wait_until(lambda n=number: worker.desk.meters.polls > n + 1, "it looks")  # type: ignore[misc]
        await_state(mine.enqueue(), State.SUCCEEDED)
    unsubscribe()
    assert not seen


def test_however_often_peers_are_said_to_have_changed_one_look_is_planned(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(lease=600, heartbeat=200)
    app.task(name="task")(lambda: None)
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.watchdog.looked)
        watchdog = worker.watchdog
        wait_until(lambda: watchdog._look_at > now() + SPREAD)  # it heard of its own coming
        monkeypatch.setattr("holdfast.worker.watchdog.CHANCE", Chances())
        for _ in range(100):
            watchdog.look_soon(SPREAD)
        assert watchdog._look_at > now() + SPREAD / 2, "not at the earliest of a hundred chances"
