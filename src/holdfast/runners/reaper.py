"""The program of a worker's reaper: it waits until the worker has ended, however that happened, and then kills whatever
the worker's handlers left behind. Without it their programs would outlive a `kill -9` of the worker, and go on while
their jobs run again elsewhere.

A worker reads this file to a `python -S` of its own, which stays small that way: it imports nothing of ours. While it
lives it keeps the lock open that says the worker lives, so no neighbour takes the worker's jobs over before it is done.

It recognises whom to kill by a mark that a worker gives each process it starts, and which everybody inherits who
descends from that: an environment variable, and a limit on file locks, which no kernel has enforced since Linux 2.4 and
which stays with a process that clears its environment, leaves its session and loses its parent."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

MARK = "HOLDFAST_RUNNER"  # an environment variable
RLIMIT_LOCKS = 10  # Python's `resource` has no name for it
NUMBERS = 20  # bits of a mark that tell a worker's processes apart; the others are its family, the worker's own
PATIENCE = 30.0  # seconds to kill all of them; only a process that is stuck in the kernel takes that long
ROUND = 0.005  # seconds between two looks
QUIET = 3  # looks in a row that must find nobody: one may have been born behind our back

GONE = (ProcessLookupError, FileNotFoundError, PermissionError)  # it ended meanwhile, or is somebody else's


def marks_of(pid: int) -> set[int]:
    """The marks this process carries; even a zombie still has its limit."""
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
    """Does it descend from a process that this family's worker started? Its reaper does not."""
    return any(mark >> NUMBERS == family and mark != family << NUMBERS for mark in marks_of(pid))


def main(family: int, line: int, worker: int, since: int) -> None:
    """`line`: a pipe on which the worker says that it ends in good order. `worker`: a pidfd of it; -1: the kernel has
    none, and the end of the pipe has to do, which forks of the worker may keep open. `since`: when the worker started,
    as /proc tells it."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # who stops a service may signal all of its processes
    _detach()
    _mark_ourselves(family << NUMBERS)
    watched = [line] if worker < 0 else [line, worker]
    ready, _, _ = select.select(watched, [], [])
    if line in ready and os.read(line, 1):
        return
    deadline = time.monotonic() + PATIENCE
    quiet = 0
    strangers: set[tuple[int, ...]] = set()
    while quiet < QUIET and time.monotonic() < deadline:
        quiet = 0 if kill_all(family, since, strangers) else quiet + 1
        time.sleep(ROUND)


def _detach() -> None:
    """Be no child of the worker's: who kills it and all of its children at once does not mean us. Tells our pid."""
    if pid := os.fork():
        os.write(1, b"%d" % pid)
        os._exit(0)
    os.dup2(2, 1)


def _mark_ourselves(mark: int) -> None:
    """A worker that a handler of another worker's started is killed with it. Its reaper is not: it has its own mark
    instead of the other's."""
    import resource

    with suppress(ValueError, OSError):
        resource.setrlimit(RLIMIT_LOCKS, (mark, mark))


def kill_all(family: int, since: int, strangers: set[tuple[int, ...]]) -> bool:
    """Is anybody there who was not dead before? To read marks takes long on a host with many processes. So whoever is
    older than the worker is passed over, and so are `strangers`: those whose marks an earlier look has read."""
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
    """Its pid, when it started, and where its stack is. The stack moves when it executes another program: a process
    that the worker had just forked gets its mark only then."""
    stat = _read(f"/proc/{pid}/stat")
    words = stat[stat.rfind(b")") + 2 :].split(None, 26)
    return (pid, int(words[19]), int(words[25])) if len(words) > 25 else None


def _kill(pid: int, family: int) -> bool:
    """Kill it, unless its number has become another's. False: it was dead, or is not ours to kill."""
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
