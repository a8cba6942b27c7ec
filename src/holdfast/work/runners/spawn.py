"""Starts a process of ours, and ends it for good: with its group, and with everybody it started, wherever they went.

Who descends from a child is known by three things: the group it was started in, a mark in its environment, and a mark
that nobody takes off by accident, a limit on POSIX message queues of an odd size, inherited through everything and told
even of a zombie. As this process adopts orphans (a "subreaper"), whoever a child leaves behind becomes our child:
found, killed and reaped here. Nobody else is touched: not the children of other runners, not what the program around
the worker has started, nor strangers that come to us because we are a container's first process.

On Linux. Elsewhere a child has a group of its own and that is all there is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from holdfast.work.runners.end import End
from holdfast.work.runners.kernel import (
    OutOfMemory,
    Process,
    adopt_orphans,
    descendants,
    environment_of,
    kill,
    out_of_memory,
    processes,
    queue_limit_of,
)
from holdfast.work.runners.settle import Terms

MARK = "HOLDFAST_RUNNER"
UNTIL_NONE = (
    5.0  # seconds in which descendants are killed until none is found; only one stuck in the kernel lasts so long
)
ROUND = 0.002  # seconds between two looks for them

_in_use: set[int] = set()  # limits that mark a child of ours
_lock = threading.Lock()


def spawn(
    command: Sequence[str], *, env: Mapping[str, str], terms: Terms, pass_fds: Sequence[int] = (),
    output: int | None = None, tied: bool = True,
) -> Child:  # fmt: skip
    """Start this command with `terms` as its last argument: the program begins with `settle(sys.argv[-1])`. It has a
    process group of its own, nothing on stdin, no descriptor of ours but those passed, and `output` as stdout and
    stderr (None: ours). `tied`: it dies when we do. The kernel takes the end of the thread that called this for our
    end, so call it from a thread that lives as long as the worker."""
    adopt_orphans(os.getpid())
    mark, limit = uuid.uuid4().hex, _take_limit()
    terms = replace(terms, parent=os.getpid() if tied else 0, queue_limit=limit)
    before = out_of_memory()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [*command, str(terms)], env={**env, MARK: mark}, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            pass_fds=pass_fds, close_fds=True, process_group=0,
        )  # fmt: skip
    except BaseException:
        _give_limit_back(limit)
        raise
    return Child(process, f"{MARK}={mark}".encode(), terms, before)


def _take_limit() -> int | None:
    """A size that marks one child among all of ours. None: there is no room for one."""
    try:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_MSGQUEUE)
    except (ImportError, AttributeError):
        return None
    most = 2**20 if most == resource.RLIM_INFINITY else min(most, 2**20)
    with _lock:
        if most // 2 <= 2 * len(_in_use):
            return None
        while (limit := random.randrange(most // 2, most)) in _in_use:  # noqa: S311 - no secret
            pass
        _in_use.add(limit)
    return limit


def _give_limit_back(limit: int | None) -> None:
    with _lock:
        _in_use.discard(limit or 0)


def _reap_adopted(table: dict[int, Process]) -> None:
    """Orphans that became our children although they are none of a child's that we end here (a pooled runner's,
    perhaps, or of the program around us): nobody else asks how they ended. Children that somebody here has started and
    will ask for are in our own group, or lead one."""
    ours, group = os.getpid(), os.getpgrp()
    for process in table.values():
        if process.ended and process.parent == ours and process.group not in (group, process.pid):
            with suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


class Child:
    """A process we started. Until `reap()` its number, and its group's, belong to nobody else."""

    def __init__(self, process: subprocess.Popen[bytes], mark: bytes, terms: Terms, before: OutOfMemory | None) -> None:
        self.pid = process.pid
        self.terms = terms
        self.end: End | None = None
        self._process = process
        self._mark = mark
        self._before = before
        self._killed = False  # by us
        # Becomes readable when it ends, for a selector.
        self.watched: int | None = None
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                self.watched = os.pidfd_open(self.pid)

    def ended(self) -> bool:
        """Has the process itself ended?"""
        if self.end is not None:
            return True
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # someone else has asked for it, or SIGCHLD is ignored
            return True

    def terminate(self) -> None:
        """Ask the whole group to end; whoever is stopped is let go on, to hear it."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it, and with it everybody it has started."""
        if not self.ended():
            self._killed = True
        self._signal(signal.SIGKILL)
        self._kill_kin()

    def wait(self) -> None:
        """Until the process itself has ended."""
        with suppress(ChildProcessError):  # someone else has asked for it: then it has
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    def reap(self) -> End | None:
        """How it ended; None: it has not. Whoever it left behind is gone by then."""
        if self.end is None and self.ended():
            self._signal(signal.SIGKILL)
            self._kill_kin()
            self.end = self._collect()
            if self.watched is not None:
                os.close(self.watched)
            _give_limit_back(self.terms.queue_limit)
        return self.end

    def _collect(self) -> End:
        try:
            _, status, usage = os.wait4(self.pid, 0)
        except ChildProcessError:
            self._process.returncode = 0
            return End(status=None, killed=self._killed, limits=self.terms.limits)
        self._process.returncode = code = os.waitstatus_to_exitcode(status)
        after = out_of_memory()
        memory_ran_out = None
        if code == -signal.SIGKILL and not self._killed and after is not None and self._before is not None:
            memory_ran_out = after.where if after.killed > self._before.killed else None
        return End(
            status=code, killed=self._killed, limits=self.terms.limits, memory_ran_out=memory_ran_out,
            memory=usage.ru_maxrss * 1024, cpu=usage.ru_utime + usage.ru_stime,
        )  # fmt: skip

    def _signal(self, number: int) -> None:
        if self.end is None:  # then the group's number is still its own
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _kill_kin(self) -> None:
        """Again and again until nobody is found: one may have been born while we looked."""
        deadline = time.monotonic() + UNTIL_NONE
        while (kin := self._kin()) and time.monotonic() < deadline:
            for process in kin:
                if not process.ended:
                    kill(process)
                elif process.parent == os.getpid():
                    with suppress(ChildProcessError):
                        os.waitpid(process.pid, os.WNOHANG)
            time.sleep(ROUND)

    def _kin(self) -> list[Process]:
        """Whoever is there because of it, itself left out. A zombie is its parent's to reap: ours, or it goes first."""
        table = processes()
        _reap_adopted(table)
        alive = () if self.ended() else descendants([self.pid], table)
        certain = {process.pid for process in alive}
        return [
            process
            for process in descendants([os.getpid()], table)
            if process.pid != self.pid
            and (process.pid in certain or process.group == self.pid or self._is_marked(process))
        ]

    def _is_marked(self, process: Process) -> bool:
        limit = self.terms.queue_limit
        if limit is not None and queue_limit_of(process.pid) == limit:
            return True
        return self._mark in environment_of(process.pid).split(b"\0")

    def __repr__(self) -> str:
        return f"<Child {self.pid}: {self.end or ('ended' if self.ended() else 'running')}>"
