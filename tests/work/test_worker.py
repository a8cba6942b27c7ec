"""A worker as a whole: its names, what it says, how it ends, and what it does on the side."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Holdfast, Job, JobContext, State
from holdfast.errors import HoldfastError, SchemaOutdated, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.outcome import Outcome
from holdfast.model.retry import POLL_TRIES
from holdfast.worker import exchange as patience
from holdfast.worker import retention
from holdfast.worker.worker import AFTER_GRACE
from tests.contract.places import raw
from tests.factories import wants
from tests.running import HASTY, Heard, await_state, troubled, working
from tests.waiting import wait_until


@pytest.fixture
def app(make_app: Callable[..., Holdfast]) -> Holdfast:
    app = make_app()

    @app.task
    def task() -> str:
        return "done"

    return app


@pytest.mark.parametrize("days", [60, 30_000])
def test_a_job_of_the_far_future_stops_no_worker(make_app: Callable[..., Holdfast], days: int) -> None:
    app = make_app()

    @app.task
    def task() -> str:
        return "done"

    far = task.using(delay=timedelta(days=days)).enqueue()
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.nothing_due)
        assert task.enqueue().wait(timeout=20) == "done"
    assert far.refresh().state is State.QUEUED


def test_a_worker_whose_tables_are_gone_ends_and_says_so(make_app: Callable[..., Holdfast], engine: str) -> None:
    app = make_app(lease=1.0, heartbeat=0.2, grace=0.1)

    @app.task
    def task() -> None: ...

    ended: list[HoldfastError] = []

    def run() -> None:
        try:
            worker.run()
        except HoldfastError as error:
            ended.append(error)

    worker = app.worker()
    thread = threading.Thread(target=run)
    thread.start()
    task.enqueue().wait(timeout=20)
    wait_until(lambda: worker.watchdog.looked)
    with raw(app.settings) as sql:
        tables = ["jobs", "leases", "attempts", "workers", "pauses", "steps", "pending", "meta"]
        for table in tables:
            sql(f"drop table {{{table}}}" + " cascade" * (engine == "postgres"))
    thread.join(40)
    assert [type(error) for error in ended] == [SchemaOutdated]


# -- names -------------------------------------------------------------------------------------------------------------


def test_a_worker_is_called_by_its_setting_or_worker_id_or_host_and_pid(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    def name_of(**settings: Any) -> str:
        app = make_app(**settings)
        app.task(name="task")(lambda: None)
        return app.worker().name

    monkeypatch.delenv("WORKER_ID", raising=False)
    assert re.fullmatch(re.escape(socket.gethostname()) + r"-\d+", name_of())
    assert re.fullmatch(r"elsewhere-\d+", name_of(host="elsewhere"))
    monkeypatch.setenv("WORKER_ID", "press-3")
    assert name_of() == "press-3"
    assert name_of(worker_name="mine") == "mine"


def test_workers_of_one_name_have_different_ids(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_ID", "press/3")
    with working(app) as one, working(app, ["default"]) as other:
        wait_until(lambda: len(app.store.workers.all()) == 2)
        known = {worker.id: worker for worker in app.store.workers.all()}
        assert {one.id, other.id} == set(known)
        assert {worker.name for worker in known.values()} == {"press/3"}
        assert one.id != other.id
        assert "/" not in one.id  # it is a file's name, too
        assert known[one.id].queues is None
        assert known[other.id].queues == ("default",)
        assert known[one.id].tasks == ("task",)
        assert re.fullmatch(r"<Worker press~3~\w+: 0 of \d+ busy>", repr(one))
    assert app.store.workers.all() == []


# -- what it says ------------------------------------------------------------------------------------------------------


def test_the_life_of_a_worker_is_told(app: Holdfast, heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"), working(app, ["default"]) as worker:
        app.find_task("task").enqueue().wait(timeout=20)
    names = [name for name, _ in heard if name != "enqueued"]
    assert names[0] == "worker_started"
    assert names[-1] == "worker_stopped"
    assert {"claimed", "recorded", "listening"} <= set(names)
    assert heard.of("worker_stopped") == [{"worker": worker.id, "processed": 1}]
    assert caplog.messages[0].startswith(f"worker {worker.id} started: task on default, ")
    assert "claimed 1 job" in caplog.messages
    assert caplog.messages[-1] == f"worker {worker.id} stopped after 1 job"
    assert all(hasattr(record, "holdfast") for record in caplog.records)


def test_what_the_watchdog_logs_is_kept_word_for_word(
    make_app: Callable[..., Holdfast], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(lease=1.0)

    @app.task(max_attempts=2, retry=None)
    def task() -> None: ...

    first = abandoned(app, task.enqueue())
    last = abandoned(app, task.using(max_attempts=1).enqueue())
    with caplog.at_level(logging.INFO, "holdfast"), working(app):
        await_state(first, State.SUCCEEDED)
        await_state(last, State.FAILED)
    assert f"Recovering stale job {first.id} (Retry 1/2)" in caplog.messages
    assert f"Job {last.id} failed permanently" in caplog.messages
    last.refresh()
    assert last.error is not None
    assert last.error.message == "Job crashed and exceeded max retries"


def abandoned(app: Holdfast, job: Job[Any]) -> Job[Any]:
    """The job, claimed by a worker that is never heard of again."""
    app.store.exchange([], wants(tasks=(job.task,), worker=f"gone-{job.id}", lease=0.05))
    assert job.refresh().state is State.RUNNING
    return job


def test_a_handlers_failure_is_told_once(hf: Holdfast, caplog: pytest.LogCaptureFixture) -> None:
    @hf.task(max_attempts=1)
    def fails() -> None:
        raise ZeroDivisionError("no")

    job = fails.enqueue()
    hf.drain()
    told = rf"job {job.id} \(fails\) attempt 1 of 1 failed after \d\.\d+ s: ZeroDivisionError: no; no attempts are left"
    [said] = [message for message in caplog.messages if "failed" in message]
    assert re.fullmatch(told, said)


# -- trouble with the database -----------------------------------------------------------------------------------------


def test_a_poll_error_never_ends_the_worker(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    app = make_app(poll_base=0.01, poll_max=0.02)
    monkeypatch.setattr(patience, "error_delay", lambda attempt: 0.01)
    app.task(name="task")(lambda: "done")
    trouble: list[Exception] = [
        StoreError("permission denied"), RuntimeError("a bug"), *[StoreUnavailable("away")] * (POLL_TRIES + 1),
    ]  # fmt: skip

    def before(finished: Sequence[Outcome]) -> None:
        if trouble:
            raise trouble.pop(0)

    monkeypatch.setattr(app.store, "trips", troubled(app.store, before))
    with working(app) as worker:
        assert app.find_task("task").enqueue().wait(timeout=20) == "done"
        assert worker.desk.meters.consecutive_errors == 0
    assert [told["error"] for told in heard.of("poll_failed")] == ["HF3001 permission denied", "a bug", "HF3002 away"]


def test_a_value_the_database_refuses_fails_only_its_own_job(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()

    def before(finished: Sequence[Outcome]) -> None:
        if any(outcome.result == b'"poison"' for outcome in finished):
            raise ValueRefused("invalid input syntax")

    monkeypatch.setattr(app.store, "trips", troubled(app.store, before))

    @app.task
    async def task(text: str) -> str:
        return text

    jobs = [task.enqueue("poison" if n == 5 else "fine") for n in range(12)]
    assert app.drain() == 12
    assert [job.refresh().state for job in jobs] == [State.FAILED if n == 5 else State.SUCCEEDED for n in range(12)]
    jobs[5].refresh()
    assert jobs[5].error is not None
    assert jobs[5].error.code == "UNRECORDABLE"


def test_a_deaf_listener_is_repaired_and_polling_goes_on_meanwhile(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    app = make_app(poll_base=0.02, poll_max=0.05)
    app.task(name="task")(lambda: "done")
    listen, fail, failed = app.store.wakeups.listen, threading.Event(), threading.Event()
    fail.set()

    def listen_if_possible(*arguments: Any, **options: Any) -> None:
        if fail.is_set():
            failed.set()
            raise StoreUnavailable("the connection broke")
        listen(*arguments, **options)

    monkeypatch.setattr(app.store.wakeups, "listen", listen_if_possible)
    with working(app) as worker:
        failed.wait(20)
        assert not worker.desk.poller.listening
        assert app.find_task("task").enqueue().wait(timeout=10) == "done"
        fail.clear()
        wait_until(lambda: worker.desk.poller.listening)
        assert app.find_task("task").enqueue().wait(timeout=10) == "done"
    assert heard.of("deaf")[0] == {"error": "HF3002 the connection broke"}


# -- shutdown ---------------------------------------------------------------------------------------------------


def test_a_worker_that_stops_lets_handlers_finish_and_claims_nothing_more(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(threads=1)
    started, let_go = threading.Event(), threading.Event()

    @app.task
    def slow() -> str:
        started.set()
        let_go.wait(20)
        return "finished in time"

    first, second = slow.enqueue(), slow.enqueue()
    worker = app.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    started.wait(20)
    worker.stop()
    thread.join(2 * AFTER_GRACE)
    assert thread.is_alive(), "its grace is longer than what a worker without any takes to end"
    let_go.set()
    thread.join(20)
    assert not thread.is_alive()
    assert first.refresh().result == "finished in time"
    assert (second.refresh().state, second.refresh().record.attempt) == (State.QUEUED, 0)


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_what_does_not_finish_in_its_grace_is_given_back_uncharged(
    make_app: Callable[..., Holdfast], colour: str, heard: Heard
) -> None:
    app = make_app(grace=0.1)
    started, let_go = threading.Event(), threading.Event()

    def deaf() -> None:
        started.set()
        let_go.wait(20)

    async def coroutine() -> None:
        started.set()
        await asyncio.sleep(3600)

    task: Any = app.task(name="task", max_attempts=1)(deaf if colour == "sync" else coroutine)
    job = task.enqueue()
    with working(app):
        started.wait(20)
    let_go.set()
    record = job.refresh().record
    assert (record.state, record.attempt) == (State.QUEUED, 0)
    assert [attempt.outcome for attempt in job.attempts()] == ["released"]
    assert bool(heard.of("unstoppable")) is (colour == "sync")
    assert heard.of("errored") == []


def test_a_handler_that_checks_stops_early_at_shutdown_and_goes_on_elsewhere(make_app: Callable[..., Holdfast]) -> None:
    app = make_app()
    started = threading.Event()

    @app.task(max_attempts=1)
    def careful(ctx: JobContext) -> str:
        if ctx.saved:
            return f"went on from {ctx.saved}"
        started.set()
        while not ctx.should_stop():
            threading.Event().wait(0.005)
        ctx.checkpoint("page 7")
        raise AssertionError("a checkpoint at shutdown is the end of the attempt")

    job = careful.enqueue()
    worker = app.worker()
    thread = threading.Thread(target=worker.run)
    thread.start()
    started.wait(20)
    began = time.monotonic()
    worker.stop()
    thread.join(20)
    assert time.monotonic() - began < 15  # the grace is 25 s: it was not waited for
    assert (job.refresh().state, job.refresh().record.attempt) == (State.QUEUED, 0)
    assert app.drain() == 1
    assert job.refresh().result == "went on from page 7"


def test_a_worker_can_be_stopped_before_it_begins(app: Holdfast) -> None:
    worker = app.worker()
    worker.stop()
    assert worker.run() == 0


# -- on the side -------------------------------------------------------------------------------------------------------


def test_jobs_not_started_by_their_expiry_are_cancelled(hasty: Holdfast, heard: Heard) -> None:
    @hasty.task
    def task() -> str:
        return "done"

    hasty.pause_queue("default")
    late, early = task.using(expires=0).enqueue(), task.using(expires=3600).enqueue()
    with working(hasty):
        await_state(late, State.CANCELLED)
        assert early.refresh().state is State.QUEUED
        hasty.resume_queue("default")
        assert early.wait(timeout=20) == "done"
    late.refresh()
    assert late.error is not None
    assert late.error.code == "EXPIRED"
    assert late.refresh().record.attempt == 0
    assert {"count": 1} in heard.of("expired")


def test_an_expired_job_is_not_run_even_if_nobody_has_cancelled_it_yet(hf: Holdfast) -> None:
    ran: list[int] = []

    @hf.task
    def task(n: int) -> None:
        ran.append(n)

    task.using(expires=0).enqueue(1)
    task.enqueue(2)
    hf.drain()
    assert ran == [2]


def test_old_finished_jobs_are_forgotten(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    monkeypatch.setattr(retention, "EVERY", 0.0)
    app = make_app(**HASTY, keep_finished=0.0, keep_failed=3600.0)

    @app.task(max_attempts=1)
    def task(fails: bool) -> None:
        if fails:
            raise ZeroDivisionError

    done, failed, waiting = task.enqueue(False), task.enqueue(True), task.using(delay=3600).enqueue(False)
    app.drain()
    with working(app):
        wait_until(lambda: {record.id for record in app.jobs()} == {failed.id, waiting.id})
    assert done.id not in {record.id for record in app.jobs()}
    assert {"count": 1} in heard.of("purged")


def test_an_idle_worker_hardly_asks_the_database(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    original = app.store.look

    def look(*args: Any) -> Any:
        looks.append(time.monotonic())
        return original(*args)

    monkeypatch.setattr(app.store, "look", look)
    with working(app) as worker:
        wait_until(lambda: worker.desk.poller.listening and worker.desk.poller.nothing_due)
        app.find_task("task").enqueue().wait(timeout=20)
        polls, began = worker.desk.meters.polls, time.monotonic()
        threading.Event().wait(1.2)  # the only way to see that nothing happens
        lasted = time.monotonic() - began
        assert worker.desk.meters.polls - polls <= 2
    assert len(looks) <= 2 + lasted / app.settings.lease


def test_correlation_ids_are_each_jobs_own(hf: Holdfast) -> None:
    """Never one for a whole batch."""
    found: dict[str, str] = {}

    @hf.task
    def task(ctx: JobContext) -> None:
        found[ctx.job.id] = ctx.job.correlation_id

    jobs = hf.enqueue_many(task.using(correlation_id=f"c-{n}").bind() for n in range(5))
    others = hf.enqueue_many(task.bind() for _ in range(2))
    hf.drain()
    given = {job.id: f"c-{n}" for n, job in enumerate(jobs)}
    assert found == {**given, **{job.id: f"job-{job.id}" for job in others}}, "one made from the job's id"
    assert {job.refresh().record.correlation_id for job in others} == {None}, "which is not kept"
