"""The test kit, as users use it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadArguments,
    BadSettings,
    Cancel,
    Holdfast,
    JobContext,
    JobFailed,
    Secret,
    Snooze,
    State,
    WaitTimeout,
    testing,
)
from holdfast.store.sqlite.connect import path_of
from holdfast.testing import Kit
from holdfast.testing.clock import Clock

hf = Holdfast("postgresql://nobody@nowhere.invalid/jobs")  # never reached: the kit stands in front of it
sent: list[str] = []


@hf.task(max_attempts=3, retry=[5, 60], queue="mail")
def send(to: str, text: str = "hello") -> str:
    sent.append(to)
    return f"{text} {to}"


@hf.task
async def greet(name: str) -> str:
    await asyncio.sleep(0)
    return f"hello {name}"


@hf.task(isolation="process")
def alone(to: str) -> None:
    sent.append(to)


@hf.task
def chain(n: int) -> None:
    if n:
        chain.enqueue(n - 1)


@hf.task
def forever() -> None:
    forever.enqueue()


@hf.task
def sleepy() -> None:
    raise Snooze(60)


@hf.task
def unwanted() -> None:
    raise Cancel("no longer wanted")


@hf.task(max_attempts=1)
def login(user: str, password: str, pin: Secret[str] = "0000") -> None:
    raise PermissionError(f"{user} may not, with {password} and {pin}")


@pytest.fixture
def kit() -> Iterator[Kit]:
    sent.clear()
    with testing.store(hf) as kit:
        yield kit


# -- the store ---------------------------------------------------------------------------------------------------------


def test_a_task_with_a_process_of_its_own_runs_here_where_its_effects_can_be_seen(kit: Kit) -> None:
    alone.enqueue("somebody")
    kit.run_due(expect="succeeded")
    assert sent == ["somebody"]


def test_the_application_is_on_a_real_file_and_as_before_afterwards(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/mine.db")
    double = app.task(name="double")(lambda n: 2 * n)
    mine = double.enqueue(1)
    opened, settings = app.store, app.settings
    with testing.store(app) as kit:
        path = path_of(app.settings)
        assert path.exists()
        job = double.enqueue(21)
        kit.run_due()
        assert job.refresh().result == 42
        assert [one.id for one in kit.jobs()] == [job.id]
    assert app.store is opened
    assert app.settings is settings
    assert not path.parent.exists()
    assert mine.state is State.QUEUED
    app.close()


def test_it_is_thrown_away_when_the_test_fails_too(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/mine.db")
    before = app.settings
    paths: list[Path] = []

    def fails() -> None:
        with testing.store(app):
            paths.append(path_of(app.settings))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert app.settings is before
    assert not paths[0].parent.exists()
    assert not (tmp_path / "mine.db").exists()


def test_stores_can_be_nested(kit: Kit) -> None:
    outer = send.enqueue("outer")
    with testing.store(hf) as inner:
        inner.assert_not_enqueued(send)
    assert kit.jobs()[0].id == outer.id


def test_settings_may_be_given() -> None:
    with testing.store(hf, lease=4.0, concurrency=7):
        assert (hf.settings.lease, hf.settings.heartbeat, hf.settings.concurrency) == (4, 1, 7)


def test_an_application_without_tasks_is_told_so(tmp_path: Path) -> None:
    with testing.store(Holdfast(f"sqlite:///{tmp_path}/x.db")) as kit, pytest.raises(BadSettings, match="no tasks"):
        kit.run_due()


# -- run_due -----------------------------------------------------------------------------------------------------------


def test_what_is_due_runs_here_and_is_returned(kit: Kit) -> None:
    a, b = send.enqueue("a"), greet.enqueue("b")
    ran = kit.run_due()
    assert {(one.id, one.task, one.attempt, one.outcome) for one in ran} == {
        (a.id, "send", 1, "succeeded"),
        (b.id, "greet", 1, "succeeded"),
    }
    assert (a.refresh().result, b.refresh().result, sent) == ("hello a", "hello b", ["a"])
    assert kit.run_due() == []


def test_jobs_that_jobs_enqueue_are_run_too(kit: Kit) -> None:
    chain.enqueue(3)
    assert len(kit.run_due()) == 4
    assert len(kit.jobs(chain, state="succeeded")) == 4


def test_one_at_a_time_in_the_order_of_a_worker(kit: Kit) -> None:
    for to, priority in (("late", -1), ("first", 9), ("second", 0), ("third", 0)):
        send.using(priority=priority).enqueue(to)
    kit.run_due()
    assert sent == ["first", "second", "third", "late"]


def test_only_the_queues_that_are_named(kit: Kit) -> None:
    send.enqueue("a"), greet.enqueue("b")
    assert [one.task for one in kit.run_due(queues=["default"])] == ["greet"]


def test_a_task_that_enqueues_itself_for_ever_is_found_out(kit: Kit) -> None:
    forever.enqueue()
    with pytest.raises(AssertionError, match="20 attempts ran and more is due: does a task enqueue itself"):
        kit.run_due(limit=20)


def test_how_attempts_end_is_told(kit: Kit) -> None:
    snoozed, cancelled = sleepy.enqueue(), unwanted.enqueue()
    outcomes = {one.id: (one.outcome, one.error, one.delay) for one in kit.run_due()}
    assert outcomes == {
        snoozed.id: ("released", None, 60.0),
        cancelled.id: ("stopped", "CANCELLED: no longer wanted", 0.0),
    }


def test_expect_is_what_every_job_must_be_in_and_says_what_it_is_in_instead(kit: Kit) -> None:
    send.enqueue("a")
    assert len(kit.run_due(expect="succeeded")) == 1
    send.enqueue("b")
    with (
        kit.failing(send, ConnectionError("connection refused")),
        pytest.raises(AssertionError) as wrong,
    ):
        kit.run_due(expect=State.SUCCEEDED)
    assert "1 of 1 jobs that ran are not succeeded" in str(wrong.value)
    assert "job 2 send(to='b') in queue mail: queued, due in 5s (" in str(wrong.value)
    assert "after attempt 1 of 3: ConnectionError: connection refused" in str(wrong.value)


def test_expect_says_so_when_nothing_was_due(kit: Kit) -> None:
    send.using(delay=7200).enqueue("a")
    with pytest.raises(AssertionError, match=r"nothing was due.*\n.*queued, due in 2h"):
        kit.run_due(expect="succeeded")
    with pytest.raises(BadArguments, match="there is no state 'done'"):
        kit.run_due(expect="done")


async def _asynchronous(kit: Kit) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    beating = asyncio.create_task(beat())
    job = await greet.aenqueue("you")
    kit.assert_enqueued(greet, name="you")
    [ran] = await kit.arun_due(expect="succeeded")
    assert (ran.id, await job) == (job.id, "hello you")
    assert beats > 1
    beating.cancel()


def test_asynchronous_tests_keep_their_loop_going(kit: Kit) -> None:
    asyncio.run(_asynchronous(kit))


def test_run_due_also_works_in_a_coroutine(kit: Kit) -> None:
    async def test() -> None:
        await greet.aenqueue("you")
        kit.run_due(expect="succeeded")

    asyncio.run(test())


# -- the clock ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["3", "-3h", -1, None])
def test_a_duration_that_is_none_is_refused(kit: Kit, wrong: Any) -> None:
    with pytest.raises(BadArguments, match="how far"):
        kit.advance(wrong)


def test_time_stands_still_until_it_is_moved() -> None:
    start = datetime(2030, 1, 1, tzinfo=UTC)
    with testing.store(hf, now=start) as kit:
        job = send.enqueue("a")
        assert job.refresh().record.created_at == start
        assert kit.advance("3h") == kit.now == start + timedelta(hours=3)
        kit.run_due()
        assert (job.refresh().record.started_at, job.refresh().record.finished_at) == (kit.now, kit.now)
    with pytest.raises(BadArguments, match="time zone"):
        Clock(datetime(2030, 1, 1))


def test_the_clock_holds_for_delays_and_due_times(kit: Kit) -> None:
    send.using(delay=3 * 3600).enqueue("delayed")
    send.using(run_at=kit.now + timedelta(hours=5)).enqueue("at")
    kit.advance("2h 59m 59s")
    assert kit.run_due() == []
    kit.advance("1s")
    kit.run_due()
    assert sent == ["delayed"]
    kit.advance("2h")
    kit.run_due()
    assert sent == ["delayed", "at"]


def test_the_clock_holds_for_many_jobs_and_for_a_callers_transaction(kit: Kit) -> None:
    kit.advance("10d")
    hf.enqueue_many(send.using(delay=60).bind(to) for to in "ab")
    connection = sqlite3.connect(path_of(hf.settings))
    with connection:
        send.using(delay=60, conn=connection).enqueue("c")
    connection.close()
    assert {job.record.run_at for job in kit.jobs()} == {kit.now + timedelta(seconds=60)}
    assert kit.run_due() == []
    kit.advance("60s")
    assert len(kit.run_due()) == 3


def test_the_clock_holds_for_retries(kit: Kit) -> None:
    job = send.enqueue("a")
    with kit.failing(send, ConnectionError("down")):
        [first] = kit.run_due()
        assert (first.outcome, first.delay, first.error) == ("rescheduled", 5, "ConnectionError: down")
        kit.advance("4s")
        assert kit.run_due() == []
        kit.advance("1s")
        assert [one.attempt for one in kit.run_due()] == [2]
        kit.advance("1m")
        assert [one.outcome for one in kit.run_due()] == ["failed"]
    assert job.refresh().state is State.FAILED


def test_the_clock_holds_for_expiry(kit: Kit) -> None:
    job = send.using(expires=60).enqueue("a")
    kit.advance("61s")
    assert kit.run_due() == []
    assert job.refresh().state is State.CANCELLED


def test_the_clock_holds_for_leases(kit: Kit) -> None:
    job = send.enqueue("a")
    kit.crash(job)
    assert job.refresh().state is State.RUNNING
    kit.advance(hf.settings.lease - 0.1)
    assert kit.run_due() == []
    kit.advance("200ms")
    [again] = kit.run_due()
    assert (again.id, again.attempt, again.outcome) == (job.id, 2, "succeeded")
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed"]


def test_a_job_whose_workers_die_again_and_again_fails_and_the_others_are_not_charged(kit: Kit) -> None:
    others = [send.enqueue("b"), send.enqueue("c")]
    job = send.enqueue("a")
    for _ in range(3):
        kit.crash(job)
        kit.advance("21s")
        kit.run_due(queues=["elsewhere"])  # rescued, not run
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed"] * 3
    with pytest.raises(AssertionError, match=r"no worker would take it: job 3 send.*failed, attempt 3 of 3: QUARANTI"):
        kit.crash(job)
    assert [(one.refresh().state, one.refresh().record.attempt, one.attempts()) for one in others] == [
        (State.QUEUED, 0, [])
    ] * 2


def test_the_clock_holds_for_retention(kit: Kit) -> None:
    send.enqueue("a")
    kit.run_due()
    kit.advance("6d")
    kit.run_due()
    assert len(kit.jobs()) == 1
    kit.advance("2d")
    kit.run_due()
    assert kit.jobs() == []


def test_the_clock_holds_for_pauses_and_kept_results(kit: Kit) -> None:
    hf.pause_queue("mail", until=timedelta(hours=1))
    job = send.using(key="k", reuse=3600).enqueue("a")
    assert kit.run_due() == []
    kit.advance("1h")
    assert len(kit.run_due()) == 1
    assert not send.using(key="k", reuse=3600).enqueue("a").created
    kit.advance("61m")
    assert send.using(key="k", reuse=3600).enqueue("a").id != job.id


# -- assertions --------------------------------------------------------------------------------------------------------


def test_a_job_is_found_by_some_of_its_arguments(kit: Kit) -> None:
    send.enqueue("other")
    job = send.enqueue("you", text="bye")
    assert kit.assert_enqueued(send, to="you").id == job.id
    assert kit.assert_enqueued(send, "you", text="bye").refresh().args == {"to": "you", "text": "bye"}
    kit.assert_enqueued(send)
    kit.assert_enqueued(send, to="other", text="hello")  # what the handler would be given
    kit.assert_not_enqueued(send, to="nobody")
    kit.assert_not_enqueued(greet)
    kit.run_due()
    kit.assert_enqueued(send, to="you")  # whatever became of it


def test_a_job_is_found_by_its_options(kit: Kit) -> None:
    send.using(delay=60, priority=3, key="k", tags=["x"], correlation_id="c").enqueue("you")
    kit.assert_enqueued(send.using(delay=60, priority=3), to="you")
    kit.assert_enqueued(send.using(key="k", tags=["x"], correlation_id="c", delay=timedelta(minutes=1)))
    for other in (send.using(delay=61), send.using(priority=4), send.using(key="l"), send.using(queue="default"),
                  send.using(tags=["y"]), send.using(expires=60), send.using(run_at=kit.now)):  # fmt: skip
        kit.assert_not_enqueued(other, to="you")


def test_a_failed_assertion_lists_what_there_is(kit: Kit) -> None:
    with pytest.raises(AssertionError, match=r"no job of send\(to='you'\) was enqueued; there are no jobs"):
        kit.assert_enqueued(send, to="you")
    send.using(delay=90).enqueue("me")
    greet.enqueue("x")
    with pytest.raises(AssertionError) as wrong:
        kit.assert_enqueued(send.using(queue="post"), to="you")
    assert str(wrong.value).splitlines() == [
        "no job of send(to='you') with queue='post' was enqueued; there are:",
        f"  job 1 send(to='me') in queue mail: queued, due in 90s ({(kit.now + timedelta(seconds=90)).isoformat()})",
        "  job 2 greet(name='x') in queue default: queued, due now",
    ]
    with pytest.raises(AssertionError, match=r"1 jobs of greet\(\) were enqueued:\n  job 2 greet"):
        kit.assert_not_enqueued(greet)


def test_a_long_list_is_cut(kit: Kit) -> None:
    hf.enqueue_many(greet.bind(str(n)) for n in range(30))
    with pytest.raises(AssertionError) as wrong:
        kit.assert_enqueued(send)
    assert "… and 10 older ones" in str(wrong.value)
    assert len(str(wrong.value).splitlines()) == 22


def test_an_argument_the_task_does_not_have_is_a_mistake_of_the_test(kit: Kit) -> None:
    with pytest.raises(BadArguments, match="unexpected keyword argument 'whom'"):
        kit.assert_not_enqueued(send, whom="you")


def test_secret_arguments_are_not_in_the_messages(kit: Kit) -> None:
    login.enqueue("usr", password="canary-1", pin="canary-2")
    kit.run_due()
    with pytest.raises(AssertionError) as wrong:
        kit.assert_enqueued(login, password="canary-3", pin="canary-4")
    assert "canary" not in str(wrong.value)
    assert "login(user='usr', password='***', pin='***')" in str(wrong.value)
    assert "PermissionError: usr may not, with *** and ***" in str(wrong.value)


def test_more_jobs_than_a_page_are_all_seen(kit: Kit) -> None:
    hf.enqueue_many(greet.bind(str(n)) for n in range(1234))
    assert [job.args["name"] for job in kit.jobs(greet)] == [str(n) for n in range(1234)]
    assert len(kit.jobs("greet", state=State.QUEUED)) == 1234
    kit.assert_enqueued(greet, name="0")


# -- trouble -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [send, greet])
def test_a_handler_can_be_made_to_fail_so_many_times(kit: Kit, task: Any) -> None:
    job = task.using(max_attempts=3).enqueue("a")
    with kit.failing(task, TimeoutError, times=1):
        assert [one.error for one in kit.run_due()] == ["TimeoutError: TimeoutError"]
        kit.advance("10m")
        kit.run_due(expect="succeeded")
    assert job.wait(1) == "hello a"
    with kit.failing(task, RuntimeError("always")):
        last = task.using(max_attempts=1).enqueue("b")
        kit.run_due(expect="failed")
        with pytest.raises(JobFailed, match="always"):
            last.wait(1)
    assert task.using(max_attempts=1).enqueue("c").created
    kit.run_due(expect="succeeded")


RUN_FIRST = r"In the test kit, .* kit\.run_due\(\)"


def test_waiting_for_what_nobody_runs_says_to_run_it(kit: Kit) -> None:
    job = greet.enqueue("you")
    with pytest.raises(WaitTimeout, match=r"job \d+ is queued: it is due\. " + RUN_FIRST):
        job.wait()
    with pytest.raises(WaitTimeout, match=r"after 0\.01 s: it is due\. " + RUN_FIRST):
        job.wait(0.01)
    with pytest.raises(WaitTimeout, match=RUN_FIRST):
        asyncio.run(job.await_())
    with pytest.raises(WaitTimeout, match=RUN_FIRST):
        list(job.updates())
    with pytest.raises(WaitTimeout, match=r"is queued: it is due at .* " + RUN_FIRST):
        greet.using(delay=60).enqueue("later").wait()


def test_a_job_that_is_run_between_two_updates_is_followed_to_its_end(kit: Kit) -> None:
    job = send.enqueue("you")
    with kit.failing(send, ConnectionError, times=1):
        seen = []
        for update in job.updates():
            seen.append((update.state, update.record.attempt))
            kit.run_due()
            kit.advance("5s")
    assert seen == [("queued", 0), ("queued", 1), ("succeeded", 2)]


def test_one_thread_may_wait_for_what_another_runs(kit: Kit) -> None:
    begun, waited = threading.Event(), threading.Event()

    @hf.task
    def slow() -> str:
        begun.set()
        assert waited.wait(20)
        return "done"

    try:
        job = slow.enqueue()
        with ThreadPoolExecutor() as threads:
            running = threads.submit(kit.run_due)
            assert begun.wait(20)
            waiting = threads.submit(job.wait)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.2)  # it has looked several times by now
            waited.set()
            assert waiting.result(timeout=20) == "done"
            assert [ran.outcome for ran in running.result(timeout=20)] == ["succeeded"]
    finally:
        del hf.tasks["slow"], hf._names["slow"]


def test_a_handler_cannot_move_its_own_application(kit: Kit) -> None:
    @hf.task(max_attempts=1)
    def mover(ctx: JobContext) -> None:
        with testing.store(hf):
            pass

    try:
        mover.enqueue()
        [ran] = kit.run_due()
        assert "can't move its own application" in (ran.error or "")
    finally:
        del hf.tasks["mover"], hf._names["mover"]


def test_the_kit_tells_why_a_job_would_not_run(kit: Kit) -> None:
    job = send.enqueue("you")
    assert kit.why(job) == []
    hf.pause_queue("mail", reason="the provider is down")
    assert kit.why(job) == ["QUEUE_PAUSED"]
    with pytest.raises(AssertionError, match="the provider is down"):
        kit.run_due(expect="succeeded")
    hf.resume_queue("mail")
    with kit.failing(send, ConnectionError("down")):
        kit.run_due()
    assert kit.why(job) == ["BACKOFF"]
    kit.advance("1h")
    assert kit.why(job) == []


def test_an_attempt_that_failed_has_the_exception(kit: Kit) -> None:
    send.enqueue("you")
    down = ConnectionError("server is down")
    with kit.failing(send, down):
        [ran] = kit.run_due()
    assert ran.exception is down
    kit.advance("5s")
    assert [ran.exception for ran in kit.run_due(expect="succeeded")] == [None]
    assert kit.app._hooks.error == []


# -- crons -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("early", [True, False], ids=["declared before", "declared in the kit"])
def test_a_cron_runs_when_its_tick_has_come(early: bool) -> None:
    app = Holdfast()
    ticks: list[datetime | None] = []

    def declare() -> None:
        @app.task(cron="0 6 * * *")
        def report(ctx: JobContext) -> None:
            ticks.append(ctx.job.tick)

    if early:
        declare()
    with testing.store(app, now=datetime(2030, 1, 1, 12, tzinfo=UTC)) as kit:
        if not early:
            declare()
        assert kit.run_due() == []
        kit.advance("17h")
        assert kit.run_due() == [], "its tick is an hour away"
        kit.advance("1d")
        assert [one.outcome for one in kit.run_due()] == ["succeeded"]
        assert ticks == [datetime(2030, 1, 2, 6, tzinfo=UTC)]
        assert kit.run_due() == []


def test_a_cron_runs_in_a_transaction_of_the_tests(tmp_path: Path) -> None:
    app = Holdfast()

    @app.task(cron="@daily")
    def report() -> None: ...

    connection = sqlite3.connect(tmp_path / "mine.db", isolation_level=None)
    connection.execute("begin")
    with testing.store(app, conn=connection) as kit:
        kit.advance("1d")
        assert [one.task for one in kit.run_due()] == ["report"]
    connection.close()


def test_what_the_kit_does_not_know_is_refused_in_words() -> None:
    with (
        pytest.raises(BadSettings, match="there is no setting 'leese'; did you mean lease"),
        testing.store(hf, leese=3),
    ):
        pass
    with (
        pytest.raises(BadArguments, match=r"now must be a datetime with a time zone, as in .*, not '2030-01-01'"),
        testing.store(hf, now="2030-01-01"),  # type: ignore[arg-type]
    ):
        pass
    assert hf.settings.url.endswith("nowhere.invalid/jobs")
