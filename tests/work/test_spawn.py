"""Processes of ours, started and ended for good: real ones, with real signals."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from holdfast import Limits
from holdfast.model.isolation import NO_LIMITS, child_environment
from holdfast.runners import linux as kernel
from holdfast.runners import reaper
from holdfast.runners.capture import Capture
from holdfast.runners.child_setup import CPU_GRACE, ChildSetup
from holdfast.runners.linux import OutOfMemory, ProcessEntry, process_of
from holdfast.runners.spawn import Child, ExitStatus, all_reaped, reap_adopted, spawn
from tests.waiting import wait_until

Start = Callable[..., Child]

PROGRAM = "import sys; from holdfast.runners.child_setup import set_up; set_up(sys.argv[-1]); exec(sys.argv[1])"
# Starts a process that leaves its group, loses its parent and forgets its environment.
RUNAWAY = """
import os, sys, time
def run_away(path):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            with open(path + ".new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(path + ".new", path)
            deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
            os.execve(sys.executable, [sys.executable, "-Sc", deaf], {})
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[Child] = []
    kernel.adopt_orphans(os.getpid())

    def start(code: str, *, limits: Limits = NO_LIMITS, output: int | None = None, **options: object) -> Child:
        terms = ChildSetup(parent=0, limits=limits, no_new_privs=True, umask=0o077)
        child = spawn(
            [sys.executable, "-c", PROGRAM, textwrap.dedent(code)],
            env=child_environment(os.environ), setup=terms, output=output, **options,  # type: ignore[arg-type]
        )  # fmt: skip
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        wait_until(child.reap)


def end_of(child: Child) -> ExitStatus:
    end = wait_until(child.reap)
    assert end is not None
    return end


def seen(pid: int) -> ProcessEntry:
    process = process_of(pid)
    assert process is not None
    return process


def is_gone(pid: int) -> bool:
    """Not even a zombie is left."""
    return process_of(pid) is None


def pid_in(path: Path) -> int:
    wait_until(path.exists)
    return int(path.read_text())


# -- how it ended ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("pass", "exited with status 0"),
        ("sys.exit(3)", "exited with status 3"),
        ("import os; os._exit(137)", "exited with status 137"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", "was ended by signal 40"),
    ],
)
def test_it_is_told_how_a_process_ended(start: Start, code: str, told: str) -> None:
    assert end_of(start(code)).described() == told


def test_a_kill_of_our_own_is_known_as_ours(start: Start) -> None:
    child = start("import time; time.sleep(600)")
    assert child.reap() is None
    child.kill()
    assert end_of(child) == child.exit_status
    assert (child.exit_status.code, child.exit_status.killed) == (-signal.SIGKILL, True)


def test_a_kill_by_the_kernel_for_want_of_memory_is_told_as_such(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's counter is read from where it may stand; a real kill needs a group with a limit (tests/crash)."""
    from holdfast.runners import spawn as module

    counts = iter([OutOfMemory(4, "container"), OutOfMemory(5, "container")])
    monkeypatch.setattr(module, "out_of_memory", lambda: next(counts))
    end = end_of(start("import os; os.kill(os.getpid(), 9)"))
    assert end.described() == (
        "was ended by SIGKILL (probably out of memory: the kernel killed a process of this container)"
    )  # fmt: skip


def test_the_kernels_counter_is_found_in_either_version_of_control_groups(tmp_path: Path) -> None:
    assert kernel.out_of_memory() is not None  # this machine has one
    for name, text in (
        ("memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n"),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
    ):
        (tmp_path / name).write_text(text)
        assert kernel.oom_kills(tmp_path / name) == 2
    assert kernel.oom_kills(tmp_path / "nothing") is None


# -- nobody is left ----------------------------------------------------------------------------------------------------


def test_nobody_survives_the_end_of_a_child_that_ignores_sigterm_and_forks(start: Start, tmp_path: Path) -> None:
    """Its group, a child that ignores everything, and a grandchild in a session of its own with no environment."""
    child = start(
        RUNAWAY
        + f"""
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-Sc", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(600)"], start_new_session=True)
run_away({str(tmp_path / "runaway")!r})
open({str(tmp_path / "ready")!r}, "w").close()
time.sleep(600)
"""
    )
    wait_until((tmp_path / "ready").exists)
    runaway = pid_in(tmp_path / "runaway")
    wait_until(lambda: seen(runaway).parent == os.getpid())
    family = {p.pid for p in kernel.descendants([child.pid], kernel.processes())} | {runaway}
    assert len(family) == 3
    child.terminate()
    assert not child.ended()
    child.kill()
    assert end_of(child).killed
    assert [pid for pid in family if not is_gone(pid)] == []


def test_nobody_is_left_by_a_child_that_ended_by_itself(start: Start, tmp_path: Path) -> None:
    child = start(RUNAWAY + f"run_away({str(tmp_path / 'runaway')!r})")
    runaway = pid_in(tmp_path / "runaway")
    assert end_of(child).clean
    assert is_gone(runaway)


def test_a_process_that_forks_while_it_is_killed_does_not_get_away(start: Start, tmp_path: Path) -> None:
    """Each of them starts its successor, in a session of its own, and ends."""
    code = f"""
import os, time
os.setsid()
for n in range(100_000):
    if os.fork():
        os._exit(0)
    os.setsid()
    with open({str(tmp_path / "newest")!r}, "w") as file:
        file.write(str(os.getpid()))
"""
    child = start(f"import os, time\nif os.fork() == 0:\n  exec({code!r})\ntime.sleep(600)")
    wait_until((tmp_path / "newest").exists)
    child.kill()
    end_of(child)
    newest = (tmp_path / "newest").read_text()
    time.sleep(0.1)  # who got away would go on
    assert (tmp_path / "newest").read_text() == newest


def test_others_are_not_touched(start: Start, tmp_path: Path) -> None:
    """Another runner's orphans, what this program started itself, and a stranger that became our child."""
    other = start(RUNAWAY + f"run_away({str(tmp_path / 'of-other')!r}); time.sleep(600)")
    orphan = pid_in(tmp_path / "of-other")
    stranger_code = (
        "import os, time; os.fork() and os._exit(0); os.setsid(); print(os.getpid(), flush=True); os.close(1); "
        "time.sleep(600)"
    )
    started = subprocess.run([sys.executable, "-Sc", stranger_code], stdout=subprocess.PIPE, check=True, text=True)
    stranger = int(started.stdout)
    wait_until(lambda: seen(stranger).parent == os.getpid())
    own = subprocess.Popen([sys.executable, "-Sc", "import time; time.sleep(600)"])
    try:
        child = start("import time; time.sleep(600)")
        child.kill()
        end_of(child)
        assert not seen(orphan).ended
        assert not seen(stranger).ended
        assert own.poll() is None
    finally:
        own.kill()
        own.wait()
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)
    other.kill()
    end_of(other)
    assert is_gone(orphan)


def test_orphans_of_nobodys_that_became_our_children_are_not_left_as_zombies(start: Start) -> None:
    """As a subreaper we are their parent now. What somebody here has started himself is left to him."""
    code = "import os; os.setsid(); pid = os.fork(); pid and (print(pid, flush=True), os._exit(0)); os.close(1)"
    started = subprocess.run([sys.executable, "-Sc", code], stdout=subprocess.PIPE, check=True, text=True)
    orphan = int(started.stdout)
    own = [subprocess.Popen([sys.executable, "-Sc", "pass"], start_new_session=new) for new in (False, True)]
    try:
        wait_until(lambda: is_gone(orphan) or seen(orphan).ended)
        wait_until(lambda: all(seen(process.pid).ended for process in own))
        assert end_of(start("pass")).clean
        assert is_gone(orphan)
        assert all(seen(process.pid).ended for process in own)
    finally:
        assert [process.wait() for process in own] == [0, 0]


def test_orphans_of_a_child_that_lives_on_are_reaped(start: Start, tmp_path: Path) -> None:
    """Also one that leads a group, as a daemon does. How a child ended, or a process of somebody else here, is left to
    who started it."""
    left = tmp_path / "left"
    child = start(
        f"""
        import os, subprocess, time
        subprocess.run(["sh", "-c", "sleep 0.2 & echo $! >{left}.new; setsid sleep 0.2 & echo $! >>{left}.new"])
        os.rename("{left}.new", "{left}")
        time.sleep(600)
        """
    )
    ended = start("sys.exit(3)")
    own = [subprocess.Popen([sys.executable, "-Sc", "pass"], start_new_session=new) for new in (False, True)]
    try:
        wait_until(left.exists)
        wait_until(ended.ended)
        orphans = [int(pid) for pid in left.read_text().split()]
        assert len(orphans) == 2
        wait_until(lambda: all(seen(pid).ended for pid in [*orphans, *(process.pid for process in own)]))
        reap_adopted()
        assert all(is_gone(pid) for pid in orphans)
        assert not child.ended()
        assert end_of(ended).code == 3
        assert all(seen(process.pid).ended for process in own)
    finally:
        assert [process.wait() for process in own] == [0, 0]


def test_a_child_that_lives_long_is_not_taken_for_one_with_its_number(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers come round again after a million children."""
    from holdfast.runners import spawn as module

    ready = tmp_path / "ready"
    old = start(f"import time; open({str(ready)!r}, 'w').close(); time.sleep(600)")
    wait_until(ready.exists)
    monkeypatch.setattr(module, "_numbers", count(old.setup.mark % 2**reaper.NUMBERS - 1))
    new = start("pass")
    assert new.setup.mark != old.setup.mark
    assert end_of(new).clean
    assert not old.ended()


def test_a_reaper_reads_the_marks_of_a_bystander_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of one that is older than the worker never: a crowded host would keep it from its work. Whoever executes
    another program is looked at again: that is when it may get a mark."""
    family = os.getpid()  # no worker's
    read: list[int] = []
    marks_of = reaper.marks_of

    def noted(pid: int) -> set[int]:
        read.append(pid)
        return marks_of(pid)

    monkeypatch.setattr(reaper, "marks_of", noted)
    mark = f"{reaper.MARK}={(family << reaper.NUMBERS) + 1}"
    bystander = subprocess.Popen(
        ["sh", "-c", f"echo; read line; exec env {mark} sleep 600"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert bystander.stdin is not None
        assert bystander.stdout is not None
        bystander.stdout.readline()
        started = seen(bystander.pid).started
        strangers: set[tuple[int, ...]] = set()
        assert not reaper.kill_all(family, started + 1, strangers)
        assert bystander.pid not in read
        for _ in range(3):
            assert not reaper.kill_all(family, started, strangers)
        assert read.count(bystander.pid) == 1
        bystander.stdin.write(b"\n")
        bystander.stdin.flush()
        wait_until(lambda: reaper.kill_all(family, started, strangers) or bystander.poll() is not None)
        assert bystander.wait() == -signal.SIGKILL
    finally:
        bystander.kill()
        bystander.communicate()


def test_a_stopped_child_hears_that_it_is_to_end(start: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = start(
        f"import signal, time; signal.signal(15, lambda *_: sys.exit(7)); open({str(ready)!r}, 'w').close()\n"
        "time.sleep(600)"
    )
    wait_until(ready.exists)
    os.kill(child.pid, signal.SIGSTOP)
    child.terminate()
    assert end_of(child).code == 7


def test_a_child_dies_with_its_parent_although_it_holds_the_gil(tmp_path: Path) -> None:
    """No Python code of the child's runs any more, so a closed pipe would not be seen."""
    ready = tmp_path / "ready"
    busy = f"import re, os; open({str(ready)!r}, 'w').write(str(os.getpid())); re.match('(a*)*b', 'a' * 60)"
    parent_code = f"""
import os, sys
from holdfast.runners.child_setup import ChildSetup
from holdfast.runners.spawn import spawn
spawn([sys.executable, "-c", {PROGRAM!r}, {busy!r}], env=os.environ, setup=ChildSetup(parent=0))
import time; time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", parent_code])
    try:
        wait_until(lambda: ready.exists() and ready.read_text())
        child = int(ready.read_text())
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: is_gone(child) or seen(child).ended)


def test_a_child_whose_parent_is_not_the_one_it_expects_ends_at_once() -> None:
    terms = str(ChildSetup(parent=1 if os.getpid() != 1 else 2))
    ran = subprocess.run([sys.executable, "-c", PROGRAM, "print('alive')", terms], stdout=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stdout) == (-signal.SIGKILL, b"")


# -- limits ------------------------------------------------------------------------------------------------------------


def output_of(start: Start, code: str, limits: Limits = NO_LIMITS) -> tuple[ExitStatus, str]:
    capture = Capture()
    child = start(code, limits=limits, output=capture.to)
    capture.started()
    end = wait_until(lambda: (capture.read(), child.reap())[1])
    assert end is not None
    capture.close()
    return end, capture.text(lambda text: text) or ""


def test_a_memory_bomb_stays_within_its_limit(start: Start) -> None:
    end, said = output_of(start, "hoard = [bytes(2**20) for _ in range(10**6)]", Limits(memory=256 * 2**20))
    assert end.code == 1
    assert "MemoryError" in said
    assert end.described(said) == "exited with status 1 (probably out of memory: its limit is 256 MB)"
    # What Linux tells is the most that the process ever had, also before it began: then it was a copy of this one.
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert end.memory < max(400 * 2**20, 1.2 * own)


def test_cpu_time_is_limited_and_the_end_says_so(start: Start) -> None:
    end, _ = output_of(start, "while True: pass", Limits(cpu=1))
    assert end.described() == "was ended by SIGXCPU (it used up its limit of 1 s of CPU time)"


def test_who_ignores_the_end_of_its_cpu_time_is_killed(start: Start) -> None:
    code = f"""
import resource, signal, sys
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
assert (soft, hard) == (1, 1 + {CPU_GRACE})
resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
while True: pass
"""
    end, _ = output_of(start, code, Limits(cpu=1))
    assert end.described() == "was ended by SIGKILL (it used up its limit of 1 s of CPU time)"


def test_files_can_grow_only_so_far(start: Start, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'large')!r}, 'wb').write(bytes(10**6))"
    end, said = output_of(start, code, Limits(file_size=100_000))
    assert end.code == 1
    assert "File too large" in said
    assert (tmp_path / "large").stat().st_size == 100_000
    end, _ = output_of(start, f"import signal; signal.signal(25, signal.SIG_DFL); {code}", Limits(file_size=100_000))
    assert end.described() == "was ended by SIGXFSZ (it wrote a file beyond its limit of 100000 bytes)"


def test_only_so_many_files_can_be_open(start: Start) -> None:
    end, said = output_of(start, "opened = [open('/dev/null') for _ in range(100)]", Limits(files=40))
    assert (end.code, "Too many open files" in said) == (1, True)


def test_a_limit_is_only_lowered(start: Start) -> None:
    code = (
        "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))"
    )

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, said = output_of(start, code, Limits(files=hard * 2))
    assert said.strip() == f"{(hard, hard)} {(0, 0)}"


# -- what it gets ------------------------------------------------------------------------------------------------------


def test_no_descriptor_of_ours_is_open_in_a_child_but_those_passed(start: Start, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file, (tmp_path / "passed").open("w") as passed:
        os.set_inheritable(file.fileno(), True)  # as careless code would
        capture = Capture()
        child = start("import os; print(*os.listdir('/proc/self/fd'))", output=capture.to, pass_fds=[passed.fileno()])
        capture.started()
        wait_until(child.reap)
        capture.close()
        fds = {int(fd) for fd in (capture.text(str) or "").split()}
        assert len(fds - {0, 1, 2, passed.fileno()}) == 1  # the listing itself


def test_it_has_nothing_to_read_a_tight_umask_and_no_way_to_more_rights(start: Start) -> None:
    code = "import os; print([sys.stdin.read(), os.umask(0)], open('/proc/self/status').read())"
    _, said = output_of(start, code)
    assert said.startswith(f"{['', 0o77]}")
    assert "NoNewPrivs:\t1\n" in said


def test_its_environment_is_an_allow_list() -> None:
    ours = {
        "PATH": "/bin", "LC_ALL": "C", "PYTHONPATH": "src", "HOME": "/", "AWS_SECRET_ACCESS_KEY": "x", "REGION": "eu",
        "HOLDFAST_URL": "sqlite:///x", "DATABASE_URL": "postgresql://x", "PGPASSWORD": "y", "API_TOKEN": "z",
    }  # fmt: skip
    kept = {"PATH", "LC_ALL", "PYTHONPATH", "HOME"}
    assert child_environment(ours).keys() == kept
    assert child_environment(ours, ["REGION", "NOT_SET"]).keys() == kept | {"REGION"}
    assert child_environment(ours, ["DATABASE_URL"]).keys() == kept
    assert child_environment(ours, ["API_TOKEN"], database=True).keys() == kept | {
        "API_TOKEN",
        "HOLDFAST_URL",
        "DATABASE_URL",
        "PGPASSWORD",
    }


def test_a_command_that_does_not_exist_leaves_nothing(start: Start) -> None:
    assert all_reaped()
    with pytest.raises(FileNotFoundError):
        spawn(["/does/not/exist"], env={}, setup=ChildSetup(parent=0))
    assert all_reaped()
