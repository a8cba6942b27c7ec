"""What we ask the kernel about processes: which descend from us, which it killed for want of memory. Outside Linux
there is no /proc and no prctl: then nothing is found, and nothing is promised beyond a process group."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

PDEATHSIG, NO_NEW_PRIVS, CHILD_SUBREAPER = 1, 38, 36  # options of prctl(2)

GONE = (ProcessLookupError, FileNotFoundError, PermissionError)  # it ended meanwhile, or belongs to another user


def prctl(option: int, value: int) -> bool:
    """Set a property of this process (of this thread, for some). False: the system has no such thing."""
    if not sys.platform.startswith("linux"):
        return False
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0)


@cache
def adopt_orphans(process: int) -> bool:
    """From now on, descendants that lose their parent become our children, not init's, so that we can find them. Once
    for each process."""
    return prctl(CHILD_SUBREAPER, 1)


class ProcessEntry(NamedTuple):
    """An entry of the process table. A pid may be used again once its process is gone; with `started` it is unique."""

    pid: int
    parent: int
    group: int
    started: int
    ended: bool  # a zombie: its parent has not waited for it yet


def processes() -> dict[int, ProcessEntry]:
    """All processes, by pid."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return {}
    found = (process_of(int(name)) for name in names if name.isdigit())
    return {process.pid: process for process in found if process is not None}


def process_of(pid: int) -> ProcessEntry | None:
    try:
        # With plain system calls: this is done for every process on the host.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            text = os.read(descriptor, 4096)
        finally:
            os.close(descriptor)
    except GONE:
        return None
    # The program's name, in brackets, may contain anything.
    words = text[text.rindex(b")") + 2 :].split(None, 20)
    return ProcessEntry(pid, int(words[1]), int(words[2]), int(words[19]), words[0] in (b"Z", b"X"))


def our_children() -> list[int]:
    return children_of(os.getpid())


def children_of(pid: int) -> list[int]:
    """The pids of its children, zombies too. Quicker than reading the whole table; not every kernel supports it."""
    found: list[int] = []
    with suppress(*GONE):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(*GONE), open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += map(int, file.read().split())
    return found


def memory() -> int | None:
    """The bytes of memory that this process and its descendants occupy; what they share counts for each. None: the
    system does not say."""
    pages, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        with suppress(*GONE), open(f"/proc/{pid}/statm", encoding="ascii") as file:
            pages += int(file.read().split()[1])
        waiting += children_of(pid)
    return pages * os.sysconf("SC_PAGESIZE") if pages else None


def descendants(roots: Iterable[int], among: dict[int, ProcessEntry]) -> Iterator[ProcessEntry]:
    children: dict[int, list[ProcessEntry]] = {}
    for process in among.values():
        children.setdefault(process.parent, []).append(process)
    waiting = [child for root in roots for child in children.get(root, ())]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process.pid, ())


def kill(process: ProcessEntry) -> None:
    """SIGKILL to this very process, not to one that has its pid by now."""
    with suppress(*GONE):
        if not hasattr(os, "pidfd_open"):
            os.kill(process.pid, signal.SIGKILL)
            return
        descriptor = os.pidfd_open(process.pid)
        try:
            now = process_of(process.pid)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        finally:
            os.close(descriptor)


class OutOfMemory(NamedTuple):
    """How many processes the kernel has killed so far for want of memory, and where that was counted."""

    killed: int
    where: str


def out_of_memory() -> OutOfMemory | None:
    """Of our control group, in either version; otherwise of the machine. None: nothing counts them."""
    for path, where in _counters():
        if (killed := oom_kills(path)) is not None:
            return OutOfMemory(killed, where)
    return None


def oom_kills(path: Path) -> int | None:
    try:
        words = dict(line.split()[:2] for line in path.read_text().splitlines() if " " in line)
        return int(words["oom_kill"])
    except (OSError, ValueError, KeyError):
        return None


@cache
def _counters() -> list[tuple[Path, str]]:
    groups = Path("/sys/fs/cgroup")
    found: list[tuple[Path, str]] = []
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                homes, name = [groups / "memory" / path.lstrip("/"), groups / "memory"], "memory.oom_control"
            elif not controllers:
                homes, name = [groups / path.lstrip("/"), groups], "memory.events"
            else:
                continue
            # Inside a container, the path of our group may be the host's: then the group is mounted at the top.
            found += [(home / name, "container") for home in homes]
    return [*found, (Path("/proc/vmstat"), "machine")]
