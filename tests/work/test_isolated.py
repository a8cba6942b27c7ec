"""Each attempt in a process of its own: what it gets, what it may do, and how it ends. Real processes, real signals."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast import BadSettings, Crashed, Holdfast, JobFailed, JobInfo, JobNotFound, State
from holdfast.runners import isolated_process
from holdfast.runners.isolated import IsolatedRunner
from holdfast.runners.linux import process_of
from holdfast.runners.wire import REQUESTS
from holdfast.settings import Settings
from tests.running import Heard, await_state, working
from tests.waiting import wait_until
from tests.work import isolated_app as app

PATIENCE = 60.0  # seconds: processes take a while to start on a busy machine


@pytest.fixture
def hf(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    monkeypatch.setenv("HOLDFAST_URL", settings.url)
    monkeypatch.setenv("DATABASE_URL", settings.url)
    monkeypatch.setenv("API_TOKEN", "secret")
    monkeypatch.setenv("ISOLATED_NAMED", "named")
    app.hf.reconfigure(**{**asdict(settings), "lease": 10.0, "heartbeat": 0.2, "grace": 1.0, "isolated": 4})
    app.hf.migrate()
    yield app.hf
    app.hf.close()


def pid_at(path: Path) -> int:
    wait_until(path.exists, timeout=PATIENCE)
    return int(path.read_text())


def is_gone(pid: int) -> bool:
    return process_of(pid) is None


# -- what it gets ------------------------------------------------------------------------------------------------------


def test_a_limit_may_be_more_than_the_kernel_can_count(hf: Holdfast) -> None:
    with working(hf):
        assert app.unhurried.enqueue().wait(timeout=PATIENCE) == "done"


def test_each_attempt_has_a_process_a_group_and_little_environment_of_its_own(hf: Holdfast) -> None:
    jobs = [app.look_around.enqueue() for _ in range(2)]
    with working(hf):
        seen = [job.wait(timeout=PATIENCE) for job in jobs]
    for job, found in zip(jobs, seen, strict=True):
        assert found["pid"] != os.getpid()
        assert (found["parent"], found["group"]) == (os.getpid(), found["pid"])
        assert is_gone(found["pid"])
        env = found["env"]
        assert (env["ISOLATED_NAMED"], env["PATH"]) == ("named", os.environ["PATH"])
        assert not env.keys() & {"HOLDFAST_URL", "DATABASE_URL", "API_TOKEN", "PYTEST_CURRENT_TEST"}
        assert app.hf.settings.url not in str(found)
        assert not Path(env["TMPDIR"]).exists(), "what it put there is gone with it"
        [attempt] = job.attempts()
        assert (attempt.outcome, attempt.output) == ("succeeded", "on stdout\non stderr\n")
    assert seen[0]["pid"] != seen[1]["pid"]
    assert seen[0]["env"]["TMPDIR"] != seen[1]["env"]["TMPDIR"]


def test_a_worker_ends_only_when_what_its_attempts_left_is_removed(
    hf: Holdfast, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def slowly(path: str, ignore_errors: bool = False) -> None:
        wait_until(lambda: heard.of("worker_stopped"), timeout=PATIENCE)
        time.sleep(0.2)
        remove(path, ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", slowly)
    with working(hf):
        found = app.look_around.enqueue().wait(timeout=PATIENCE)
    assert not Path(found["env"]["TMPDIR"]).exists()


def test_a_link_in_the_place_of_its_directory_is_not_followed_when_that_is_removed(
    hf: Holdfast, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    with working(hf):
        link = Path(app.swap_directory.enqueue(str(tmp_path)).wait(timeout=PATIENCE))
    assert mine.read_text() == "precious"
    link.unlink()


def test_others_of_the_application_go_on_as_before(hf: Holdfast) -> None:
    jobs = [app.plain.enqueue(3), app.adouble.enqueue(4)]
    with working(hf):
        assert [job.wait(timeout=PATIENCE) for job in jobs] == [3, 8]
    assert jobs[0].attempts() == []
    assert jobs[1].attempts() == [], "nothing was written"


def test_progress_and_checkpoints_are_kept_without_a_way_to_the_database(hf: Holdfast, tmp_path: Path) -> None:
    job = app.from_checkpoint.enqueue(str(tmp_path / "here"), str(tmp_path / "go"))
    with working(hf):
        pid_at(tmp_path / "here")
        record = job.refresh().record
        assert (record.checkpoint, record.pending) == (b'{"seen":3}', 6)
        wait_until(lambda: job.refresh().record.done == 3)
        record = job.refresh().record
        assert (record.total, record.note) == (9, "a third")
        (tmp_path / "go").touch()
        assert job.wait(timeout=PATIENCE) == {"seen": 3}
    [errored] = job.attempts()
    assert (errored.outcome, errored.error_code, errored.error_message) == ("errored", "ValueError", "not yet")
    assert "isolated_app.py" in (errored.traceback or "")


def test_steps_are_kept_without_a_way_to_the_database(hf: Holdfast) -> None:
    job = app.in_steps.enqueue()
    with working(hf):
        first, second = job.wait(timeout=PATIENCE)
    assert first != second
    assert len(job.attempts()) == 1


def test_the_stack_of_a_handler_is_told_from_its_process(hf: Holdfast, tmp_path: Path) -> None:
    job = app.deaf.enqueue(str(tmp_path / "here"))
    with working(hf):
        pid = pid_at(tmp_path / "here")
        stack = job.stack(timeout=PATIENCE)
        assert stack.pid == pid
        assert "time.sleep(FOREVER)" in stack.text


def test_output_can_be_read_while_it_is_written(hf: Holdfast, tmp_path: Path, settings: Settings) -> None:
    job = app.talk.enqueue(str(tmp_path / "here"), "tulip-4711")
    assert job.output() is None
    with working(hf):
        pid_at(tmp_path / "here")
        so_far = "the word is ***\non stderr\n"
        assert job.output(timeout=PATIENCE) == job.stack(timeout=PATIENCE).output == so_far
        env = os.environ | {"HOLDFAST_URL": settings.url, "HOLDFAST_SCHEMA": settings.schema}
        command = [sys.executable, "-m", "holdfast", "jobs", "output", job.id, "--timeout", "60"]
        shown = subprocess.run(command, env=env, capture_output=True, text=True)
        assert (shown.returncode, shown.stdout) == (0, so_far)
        (tmp_path / "here.go").touch()
        job.wait(timeout=PATIENCE)
    assert job.output() == job.attempts()[-1].output == f"{so_far}the end\n"


def test_a_job_that_shares_its_process_has_no_output_of_its_own(make_app: Callable[..., Holdfast]) -> None:
    other = make_app()
    held = threading.Event()

    @other.task
    def waits() -> None:
        held.wait(PATIENCE)

    job = waits.enqueue()
    with working(other):
        await_state(job, State.RUNNING)
        assert job.output(timeout=PATIENCE) is None
        held.set()
    with pytest.raises(JobNotFound):
        other.output("999")


def test_the_database_is_there_only_if_the_task_asked_for_it(hf: Holdfast) -> None:
    refused = [app.transact.enqueue(), app.enqueue_another.enqueue()]
    served = app.transact_with.enqueue()
    another = app.enqueue_another_with.enqueue()
    with working(hf):
        for job in refused:
            with pytest.raises(JobFailed, match=r"HF1311 this task's process has no database.*database=True"):
                job.wait(timeout=PATIENCE)
        assert served.wait(timeout=PATIENCE) == "recorded"
        assert hf.job(another.wait(timeout=PATIENCE)).wait(timeout=PATIENCE) == 1
        wait_until(lambda: served.attempts())
    assert [attempt.output for attempt in served.attempts()] == ["before\nafter\n"]


def test_output_is_capped_and_without_secrets(hf: Holdfast) -> None:
    told = app.tell.enqueue("hunter2-hunter2")
    long = app.chatter.enqueue()
    with working(hf):
        await_state(told, State.CANCELLED, timeout=PATIENCE)
        long.wait(timeout=PATIENCE)
    assert told.attempts()[0].output == "it is ***; DATABASE postgresql://u:***@h/d\n"
    output = long.attempts()[0].output or ""
    assert output.startswith("line 0\nline 1\n")
    assert output.endswith("line 99998\nline 99999\n")
    assert "bytes left out …" in output
    assert len(output) < 70_000


def test_who_writes_without_end_keeps_nobody_busy(hf: Holdfast) -> None:
    endless, other = app.babble.enqueue(), app.adouble.enqueue(2)
    with working(hf):
        assert other.wait(timeout=PATIENCE) == 4
        await_state(endless, State.FAILED, timeout=PATIENCE)
    assert endless.attempts()[0].error_code == "TIMED_OUT"
    assert (endless.attempts()[0].output or "").startswith("y\ny\n")


# -- how it ends -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["exit", "SIGSEGV", "SIGKILL", "SIGABRT"])
def test_a_crash_is_charged_at_once_and_told_in_words(hf: Holdfast, how: str) -> None:
    job = app.crash.using(max_attempts=1).enqueue(how)
    with working(hf):
        await_state(job, State.FAILED, timeout=PATIENCE)
    [attempt] = job.attempts()
    cause = "exited with status 3" if how == "exit" else f"was ended by {how}"
    assert (attempt.outcome, attempt.error_code) == ("crashed", "CRASHED")
    assert f"its process {cause} (at 4 of 10)" in (attempt.error_message or "")
    assert attempt.output == "about to crash\n"


def test_three_crashes_in_a_row_quarantine_the_job_and_harm_nobody_else(hf: Holdfast, tmp_path: Path) -> None:
    bystander = app.until.enqueue(str(tmp_path / "here"), str(tmp_path / "go"))
    poison = app.crash.using(max_attempts=10).enqueue("SIGSEGV")
    with working(hf):
        await_state(poison, State.FAILED, timeout=PATIENCE)
        (tmp_path / "go").touch()
        assert bystander.wait(timeout=PATIENCE) == "done"
    assert poison.refresh().record.error_code == "QUARANTINED"
    assert [attempt.outcome for attempt in poison.attempts()] == ["crashed"] * 3
    assert bystander.refresh().record.attempt == 1


def test_a_memory_bomb_costs_only_its_own_attempt(hf: Holdfast) -> None:
    job = app.hoard.enqueue()
    with working(hf):
        await_state(job, State.FAILED, timeout=PATIENCE)
    [attempt] = job.attempts()
    assert (attempt.outcome, attempt.error_code) == ("errored", "MemoryError")


def test_a_handler_out_of_time_is_interrupted_and_may_clean_up(hf: Holdfast, tmp_path: Path) -> None:
    jobs = [app.too_slow.enqueue(str(tmp_path / "here")), app.atoo_slow.enqueue()]
    with working(hf):
        for job in jobs:
            await_state(job, State.FAILED, timeout=PATIENCE)
    for job in jobs:
        [attempt] = job.attempts()
        assert (attempt.outcome, attempt.error_code) == ("timed_out", "TIMED_OUT")
        assert attempt.error_message == "it ran longer than its timeout of 1 s"
        assert attempt.output == "cleaned up\n"


def test_who_does_not_stop_is_killed_with_everything_it_started(hf: Holdfast, tmp_path: Path) -> None:
    job = app.stubborn.enqueue(str(tmp_path / "here"))
    with working(hf):
        pid = pid_at(tmp_path / "here")
        child = int((tmp_path / "here-child").read_text())
        assert not is_gone(child)
        await_state(job, State.FAILED, timeout=PATIENCE)
        assert is_gone(pid)
        assert is_gone(child)
    [attempt] = job.attempts()
    assert (attempt.outcome, attempt.error_message) == (
        "timed_out",
        "it ran longer than its timeout of 1 s, and did not stop when it was told to (at 7)",
    )


def test_a_frozen_process_is_found_by_its_lack_of_progress(hf: Holdfast, tmp_path: Path) -> None:
    """Its lease is renewed all the time."""
    job = app.moves.enqueue(str(tmp_path / "here"))
    with working(hf):
        pid = pid_at(tmp_path / "here")
        time.sleep(2.5)  # longer than it may go without progress, which it makes
        assert not is_gone(pid)
        os.kill(pid, signal.SIGSTOP)
        assert job.wait(timeout=PATIENCE) == "the second time"
        assert is_gone(pid)
    [attempt] = job.attempts()
    assert (attempt.outcome, attempt.error_code) == ("timed_out", "STALLED")
    assert (attempt.error_message or "").startswith("it made no progress for 2 s")


def test_cancel_is_asked_and_forced_after_the_grace(hf: Holdfast, tmp_path: Path) -> None:
    jobs = [app.obliging.enqueue(str(tmp_path / "obliging")), app.deaf.enqueue(str(tmp_path / "deaf"))]
    with working(hf):
        pids = [pid_at(tmp_path / "obliging"), pid_at(tmp_path / "deaf")]
        for job in jobs:
            job.cancel()
        for job in jobs:
            await_state(job, State.CANCELLED, timeout=PATIENCE)
        assert all(map(is_gone, pids))


def test_pause_is_forced_too_and_the_job_resumes_from_its_checkpoint(hf: Holdfast, tmp_path: Path) -> None:
    job = app.deaf.enqueue(str(tmp_path / "deaf"))
    with working(hf):
        pid = pid_at(tmp_path / "deaf")
        job.pause()
        await_state(job, State.PAUSED, timeout=PATIENCE)
        assert is_gone(pid)
        job.resume()
        assert job.wait(timeout=PATIENCE) == "was here"
    assert job.refresh().record.attempt == 1, "a pause is not charged"


def test_at_shutdown_what_runs_on_is_released_uncharged_and_no_process_is_left(hf: Holdfast, tmp_path: Path) -> None:
    jobs = [
        app.deaf.enqueue(str(tmp_path / "deaf")),
        app.obstinate.enqueue(str(tmp_path / "stubborn")),
        app.until.enqueue(str(tmp_path / "until"), str(tmp_path / "go")),
    ]
    with working(hf) as worker:
        pids = [pid_at(tmp_path / name) for name in ("deaf", "stubborn", "until")]
        pids.append(int((tmp_path / "stubborn-child").read_text()))
        worker.stop()
        (tmp_path / "go").touch()
        wait_until(worker._ended.is_set)
        assert all(map(is_gone, pids))
    assert [job.refresh().state for job in jobs] == [State.QUEUED, State.QUEUED, State.SUCCEEDED]
    assert [job.refresh().record.attempt for job in jobs] == [0, 0, 1]


def test_a_signal_to_all_processes_of_a_service_ends_no_attempt(hf: Holdfast, tmp_path: Path) -> None:
    job = app.until.enqueue(str(tmp_path / "here"), str(tmp_path / "go"))
    with working(hf):
        os.killpg(pid_at(tmp_path / "here"), signal.SIGTERM)
        os.killpg(pid_at(tmp_path / "here"), signal.SIGINT)
        (tmp_path / "go").touch()
        assert job.wait(timeout=PATIENCE) == "done"


def test_a_process_that_meddles_with_its_line_harms_only_itself(hf: Holdfast) -> None:
    job, other = app.meddle.enqueue(), app.adouble.enqueue(1)
    with working(hf):
        await_state(job, State.FAILED, timeout=PATIENCE)
        assert other.wait(timeout=PATIENCE) == 2
    [attempt] = job.attempts()
    assert (attempt.outcome, attempt.error_code) == ("errored", "GARBLED")
    assert "its process was ended, for it sent what can't be understood" in (attempt.error_message or "")


def test_many_threads_of_an_attempt_can_ask_at_once_and_get_large_answers(hf: Holdfast) -> None:
    """Neither side ever waits for the other to listen, while that waits for an answer."""
    threads, size = 3 * REQUESTS, 400_000
    job = app.in_many_threads.enqueue(threads, size)
    with working(hf):
        assert job.wait(timeout=2 * PATIENCE) == [size] * threads
    [first] = job.attempts()  # the second succeeded
    assert (first.outcome, first.error_code) == ("errored", "ValueError")


def test_what_cannot_begin_says_why(hf: Holdfast, monkeypatch: pytest.MonkeyPatch, heard: Heard) -> None:
    """Without the variables it needs, for instance."""
    from holdfast.runners import isolated

    monkeypatch.setattr(isolated, "reference_of", lambda app: "tests.work.nowhere:hf")
    job = app.adouble.using(max_attempts=1).enqueue(1)
    with working(hf):
        await_state(job, State.FAILED, timeout=PATIENCE)
    record = job.refresh().record
    assert record.error_code == "NOT_BEGUN"
    assert "its process could not begin: HF1107 there is no module 'tests.work.nowhere'" in (record.error_message or "")
    assert heard.of("errored")


def test_a_system_without_room_for_a_process_costs_no_attempt(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    monkeypatch.setattr(isolated_process, "PROGRAM", ["/does/not/exist"])
    job = app.adouble.enqueue(1)
    with working(hf):
        wait_until(lambda: [e for e in heard.of("unavailable") if "no process could be started" in e["error"]])
        await_state(job, State.QUEUED, timeout=PATIENCE)
    assert job.refresh().record.attempt == 0


def test_a_process_that_ends_after_the_runner_was_closed_leaves_no_directory(hf: Holdfast, tmp_path: Path) -> None:
    """On a slow machine a stop does not wait until the last process is seen to have ended."""
    runner = IsolatedRunner("app:hf", (), (), hf.store, hf.settings)
    runner.close()
    directory = tmp_path / "attempt"
    directory.mkdir()
    runner._remove(str(directory))
    assert not directory.exists()


# -- where the application is ------------------------------------------------------------------------------------------


def test_an_application_without_a_name_in_a_module_is_refused_with_advice(hf: Holdfast) -> None:
    nameless = Holdfast(hf.settings.url, schema=hf.settings.schema)
    nameless.task(isolation="process")(app.plain.function)
    with pytest.raises(BadSettings, match=r"HF1114 .*give it a name at the top of a module"):
        nameless.worker()
    nameless.close()


def test_errors_are_told_where_they_happen_crashes_by_the_worker(
    hf: Holdfast, heard: Heard, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Listeners and hooks of a process of its own hear what its handler raises, and that it ran out of time; it tells
    nobody how it died. Nothing is told twice."""
    told: list[tuple[str, int, BaseException]] = []

    @hf.on_error
    def report(job: JobInfo | None, error: BaseException) -> None:
        assert job is not None
        told.append((job.id, job.attempt, error))

    try:
        raises, dies = app.in_steps.enqueue(), app.crash.using(max_attempts=1).enqueue("exit")
        late = app.too_slow.enqueue(str(tmp_path / "here"))
        with working(hf):
            raises.wait(timeout=PATIENCE)
            for job in (dies, late):
                await_state(job, State.FAILED, timeout=PATIENCE)
    finally:
        hf._hooks.error.remove(report)
    assert [(fields["job"], fields["error_code"], fields["raised"]) for fields in heard.of("errored")] == [
        (dies.id, "CRASHED", False)
    ]
    [(id, attempt, error)] = told
    assert (id, attempt, type(error)) == (dies.id, 1, Crashed)
    assert "exited with status 3" in str(error)
    told_of = "\n".join(caplog.messages)
    assert re.search(rf"job {raises.id} \(in_steps\) attempt 1 of 3 failed.*: ValueError: not yet; runs again", told_of)
    assert re.search(rf"job {late.id} \(too_slow\) attempt 1 of 1 failed.*: TIMED_OUT", told_of)
