"""`run_now`: a job that somebody waits for runs in this process, before all others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadArguments, Holdfast, HoldfastError, JobFailed, State, StoreUnavailable, testing
from holdfast.model.job import MAX_PRIORITY
from holdfast.tasks.options import NOW_QUEUE
from tests.running import Heard, MakeApp, await_state, working
from tests.servers import own_postgres
from tests.waiting import PATIENCE, wait_until

LONG = 60.0  # seconds: a job that runs here is done long before


def test_it_runs_here_and_the_handle_has_the_result(hf: Holdfast) -> None:
    @hf.task(queue="mail")
    def add(a: int, b: int = 2) -> int:
        return a + b

    job = add.run_now(1, b=3, deadline=LONG)
    assert (job.finished, job.result) == (True, 4)
    assert (job.record.queue, job.record.priority) == (NOW_QUEUE, MAX_PRIORITY)
    assert add.using(tags=["x"]).run_now(1, deadline="1m").record.tags == ("x",)


def test_past_the_deadline_the_job_goes_on(hf: Holdfast) -> None:
    go = threading.Event()

    @hf.task
    def slow() -> str:
        assert go.wait(PATIENCE)
        return "done"

    began = time.monotonic()
    job = slow.run_now(deadline=0.3)
    assert not job.finished
    assert 0.3 <= time.monotonic() - began < PATIENCE
    go.set()
    assert job.wait(PATIENCE) == "done"
    assert job.record.attempt == 1


def test_no_deadline_at_all_only_enqueues(hf: Holdfast) -> None:
    @hf.task
    def work() -> int:
        return 1

    assert work.run_now(deadline=0).wait(PATIENCE) == 1


def test_it_does_not_wait_for_a_busy_worker(make_app: MakeApp) -> None:
    app = make_app(threads=1, concurrency=1)
    go = threading.Event()

    @app.task
    def batch() -> None:
        assert go.wait(PATIENCE)

    @app.task
    def urgent() -> str:
        return "done"

    jobs = app.enqueue_many(batch.bind() for _ in range(20))
    with working(app) as worker:
        await_state(jobs[0], State.RUNNING)
        job = urgent.run_now(deadline=LONG)
        assert job.result == "done"
        # Its one slot is taken; the job would have waited for that.
        assert job.record.worker != worker.id
        assert jobs[1].refresh().state is State.QUEUED
        go.set()


async def once(task: Any) -> Any:
    return await task.arun_now(3, deadline=LONG)


def test_the_asynchronous_twin(hf: Holdfast) -> None:
    @hf.task
    async def double(n: int) -> int:
        return 2 * n

    assert asyncio.run(once(double)).result == 6


def test_a_job_that_fails_says_so(hf: Holdfast) -> None:
    @hf.task(max_attempts=1)
    def fail() -> None:
        raise ValueError("no such customer")

    job = fail.run_now(deadline=LONG)
    assert job.state is State.FAILED
    with pytest.raises(JobFailed, match="no such customer"):
        _ = job.result


def test_many_callers_share_one_worker(hf: Holdfast, heard: Heard) -> None:
    @hf.task
    def double(n: int) -> int:
        return 2 * n

    with ThreadPoolExecutor(16) as callers:
        jobs = list(callers.map(lambda n: double.run_now(n, deadline=LONG), range(40)))
    assert [job.result for job in jobs] == [2 * n for n in range(40)]
    [started] = heard.of("worker_started")
    assert started["queues"] == NOW_QUEUE


def test_closing_lets_it_finish_and_the_next_call_starts_again(hf: Holdfast, heard: Heard) -> None:
    started = threading.Event()

    @hf.task
    def slow() -> None:
        started.set()
        time.sleep(0.3)

    job = slow.run_now(deadline=0)
    assert started.wait(PATIENCE)
    hf.close()
    assert job.refresh().state is State.SUCCEEDED
    assert len(heard.of("worker_stopped")) == 1
    assert slow.run_now(deadline=LONG).finished


def test_an_equal_job_that_is_done_is_handed_out_at_once(hf: Holdfast, heard: Heard) -> None:
    @hf.task(reuse="forever")
    def add(a: int) -> int:
        return a + 1

    first = add.using(key="k").enqueue(1)
    hf.drain()
    heard.clear()
    job = add.using(key="k").run_now(1)
    assert (job.id, job.created, job.result) == (first.id, False, 2)
    assert not heard.of("worker_started")


def test_a_handler_can_t_wait_for_it(hf: Holdfast) -> None:
    @hf.task
    def inner() -> None: ...

    @hf.task(max_attempts=1)
    def outer() -> None:
        inner.run_now()

    @hf.task(max_attempts=1)
    async def aouter() -> None:
        await inner.arun_now()

    for task in (outer, aouter):
        job = task.enqueue()
        hf.drain()
        assert "a handler can't wait" in (job.refresh().record.error_message or "")
    assert hf.count("task:inner") == 0


@pytest.mark.parametrize(
    "options", [{"queue": "x"}, {"priority": 1}, {"delay": 5}, {"conn": object()}], ids=lambda given: next(iter(given))
)
def test_options_that_make_no_sense_are_refused(hf: Holdfast, options: Any) -> None:
    @hf.task
    def work() -> None: ...

    with pytest.raises(BadArguments, match=f"leave out {next(iter(options))}, or enqueue it"):
        work.using(**options).run_now()


def test_bad_deadlines_are_refused_before_anything_is_stored(hf: Holdfast) -> None:
    @hf.task
    def work(n: int) -> None: ...

    wrongs: list[Any] = [-1, "soon", None, True]
    for wrong in wrongs:
        with pytest.raises(BadArguments, match="deadline must be 0 or more"):
            work.run_now(1, deadline=wrong)
    with pytest.raises(BadArguments, match="work"):
        work.run_now("one", deadline=1)
    assert hf.count() == 0


def test_a_handler_with_a_deadline_of_its_own_is_refused(hf: Holdfast) -> None:
    @hf.task
    def work(deadline: int) -> None: ...

    with pytest.raises(BadArguments, match="needs another name"):
        work.run_now(deadline=1)


def test_the_test_kit_runs_it_when_the_test_says_so(hf: Holdfast, heard: Heard) -> None:
    @hf.task
    def work() -> int:
        return 1

    with testing.store(hf) as kit:
        job = work.run_now(deadline=LONG)
        assert not job.finished
        kit.run_due()
        assert job.refresh().result == 1
        with kit.inline():
            assert work.run_now(deadline=LONG).result == 1
    assert [one["queues"] for one in heard.of("worker_started")] == ["all queues"], "that of run_due alone"


PROGRAM = """
import os, sys, time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast()

@hf.task
def once(marker: str) -> str:
    if Path(marker).exists():
        return "again"
    Path(marker).touch()
    time.sleep(600)
    return ""

@hf.task
def work() -> int:
    return os.getpid()

if __name__ == "__main__":
    exec(sys.argv[1])
"""


def program(home: Path, app: Holdfast, code: str) -> subprocess.Popen[bytes]:
    (home / "app.py").write_text(PROGRAM)
    place = {"HOLDFAST_URL": app.settings.url, "HOLDFAST_SCHEMA": app.settings.schema or ""}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "app.py", code], cwd=home,
        env={**environment, **{name: value for name, value in place.items() if value}},
    )  # fmt: skip


def test_a_process_that_only_calls_it_ends_by_itself_and_a_fork_has_slots_of_its_own(
    hf: Holdfast, tmp_path: Path
) -> None:
    code = """
assert work.run_now(deadline=60).result == os.getpid()
hf.close()
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
assert work.run_now(deadline=60).result == os.getpid()
"""
    assert program(tmp_path, hf, code).wait(PATIENCE) == 0
    wait_until(lambda: not hf.workers())


def test_a_process_that_dies_leaves_the_job_to_other_workers(hf: Holdfast, tmp_path: Path) -> None:
    @hf.task
    def once(marker: str) -> str:
        return "again"

    process = program(tmp_path, hf, "once.run_now('marker', deadline=600)")
    wait_until(lambda: (tmp_path / "marker").exists() or process.poll() is not None)
    process.kill()
    process.wait()
    [job] = hf.jobs()
    assert job.state is State.RUNNING
    with working(hf):
        assert job.wait(PATIENCE) == "again"


def test_an_outage_is_told_and_the_slots_are_there_afterwards() -> None:
    with own_postgres(synchronous_commit="on") as database, Holdfast(database.url, pinned=True) as app:
        app.migrate()

        @app.task
        def work() -> int:
            return 1

        assert work.run_now(deadline=LONG).result == 1
        database.stop("immediate")
        try:
            with pytest.raises(StoreUnavailable):
                work.run_now()
        finally:
            database.start()

        def again() -> bool:
            try:
                return work.run_now(deadline=LONG).finished
            except StoreUnavailable:
                return False

        wait_until(again)


def test_in_an_event_loop_it_names_its_twin(make_app: MakeApp) -> None:
    app = make_app(sync_in_loop="error")

    @app.task
    def work() -> None: ...

    async def main() -> None:
        work.run_now()

    with pytest.raises(HoldfastError, match="await arun_now"):
        asyncio.run(main())
