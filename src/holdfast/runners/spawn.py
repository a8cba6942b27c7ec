"""Starts a child process, and ends it for good: with its group, and with everything it started, wherever that went.

A child's descendants are recognised by the process group it was started in and by a mark that they all inherit (see
reaper.py). A worker adopts orphans (it is a "subreaper", see reaper_watch.py), so whatever a child leaves behind
becomes our child, and is found, killed and reaped here. Nothing else is touched: not the children of other runners, not
what the program around the worker has started, nor strangers that come to us because we are a container's first
process. If this process itself is killed, its reaper does the same for all of its children.

This takes Linux. Elsewhere a child has a process group of its own, and that is all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import count

from msgspec.structs import replace

from holdfast.model.isolation import NO_LIMITS, Limits
from holdfast.runners.child_setup import ChildSetup
from holdfast.runners.linux import (
    OutOfMemory,
    ProcessEntry,
    descendants,
    kill,
    our_children,
    out_of_memory,
    processes,
)
from holdfast.runners.reaper import GONE, MARK, NUMBERS, RLIMIT_LOCKS, belongs, marks_of

# How a process ended, and how that is described.

# What programs print when they can't get memory: Python, C++, the C library, a Python that can't even print that.
NO_MEMORY = re.compile(r"MemoryError|bad_alloc|[Cc]annot allocate memory|out of memory")
LAST_WORDS = 2_000  # characters of output that are searched for it


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """`code` is as Python has it: the exit status, or minus the signal that ended the process; None: unknown."""

    code: int | None
    limits: Limits = NO_LIMITS
    killed: bool = False  # by us
    memory_ran_out: str | None = None  # where the kernel counted a kill for want of memory: container, machine
    memory: int = 0  # bytes of RAM at most
    cpu: float = 0.0  # seconds

    @property
    def clean(self) -> bool:
        return self.code == 0

    def described(self, output: str = "") -> str:
        """The end of a sentence: "exited with status 3", "was ended by SIGSEGV". `output`: what it printed."""
        why = self._why(output[-LAST_WORDS:])
        return f"{self}{f' ({why})' if why else ''}"

    def _why(self, last_words: str) -> str | None:
        limits = self.limits
        if self.memory_ran_out is not None:
            return f"probably out of memory: the kernel killed a process of this {self.memory_ran_out}"
        if self.killed or self.clean:
            return None
        killed_late = self.code == -signal.SIGKILL and limits.cpu is not None and self.cpu > limits.cpu
        if limits.cpu is not None and (self.code == -signal.SIGXCPU or killed_late):
            return f"it used up its limit of {limits.cpu:g} s of CPU time"
        if self.code == -signal.SIGXFSZ and limits.file_size is not None:
            return f"it wrote a file beyond its limit of {limits.file_size} bytes"
        if NO_MEMORY.search(last_words):
            limit = "" if limits.memory is None else f": its limit is {limits.memory / 2**20:.0f} MB"
            return f"probably out of memory{limit}"
        return None

    def __str__(self) -> str:
        if self.code is None:
            return "ended, nobody knows how"
        if self.code >= 0:
            return f"exited with status {self.code}"
        try:
            return f"was ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"was ended by signal {-self.code}"


UNTIL_NONE = (
    5.0  # seconds in which descendants are killed until none is found; only one stuck in the kernel lasts longer
)
ROUND = 0.002  # seconds between two looks at the process table

_numbers = count(1)  # of children
_alive: set[Child] = set()  # not reaped yet
_starting = threading.Lock()  # held until a process that was started is in `_alive`
# Held while orphans are reaped, and while descendants are looked for. A descendant that forks and ends while we look is
# known by its zombie alone: if that were reaped before we have read its mark, its child would escape.
_reaping = threading.Lock()


def spawn(
    command: Sequence[str], *, env: Mapping[str, str], setup: ChildSetup, pass_fds: Sequence[int] = (),
    output: int | None = None, tied: bool = True,
) -> Child:  # fmt: skip
    """Start this command with `setup` as its last argument: the program begins with `set_up(sys.argv[-1])`. It has a
    process group of its own, nothing on stdin, no descriptors of ours but those passed, and `output` as stdout and
    stderr (None: ours). `tied`: it dies when we do. The kernel takes the end of the calling thread for our end, so call
    this on a thread that lives as long as the worker."""
    before = out_of_memory()
    with _starting:
        mark = _free_mark()
        setup = replace(setup, parent=os.getpid() if tied else 0, mark=mark)
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, str(setup)], env={**env, MARK: str(mark)}, stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, pass_fds=pass_fds, close_fds=True, process_group=0,
        )  # fmt: skip
        return Child(process, setup, before)


def _free_mark() -> int:
    """Numbers wrap around after a million children. A child that has lived that long keeps its own."""
    used = {child.setup.mark for child in list(_alive)}
    while True:
        number = next(_numbers) % (2**NUMBERS - 1) + 1  # 0 is for reapers
        mark: int = (family(os.getpid()) << NUMBERS) + number
        if mark not in used:
            return mark


@cache
def family(process: int) -> int:
    """The part that the marks of this process's children have in common, and no others on this host. A limit can only
    be lowered: if this process has a mark itself, because a handler started it, the marks of its children are
    smaller."""
    most = 2**62
    try:
        import resource

        _, limit = resource.getrlimit(RLIMIT_LOCKS)
        most = limit if 2**50 < limit < most else most
    except (ImportError, ValueError, OSError):
        pass  # the mark in the environment must do
    half = most >> NUMBERS + 1
    return half + int.from_bytes(os.urandom(8), "big") % half


def all_reaped() -> bool:
    """Is no child of ours left, nor anything it started?"""
    return not _alive


def reap_adopted() -> None:
    """Reap adopted orphans that have ended. Called every few seconds: a handler may leave many behind while no child of
    ours ends. Costs next to nothing while there is no zombie."""
    with suppress(OSError):  # we have no children, or no descriptor is free: next time
        if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            with _reaping:
                _reap_adopted(processes())


def _reap_adopted(table: dict[int, ProcessEntry]) -> None:
    """Nobody else waits for an orphan that became our child. A child that code in this process started, and will wait
    for, is in our own group or leads one. An orphan may lead one, too, as a daemon does: its mark tells it apart."""
    ours, group = os.getpid(), os.getpgrp()
    zombies = [process for process in table.values() if process.ended and process.parent == ours]
    if not zombies:
        return
    with _starting:
        owned = {child.pid for child in list(_alive)}
        for process in zombies:
            if process.pid not in owned and (
                process.group not in (group, process.pid) or belongs(process.pid, family(ours))
            ):
                with suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)


class Child:
    """A process we started. Until `reap()`, its pid and its group's belong to nobody else."""

    def __init__(self, process: subprocess.Popen[bytes], setup: ChildSetup, before: OutOfMemory | None) -> None:
        self.pid = process.pid
        self.setup = setup
        self.exit_status: ExitStatus | None = None  # known once it is reaped
        self._process = process
        self._before = before
        self._killed = False  # by us
        self.watched: int | None = None  # a descriptor that becomes readable when it ends
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self.watched = os.pidfd_open(self.pid)
        _alive.add(self)

    def ended(self) -> bool:
        """Has the process itself ended?"""
        if self.exit_status is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # other code has waited for it, or SIGCHLD is ignored
            return True

    def terminate(self) -> None:
        """Ask the whole group to end. Stopped processes are continued, so that they get the signal."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it and everything it has started."""
        if not self.ended():
            self._killed = True
        self._signal(signal.SIGKILL)
        self._kill_descendants()

    def wait(self) -> None:
        """Until the process itself has ended."""
        with suppress(ChildProcessError):  # other code has waited for it: then it has
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def reap(self) -> ExitStatus | None:
        """How it ended; None: it has not. Everything it left behind is gone by then."""
        if self.exit_status is None and self.ended():
            self._signal(signal.SIGKILL)
            self._kill_descendants()
            self.exit_status = self._collect()
            if self.watched is not None:
                os.close(self.watched)
            _alive.discard(self)
        return self.exit_status

    def _collect(self) -> ExitStatus:
        try:
            _, status, usage = os.wait4(self.pid, 0)
        except ChildProcessError:
            self._process.returncode = 0
            return ExitStatus(code=None, killed=self._killed, limits=self.setup.limits)
        self._process.returncode = code = os.waitstatus_to_exitcode(status)
        after = out_of_memory()
        memory_ran_out = None
        if code == -signal.SIGKILL and not self._killed and after is not None and self._before is not None:
            memory_ran_out = after.where if after.killed > self._before.killed else None
        return ExitStatus(
            code=code, killed=self._killed, limits=self.setup.limits, memory_ran_out=memory_ran_out,
            memory=usage.ru_maxrss * 1024, cpu=usage.ru_utime + usage.ru_stime,
        )  # fmt: skip

    def _signal(self, number: int) -> None:
        if self.exit_status is None:  # then the group's id is still its own
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _kill_descendants(self) -> None:
        """Repeat until none is found: one may have been forked while we looked."""
        deadline = time.monotonic() + UNTIL_NONE
        while (found := self._descendants()) and time.monotonic() < deadline:
            for process in found:
                if not process.ended:
                    kill(process)
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """For a moment, as quickly as possible: a process that forks and ends at once is gone by the time we have read
        the whole table, and so is its child. Orphans are our own children, which are few."""
        until = time.monotonic() + ROUND
        while time.monotonic() < until:
            with _reaping:
                children = our_children()
                for pid in children:
                    if pid != self.pid and self.setup.mark in marks_of(pid):
                        with suppress(*GONE):
                            os.kill(pid, signal.SIGKILL)
                            os.waitpid(pid, os.WNOHANG)
            if not children:  # the kernel does not list them: the next look at the whole table finds them
                time.sleep(ROUND)

    def _descendants(self) -> list[ProcessEntry]:
        """All that descend from it, without itself. A zombie is its parent's to reap: that is us, or it goes first."""
        with _reaping:
            table = processes()
            alive = () if self.ended() else descendants([self.pid], table)
            certain = {process.pid for process in alive}
            mark = self.setup.mark
            found = [
                process
                for process in descendants([os.getpid()], table)
                if process.pid != self.pid
                and (process.pid in certain or process.group == self.pid or mark in marks_of(process.pid))
            ]
            _reap_adopted(table)
        return found

    def __repr__(self) -> str:
        return f"<Child {self.pid}: {self.exit_status or ('ended' if self.ended() else 'running')}>"
