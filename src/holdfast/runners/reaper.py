"""The program of a worker's reaper: it waits until the worker has ended, for whatever reason, and then kills everything
that the worker's handlers left behind. Without it their programs would survive a `kill -9` of the worker, and go on
while their jobs run again elsewhere.

A worker feeds this file to a `python -S` of its own, which stays small because it imports nothing of ours. The reaper
keeps the lock open that says the worker lives, so no neighbour takes over the worker's jobs before it is done.

It recognises what to kill by a mark that a worker gives each process it starts, and that all descendants inherit: an
environment variable, and a limit on file locks, which no kernel has enforced since Linux 2.4 and which stays with a
process that clears its environment, leaves its session and loses its parent."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

MARK = "HOLDFAST_RUNNER"  # an environment variable
RLIMIT_LOCKS = 10  # Python's `resource` has no name for it
NUMBERS = 20  # bits of a mark that tell a worker's processes apart; the other bits are the same for all: its family
PATIENCE = 30.0  # seconds to kill all of them; only a process that is stuck in the kernel takes so long
ROUND = 0.005  # seconds between two looks
QUIET = 3  # consecutive looks that must find nothing: a process may have been forked where we had already looked

GONE = (ProcessLookupError, FileNotFoundError, PermissionError)  # it ended meanwhile, or belongs to another user


def marks_of(pid: int) -> set[int]:
    """The marks of this process; even a zombie still has its limit."""
    marks = set()
    for line in _read(f"/proc/{pid}/limits").splitlines():
        if line.startswith(b"Max file locks") and (hard := line.split()[4]).isdigit():
            marks.add(int(hard))
    for variable in _read(f"/proc/{pid}/environ").split(b"\0"):
        name, _, value = variable.partition(b"=")
        if name == MARK.encode() and value.isdigit():
            marks.add(int(value))
    return marks


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall() or b""
    except GONE:
        return b""


def belongs(pid: int, family: int) -> bool:
    """Does it descend from a process that the worker of this family started? (The reaper itself does not.)"""
    return any(mark >> NUMBERS == family and mark != family << NUMBERS for mark in marks_of(pid))


def main(family: int, pipe: int, worker: int, since: int) -> None:
    """`pipe`: the worker writes to it when it ends gracefully. `worker`: a pidfd of it; -1: the kernel has none, and
    the end of the pipe must do, which forks of the worker may keep open. `since`: when the worker started, as /proc has
    it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever stops a service may signal all of its processes
    _detach()
    _mark_ourselves(family << NUMBERS)
    watched = [pipe] if worker < 0 else [pipe, worker]
    ready, _, _ = select.select(watched, [], [])
    if pipe in ready and os.read(pipe, 1):
        return
    deadline = time.monotonic() + PATIENCE
    quiet = 0
    strangers: set[tuple[int, ...]] = set()
    while quiet < QUIET and time.monotonic() < deadline:
        quiet = 0 if kill_all(family, since, strangers) else quiet + 1
        time.sleep(ROUND)


def _detach() -> None:
    """Stop being a child of the worker: whoever kills it with all of its children does not mean us. Prints our pid."""
    if pid := os.fork():
        os.write(1, b"%d" % pid)
        os._exit(0)
    os.dup2(2, 1)


def _mark_ourselves(mark: int) -> None:
    """A worker that a handler of another worker started is killed together with that handler. Its reaper is not: it has
    its own mark instead of the inherited one."""
    import resource

    with suppress(ValueError, OSError):
        resource.setrlimit(RLIMIT_LOCKS, (mark, mark))


def kill_all(family: int, since: int, strangers: set[tuple[int, ...]]) -> bool:
    """Returns whether any of them was still alive. Reading marks takes long on a host with many processes, so those
    that are older than the worker are skipped, and so are `strangers`: those whose marks were read in an earlier
    look."""
    found = False
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        program = _program(int(name))
        if program is None or program[1] < since or program in strangers:
            continue
        if belongs(int(name), family):
            found = _kill(int(name), family) or found
        else:
            strangers.add(program)
    return found


def _program(pid: int) -> tuple[int, int, int] | None:
    """Its pid, when it started, and the address of its stack. The stack moves when it executes another program: a
    process that the worker has just forked gets its mark only then."""
    stat = _read(f"/proc/{pid}/stat")
    words = stat[stat.rfind(b")") + 2 :].split(None, 26)
    return (pid, int(words[19]), int(words[25])) if len(words) > 25 else None


def _kill(pid: int, family: int) -> bool:
    """Kill it, unless its pid is now another process's. False: it was dead, or is not ours to kill."""
    descriptor = None
    with suppress(AttributeError, OSError):
        descriptor = os.pidfd_open(pid)
    try:
        if not belongs(pid, family):
            return False
        if descriptor is None:
            os.kill(pid, signal.SIGKILL)
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except GONE:
        return False
    finally:
        if descriptor is not None:
            os.close(descriptor)
    stat = _read(f"/proc/{pid}/stat")
    return stat[stat.rfind(b")") + 2 :][:1] not in (b"", b"Z", b"X")


if __name__ == "__main__":
    main(*map(int, sys.argv[3:]))
