"""Workers as people start them, with jobs in processes of their own: killed, out of memory, started the wrong way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.crash.conftest import Start
from tests.crash.fleet import lives
from tests.factories import a_queued_job, claim
from tests.waiting import wait_until

PATIENCE = 60.0
APP = """
import os, re, subprocess, sys, time
from pathlib import Path
from holdfast import Holdfast, JobContext

hf = Holdfast()

@hf.task(isolation="process")
def double(n: int) -> int:
    print(f"doubling {n} in {os.getpid()}")
    return 2 * n

@hf.task
def plain(n: int) -> int:
    return n

@hf.task
def stay(until: str, number: int) -> None:
    Path(f"{until}-{number}").touch()
    while not Path(until).exists():
        time.sleep(0.01)

@hf.task
def fall(mark: str) -> None:
    "Kills its process once, in company."
    if not Path(mark).exists():
        while not Path(f"{mark}-beside").exists():
            time.sleep(0.01)
        Path(mark).touch()
        os.kill(os.getpid(), 9)

@hf.task
def beside(mark: str) -> None:
    Path(mark).touch()
    time.sleep(1)

@hf.task(isolation="process", max_attempts=2)
def grip(path: str) -> None:
    "Holds the GIL within one call, for hours."
    Path(path).write_text(str(os.getpid()))
    re.match("(a*)*b", "a" * 60)

@hf.task(isolation="process", retry=0, max_attempts=1)
def eat(ctx: JobContext) -> None:
    ctx.progress(1, total=2)
    time.sleep(0.7)
    print("eating", flush=True)
    hoard = [os.urandom(2**20) for _ in range(1000)]

@hf.task(isolation="process")
def leave_many(path: str) -> None:
    "Starts children that start children, in sessions of their own, and ends."
    code = "import os, time; os.setsid(); os.fork() or os.setpgid(0, 0); time.sleep(600)"
    for _ in range(5):
        subprocess.Popen([sys.executable, "-c", code], env={"MARK_OF_TEST": path})
    time.sleep(0.5)
"""


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    return Shell(tmp_path, settings, APP)


def enqueue(kept: Store, task: str, max_attempts: int = 1, **args: object) -> str:
    return a_queued_job(kept, task=task, args=msgspec.json.encode(args), max_attempts=max_attempts)


def await_state(kept: Store, id: str, state: State) -> None:
    wait_until(lambda: kept.reads.get(id).state is state, f"job {id} to be {state}", timeout=PATIENCE)


@pytest.mark.parametrize("processes", ["1", "0"])
def test_isolated_and_other_tasks_run_side_by_side(shell: Shell, kept: Store, worker: Start, processes: str) -> None:
    ids = [enqueue(kept, "double", n=4), enqueue(kept, "plain", n=3)]
    process = worker("--processes", processes)
    for id in ids:
        await_state(kept, id, State.SUCCEEDED)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert [kept.reads.get(id).result for id in ids] == [b"8", b"3"]
    [attempt] = kept.reads.attempts(ids[0])
    assert (attempt.output or "").startswith("doubling 4 in ")
    shown = shell("jobs", "show", ids[0]).stdout
    assert "succeeded by" in shown
    assert "output of attempt 1:\n    doubling 4 in " in shown


def test_suspects_and_isolated_tasks_keep_each_other_not_waiting(kept: Store, worker: Start, tmp_path: Path) -> None:
    """Each kind has slots of its own, however many of the other there are."""
    door = tmp_path / "door"
    suspects = [enqueue(kept, "stay", until=str(door), number=number) for number in range(6)]
    for _ in range(2):
        assert len(claim(kept, 6, tasks=["stay"], worker="dead").jobs) == 6
        assert len(kept.rescues.rescue(by_expiry=False, dead=["dead"])) == 6
    process = worker()
    wait_until(lambda: list(tmp_path.glob("door-*")), "a suspect to run", timeout=PATIENCE)
    await_state(kept, enqueue(kept, "double", n=4), State.SUCCEEDED)
    await_state(kept, enqueue(kept, "plain", n=4), State.SUCCEEDED)
    assert {kept.reads.get(id).state for id in suspects} <= {State.RUNNING, State.QUEUED}
    door.touch()
    for id in suspects:
        await_state(kept, id, State.SUCCEEDED)
        assert (kept.reads.get(id).attempt, kept.reads.get(id).crashes) == (1, 0)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


def test_a_drain_goes_on_with_what_was_lost_with_its_process(shell: Shell, kept: Store, tmp_path: Path) -> None:
    mark = str(tmp_path / "fallen")
    ids = [enqueue(kept, "fall", mark=mark), enqueue(kept, "beside", mark=f"{mark}-beside")]
    assert shell("drain", "app.py").stdout == "2 jobs done (4 attempts)\n"
    assert [kept.reads.get(id).state for id in ids] == [State.SUCCEEDED] * 2


@pytest.mark.parametrize("processes", ["1", "0"])
def test_when_the_worker_is_killed_its_processes_are_gone_within_a_second(
    shell: Shell, kept: Store, worker: Start, tmp_path: Path, processes: str
) -> None:
    """This one sees nothing: it holds the GIL."""
    enqueue(kept, "grip", path=str(tmp_path / "pid"), max_attempts=2)
    process = worker("--processes", processes)
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), timeout=PATIENCE)
    pid = int((tmp_path / "pid").read_text())
    assert lives(pid)
    process.kill()
    wait_until(lambda: not lives(pid), timeout=1.0)


def test_nothing_is_left_of_what_an_attempt_started(shell: Shell, kept: Store, worker: Start, tmp_path: Path) -> None:
    id = enqueue(kept, "leave_many", path=str(tmp_path))
    worker()
    await_state(kept, id, State.SUCCEEDED)
    mark = f"MARK_OF_TEST={tmp_path}"
    assert [pid for pid in os.listdir("/proc") if pid.isdigit() and _started_with(pid, mark)] == []


def _started_with(pid: str, variable: str) -> bool:
    with suppress(OSError):
        return variable.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group with little memory, where this machine lets us have one."""
    line = next((ln for ln in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in ln), None)
    if line is None:
        pytest.skip("there is no memory controller of version 1 here to make a group in")
    group = Path("/sys/fs/cgroup/memory", line.split(":")[2].lstrip("/"), f"holdfast-{uuid.uuid4().hex}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(256 * 2**20))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_a_job_killed_for_want_of_memory_says_so_and_its_worker_lives_on(
    shell: Shell, kept: Store, small_group: Path
) -> None:
    eaten, other = enqueue(kept, "eat"), enqueue(kept, "double", n=1)
    join = f"import os; open({str(small_group / 'cgroup.procs')!r}, 'w').write(str(os.getpid()))"
    command = f"{join}; os.execv({sys.executable!r}, [{sys.executable!r}, '-m', 'holdfast', 'worker', 'app.py'])"
    process = subprocess.Popen([sys.executable, "-c", command], cwd=shell.directory, env=shell.environment)
    try:
        await_state(kept, eaten, State.FAILED)
        await_state(kept, other, State.SUCCEEDED)
        again = enqueue(kept, "double", n=2)
        await_state(kept, again, State.SUCCEEDED)
    finally:
        process.terminate()
        process.wait(PATIENCE)
    assert process.returncode == 0
    [attempt] = kept.reads.attempts(eaten)
    assert (
        "its process was ended by SIGKILL (probably out of memory: the kernel killed a process of this container) "
        "(at 1 of 2)"
    ) in (attempt.error_message or "")
    assert attempt.output == "eating\n"


# -- programs that start their worker themselves -----------------------------------------------------------------------


GUARD = 'if __name__ == "__main__":\n    '
UNGUARDED = (
    APP
    + """
double.enqueue(1)
"""
)


def run(shell: Shell, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command], cwd=shell.directory, env=shell.environment, timeout=PATIENCE, check=False,
        capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("guarded", [True, False])
def test_a_program_that_starts_its_own_worker(shell: Shell, kept: Store, guarded: bool) -> None:
    (shell.directory / "program.py").write_text(f"{APP}\n{GUARD if guarded else ''}hf.drain(seconds=50)\n")
    id = enqueue(kept, "double", n=4)
    began = time.monotonic()
    assert run(shell, "program.py").returncode == 0
    assert time.monotonic() - began < 50
    job = kept.reads.get(id)
    if guarded:
        assert (job.state, job.result) == (State.SUCCEEDED, b"8")
    else:
        assert job.error_code == "UNGUARDED"
        assert "HF1115" in (job.error_message or "")
        assert 'if __name__ == "__main__":' in (job.error_message or "")


def test_a_program_that_enqueues_when_it_is_imported_does_not_enqueue_itself_without_end(
    shell: Shell, kept: Store
) -> None:
    """The job fails at once, whatever attempts it has left, and says which line to guard."""
    program = shell.directory / "program.py"
    program.write_text(f"{UNGUARDED}{GUARD}print(hf.drain(seconds=50))\n")
    began = time.monotonic()
    ran = run(shell, "program.py")
    assert time.monotonic() - began < 50
    assert (ran.returncode, ran.stdout) == (0, "1\n"), ran.stderr
    [job] = kept.reads.jobs(limit=10)
    assert (job.state, job.attempt, job.error_code) == (State.FAILED, 1, "UNGUARDED")
    assert job.max_attempts > 1
    line = UNGUARDED.splitlines().index("double.enqueue(1)") + 1
    assert f"HF1115 {program} uses the database" in (job.error_message or "")
    assert f"({program}, line {line})" in (job.error_message or "")


@pytest.mark.parametrize("command", ["worker", "drain"])
@pytest.mark.parametrize("processes", [None, "0"])
@pytest.mark.parametrize("place", ["program.py", "program"])
def test_commands_refuse_a_program_that_enqueues_when_it_is_imported(
    shell: Shell, kept: Store, command: str, processes: str | None, place: str
) -> None:
    program = shell.directory / "program.py"
    program.write_text(UNGUARDED)
    ran = run(shell, "-m", "holdfast", command, place, *(["--processes", processes] if processes else []))
    assert ran.returncode == 2
    line = UNGUARDED.splitlines().index("double.enqueue(1)") + 1
    assert f"HF1115 {place} uses the database" in ran.stderr
    assert f"program.py, line {line})" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert kept.reads.jobs(limit=10) == []


@pytest.mark.parametrize("use", ["list(hf.jobs())", "hf.pause_queue('default')", "hf.migrate()"])
def test_no_use_of_the_database_is_possible_while_an_application_is_imported(
    shell: Shell, kept: Store, use: str
) -> None:
    (shell.directory / "program.py").write_text(f"{APP}\n{use}\n")
    ran = run(shell, "-m", "holdfast", "drain", "program.py")
    assert (ran.returncode, "HF1115" in ran.stderr) == (2, True), ran.stderr
