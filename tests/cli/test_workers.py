"""Whether workers are up, and asking them to stop: real ones, from another process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast, StoreUnavailable, WorkerNotFound
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until
from tests.cli.tty import terminal
from tests.factories import a_queued_job, a_running_job

SLOW = """
import time
from pathlib import Path
from holdfast import Holdfast, JobContext

hf = Holdfast()

@hf.task
def slow(ctx: JobContext) -> str:
    Path("started").touch()
    while not ctx.should_stop():
        time.sleep(0.01)
    return "finished"
"""


@contextmanager
def workers(shell: Shell, kept: Store, many: int = 1, **environment: str) -> Iterator[list[subprocess.Popen[str]]]:
    """So many, registered."""
    shell.environment |= environment
    with ExitStack() as stack:
        started = [stack.enter_context(shell.start("worker", "app:hf")) for _ in range(many)]
        for worker in started:
            stack.callback(worker.kill)
        wait_until(lambda: len(kept.workers.all()) == many or any(worker.poll() for worker in started))
        yield started


def stopped_in_order(worker: subprocess.Popen[str]) -> str:
    """What it said."""
    _, said = worker.communicate(timeout=60)
    assert worker.returncode == 0, said
    assert "stopped; " in said
    return said


MIXED = """
import time
from holdfast import Holdfast

hf = Holdfast(threads=2)

@hf.task
def slow() -> None:
    time.sleep(600)

@hf.task
async def quick() -> None: ...
"""


@pytest.fixture
def app(settings: Settings) -> Iterator[Holdfast]:
    with Holdfast(settings.url, schema=settings.schema) as app:
        yield app


def test_a_worker_stops_when_asked_by_its_name_and_the_others_go_on(shell: Shell, kept: Store, app: Holdfast) -> None:
    with workers(shell, kept, 2) as started:
        first = next(worker for worker in app.workers() if worker.pid == started[0].pid)
        assert [worker.state for worker in app.workers()] == ["up", "up"]
        began = time.monotonic()
        asked = shell("workers", "stop", first.name, "--by", "ops", "--reason", "a new host")
        assert asked.stdout == f"{first.id}\n"
        assert "asked 1 worker to stop" in asked.stderr
        assert f"worker {first.id} was asked to stop by ops: a new host" in stopped_in_order(started[0])
        assert time.monotonic() - began < 15, "it was notified, and did not wait for its look once a lease (20 s)"
        assert started[1].poll() is None
        [left] = app.workers()
        assert (left.pid, left.state) == (started[1].pid, "up")
        assert app.stop_worker(left.id) == [left.id]
        stopped_in_order(started[1])
    assert app.workers() == []


def test_two_who_ask_at_once_do_not_end_the_grace(shell: Shell, kept: Store, app: Holdfast) -> None:
    (shell.directory / "app.py").write_text(SLOW)
    job = a_queued_job(kept, task="slow")
    with workers(shell, kept) as [worker]:
        wait_until(lambda: (shell.directory / "started").exists())
        [id] = app.stop_worker(app.workers()[0].id)
        app.stop_worker(id)
        shell("workers", "stop", "--all")
        stopped_in_order(worker)
    assert kept.reads.get(job).state == "succeeded"


def test_a_worker_that_is_not_notified_learns_it_by_its_look(shell: Shell, kept: Store) -> None:
    with workers(shell, kept, HOLDFAST_LISTEN="0", HOLDFAST_LEASE="2") as [worker]:
        shell("workers", "stop", "--all", "--by", "ops")
        assert "was asked to stop by ops: no reason was given" in stopped_in_order(worker)


def frozen_between_writes(worker: subprocess.Popen[str], kept: Store) -> bool:
    """Stop its process. Not in the middle of a write: on SQLite nobody could write then."""
    os.kill(worker.pid, signal.SIGSTOP)
    threads = Path(f"/proc/{worker.pid}/task")
    wait_until(lambda: all(" T " in (thread / "stat").read_text() for thread in threads.iterdir()), "it to stand still")
    try:
        kept.workers.forget(3600.0)
    except StoreUnavailable:
        os.kill(worker.pid, signal.SIGCONT)
        return False
    return True


def test_a_stopped_process_is_frozen_and_a_killed_one_silent(shell: Shell, kept: Store, app: Holdfast) -> None:
    def states() -> list[str]:
        return [worker.state for worker in app.workers()]

    with workers(shell, kept, HOLDFAST_LEASE="0.5") as [worker]:
        while not frozen_between_writes(worker, kept):
            pass
        wait_until(lambda: states() == ["frozen"])
        assert " frozen " in shell("workers").stdout
        said = shell("workers", "stop", "--all").stderr
        assert "is frozen, last seen" in said
        os.kill(worker.pid, signal.SIGCONT)
        stopped_in_order(worker)
        assert states() == []
    with workers(shell, kept, HOLDFAST_LEASE="0.5") as [worker]:
        worker.kill()
        worker.wait()
        wait_until(lambda: states() == ["silent"])
        assert "is silent, last seen" in shell("workers", "stop", "--all").stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_jobs_claimed_ahead_are_not_said_to_run(shell: Shell, kept: Store) -> None:
    kept.workers.register(id="w1", name="w1", host="h", pid=1, queues=None, tasks=["greet"], slots=2)
    for count, said in ((2, " 2 "), (5, " 2 + 3 claimed ahead ")):
        while len(kept.reads.jobs(state="running")) < count:
            a_running_job(kept, worker="w1")
        assert said in shell("workers").stdout


@pytest.mark.parametrize("engine", ["sqlite"])
def test_on_a_terminal_each_job_has_a_line_and_elsewhere_only_trouble(shell: Shell, kept: Store) -> None:
    for _ in range(2):
        a_queued_job(kept, task="double", args=b'{"n":1}')
    with terminal(shell, "drain", "app:hf", "--jobs", "1", columns=150) as tty:
        wait_until(lambda: tty.process.poll() is not None)
        wait_until(lambda: "job 1 (double) succeeded (" in tty.text, tty.text)
    assert "succeeded" not in shell("drain", "app:hf").stderr


def test_a_worker_that_is_not_there_is_refused_with_the_nearest(shell: Shell, kept: Store, app: Holdfast) -> None:
    assert "HF1331 there is no worker 'web1'" in shell("workers", "stop", "web1", code=3).stderr
    kept.workers.register(id="web2-7~1", name="web2-7", host="h", pid=7, queues=None, tasks=["greet"], slots=1)
    with pytest.raises(WorkerNotFound, match="perhaps 'web2-7'"):
        app.stop_worker("web-7")
    assert "name the workers to stop, or say --all" in shell("workers", "stop", code=2).stderr
    assert "name the workers to stop, or say --all" in shell("workers", "stop", "x", "--all", code=2).stderr
    assert kept.workers.all()[0].stop_requested_at is None


def test_why_says_that_the_threads_are_taken_though_coroutines_have_slots(
    shell: Shell, kept: Store, app: Holdfast
) -> None:
    (shell.directory / "app.py").write_text(MIXED)
    oldest, _, waiting = [a_queued_job(kept, task="slow") for _ in range(3)]
    with workers(shell, kept, HOLDFAST_GRACE="0"):
        wait_until(lambda: app.count("state:running") == 2)
        [busy, *_] = app.why(waiting)
        assert busy.code == "WORKERS_BUSY"
        assert busy.text.startswith("all 2 slots for slow on 1 worker are taken; it starts when one is free")
        assert f"The oldest is job {oldest} (slow)" in busy.text
        quick = a_queued_job(kept, task="quick")
        wait_until(lambda: app.job(quick).state == "succeeded")
