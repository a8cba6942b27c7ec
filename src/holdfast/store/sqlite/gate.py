"""A file lock that our writers take before they ask SQLite for its own: with SQLite's busy handler alone, many
processes starve each other (its waits grow while luckier processes get in). Here every waiter tries at the same short
intervals, so each gets its turn. A waiter gives up when one holder has kept the gate for too long, and names the
holder. Threads of one process queue among themselves first: hundreds of threads that try so often would leave no time
to write.

The holder writes its process and thread into the file, so that others can name it. Nothing needs to be cleared
afterwards: the note counts only while the file is locked, and whoever locks it writes a new one."""

from __future__ import annotations

import fcntl
import os
import random
import struct
import threading
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from holdfast.errors import StoreError, StoreUnavailable
from holdfast.model.facts import Holder

REST = (0.0002, 0.001)  # seconds between two tries
# The next thread of this process wakes up at once, while other processes only try at intervals. So after a long turn we
# pause to let them go first; otherwise threads with long transactions would keep the gate among themselves.
LONG_TURN, COURTESY = 0.05, 0.002  # seconds
CHANCE = random.SystemRandom()  # the application may have seeded the shared generator
NOTE_LENGTH = 500  # bytes
DEFERRED_AT = 512  # where the file says until when there is to be no checkpoint
WRITE_LOCK = "120"  # SQLite's writer locks this byte of the -shm file


class Turns:
    """Orders the threads of this process at one gate. Only for fairness: exclusion comes from the file lock."""

    __slots__ = ("lock", "moved")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.moved = time.monotonic()  # when a thread of this process last got the gate


_turns: dict[Path, Turns] = {}
_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


def _in_child() -> None:
    """A forked child shares its parent's file locks. It must neither release them nor keep them if its parent is
    killed."""
    _turns.clear()
    for gate in list(_gates):
        gate.close()


os.register_at_fork(after_in_child=_in_child)


class Gate:
    """One per connection: a lock taken through one descriptor excludes all others, also of the same process."""

    def __init__(self, database: Path, patience: float) -> None:
        self._name = database.name
        self._patience = patience
        self._turns = _turns.setdefault(database, Turns())
        self._turn: threading.Lock | None = None  # while we hold it
        self.note = ""  # what others are told about this holder; set before the first turn
        self._thread: threading.Thread | None = None  # the last one that held it, and how it is described
        self._who = ""
        path = f"{database}-gate"
        try:
            # Don't follow a link: we write to the file, and others may be able to write to its directory.
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(f"{path} can't be opened for writing: {error.strerror}", number="HF3301") from error
        _let_writers_in(self._descriptor, database)
        _gates.add(self)

    def __enter__(self) -> None:
        turn = self._turns.lock
        if turn.acquire(blocking=False) or self._await_turn(turn):
            self._turn = turn
            deadline = time.monotonic() + self._patience
        else:
            deadline = 0.0  # we have waited long enough
        try:
            while not self._try():
                deadline = self._rest(deadline)
        except BaseException:
            self._give_up_turn()
            raise
        self._turns.moved = now = time.monotonic()
        thread = threading.current_thread()
        if thread is not self._thread:
            self._thread, self._who = thread, f"{os.getpid()}\t{thread.name[:100]}\t{self.note}"
        try:  # noqa: SIM105 - every write passes here, and suppress takes as long as the rest
            os.pwrite(self._descriptor, f"{self._who}\t{now}\n".encode(errors="replace"), 0)
        except OSError:
            pass  # the disk is full: then others can't name the holder

    def defer_checkpoint(self, until: float) -> None:
        """Tell whoever holds the gate after us that none is to be tried until then (monotonic: the same for all
        processes)."""
        os.pwrite(self._descriptor, struct.pack("d", until), DEFERRED_AT)

    def checkpoint_deferred(self, at_most: float) -> bool:
        """`at_most`: seconds. What was written before the host started again says nothing."""
        data = os.pread(self._descriptor, 8, DEFERRED_AT)
        return len(data) == 8 and 0 < struct.unpack("d", data)[0] - time.monotonic() <= at_most

    def _await_turn(self, turn: threading.Lock) -> bool:
        """False: for too long, no thread of this process has got the gate."""
        began = time.monotonic()
        while (left := max(began, self._turns.moved) + self._patience - time.monotonic()) > 0:
            if turn.acquire(timeout=left):
                return True
        if self._turns.lock is turn:
            # Its holder may have been interrupted by a signal before it could release it: use a new lock.
            self._turns.lock = threading.Lock()
        return False

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _rest(self, deadline: float) -> float:
        """Wait a moment. Returns the new deadline."""
        now = time.monotonic()
        if now > deadline:
            holder = _noted(self._descriptor)
            if holder is None or holder.seconds >= self._patience:
                raise StoreUnavailable(
                    f"another process, or thread, has been writing to {self._name} for more "
                    f"than {self._patience:g} s{f' ({holder})' if holder else ''}; is one stopped in the middle of a "
                    "transaction?",
                    number="HF3302",
                )
            deadline = now + self._patience - holder.seconds  # others take turns, so ours will come
        time.sleep(CHANCE.uniform(*REST))
        return deadline

    def __exit__(self, *_: object) -> None:
        try:
            if self._descriptor >= 0:
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            if time.monotonic() - self._turns.moved > LONG_TURN:
                time.sleep(COURTESY)
        finally:
            self._give_up_turn()

    def _give_up_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _let_writers_in(descriptor: int, database: Path) -> None:
    """Give access to whoever may write to the database, and nobody else: whoever can read the gate can lock it, and so
    keep everybody from writing."""
    with suppress(OSError):  # another user's file: its owner does this
        theirs, ours = os.stat(database), os.fstat(descriptor)
        writers = theirs.st_mode & 0o222 | 0o200  # its owner always: a read-only file may become writable again
        if ours.st_mode & 0o777 != (mode := writers | writers << 1):
            os.fchmod(descriptor, mode)
        if ours.st_gid != theirs.st_gid:
            os.fchown(descriptor, -1, theirs.st_gid)


def holder_of(database: Path) -> Holder | None:
    """Who keeps all others from writing to this file right now. None: nobody, or it is unknown."""
    try:
        descriptor = os.open(f"{database}-gate", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _noted(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)  # releases the lock, if we got it
    writer = writer_of(database)
    if holder is None or writer in (None, holder.pid):
        return holder
    return replace(holder, writer=writer)


def _noted(descriptor: int) -> Holder | None:
    """The note of the holder. (The monotonic clock is the same for all processes of a host.)"""
    try:
        line, end, _ = os.pread(descriptor, NOTE_LENGTH, 0).decode(errors="replace").partition("\n")
        pid, thread, note, since = line.split("\t") if end else ("", "", "", "")
        return Holder(int(pid), thread, note, max(0.0, time.monotonic() - float(since)))
    except (OSError, ValueError):
        return None


def writer_of(database: Path) -> int | None:
    """The process that has SQLite's own write lock, according to the kernel. (We don't test it with a lock of our own:
    closing the file would drop the locks that SQLite has in this process.)"""
    with suppress(OSError, ValueError, IndexError):
        inode = os.stat(f"{database}-shm").st_ino
        for line in Path("/proc/locks").read_text().splitlines():
            _, kind, *_, pid, file, start, _ = line.split()
            if kind == "POSIX" and start == WRITE_LOCK and int(file.rpartition(":")[2]) == inode:
                return int(pid)
    return None
