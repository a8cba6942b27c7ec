"""Workers on one host notice each other's death at once. Each holds a lock on a file as long as it lives; the kernel
releases it when the process is gone, however it ended. (Zombies and reused pids would fool a check of pids.)

The files may lie where other users can write, /tmp for example. So every directory of ours is opened as a descriptor,
never through a symbolic link, and must be writable by us alone. Everything else is relative to that descriptor,
whatever stands at its path later. Only files that look like ours are touched."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from holdfast import events
from holdfast.errors import OutcomeUnknown, StoreError
from holdfast.store.base import Store
from holdfast.worker.loop import Loop
from holdfast.worker.rescuer import Rescuer, Trust

WATCH_EVERY = 0.5  # seconds; costs no statement
MOST = 256  # neighbours checked in one round
WORKER = re.compile(r"[^./][^/]*~[0-9a-f]{12}", re.DOTALL)  # an id as worker.py makes it
DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
FILE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: never wait for a FIFO


class Alone(Exception):
    """Why this worker can have no neighbours: only leases tell it then that others died."""


def meet(store: Store, host: str, worker: str) -> Neighbours:
    """Join the workers of this store on this host."""
    try:
        return Neighbours(meeting_place(store, host), worker)
    except Alone as why:
        events.emit("alone", worker=worker, why=str(why))
        return Neighbours(None, worker)


def meeting_place(store: Store, host: str, *, create: bool = True) -> int | None:
    """A descriptor of the directory where workers of this store on this host keep their files. None: it does not exist
    and `create` is False. Raises Alone."""
    path = getattr(store.db, "path", None)
    try:
        if path is not None:
            where, levels = Path(path).parent, [f"{Path(path).name}-workers", host]
        else:
            where, levels = _runtime_directory(), [f"holdfast-{os.getuid()}", store.schema.store_id, host]
        # This one may be a link, as /tmp is on some systems, and need not be readable: we trust nothing because of it.
        place = os.open(where, getattr(os, "O_PATH", os.O_RDONLY) | DIRECTORY)
        for name in levels:
            where /= name
            above = place
            try:
                place = _enter(above, name, create=create)
            finally:
                os.close(above)
    except (OSError, ValueError) as error:
        if not create and isinstance(error, FileNotFoundError):
            return None
        raise Alone(f"{str(where)!r} can't be used: {getattr(error, 'strerror', None) or error}") from None
    return place


def living(store: Store, host: str, workers: Iterable[str]) -> set[str]:
    """Which of these workers are on this host, with a process that lives. Those of other users can't be seen."""
    try:
        place = meeting_place(store, host, create=False)
    except Alone:
        return set()
    if place is None:
        return set()
    try:
        there = set(os.listdir(place))
        return {worker for worker in workers if worker in there and not _is_free(place, worker)}
    finally:
        os.close(place)


def _runtime_directory() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return Path(runtime if os.path.isabs(runtime) and os.path.isdir(runtime) else tempfile.gettempdir())


def _enter(above: int, name: str, *, create: bool) -> int:
    if "/" in name or name in ("", ".", ".."):
        raise ValueError("its name can't be that of a directory")
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
    try:
        place = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | DIRECTORY, dir_fd=above)
    except OSError:
        if stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            raise ValueError("it is a symbolic link") from None
        raise
    found = os.fstat(place)
    if found.st_uid != os.getuid():
        trouble = f"it belongs to user {found.st_uid}, and this is user {os.getuid()}"
    elif found.st_mode & 0o022:
        trouble = f"others may write to it (mode {stat.S_IMODE(found.st_mode):o})"
    else:
        return place
    os.close(place)
    raise ValueError(trouble)


class Neighbours:
    def __init__(self, place: int | None, worker: str) -> None:
        """`place`: a descriptor that we own from now on. Raises Alone if our own file can't be made there."""
        self._place = place
        self._worker = worker
        self._own: int | None = None
        # The number of a closed descriptor is soon reused, so nothing may use it while it is closed.
        self._using = threading.Lock()
        if place is not None:
            try:
                self._own = _life_lock(place, worker)
            except (OSError, ValueError) as error:
                os.close(place)
                raise Alone(f"no file can be made for worker {worker!r}: {error}") from None

    @property
    def descriptor(self) -> int | None:
        """The lock that says that we live. Only our reaper gets a copy: whoever has one can unlock it."""
        return self._own

    def dead(self) -> list[str]:
        """Workers whose lock is free. Their files stay until `bury`, so that they are found again if a rescue fails."""
        with self._using:
            if self._place is None:
                return []
            try:
                names = [name for name in os.listdir(self._place) if WORKER.fullmatch(name) and name != self._worker]
            except OSError:
                return []
            return [name for name in names[:MOST] if _is_free(self._place, name)]

    def bury(self, worker: str) -> None:
        with self._using:
            if self._place is not None:
                _remove(self._place, worker)

    def leave(self) -> None:
        """We end in good order, so there is nothing to rescue."""
        with self._using:
            if self._place is not None and self._own is not None:
                _remove(self._place, self._worker)
                os.close(self._own)
                os.close(self._place)
                self._own = self._place = None


def _life_lock(place: int, worker: str) -> int:
    """A locked file. It is created and locked under another name before it gets its own, so that nobody can find it
    unlocked while its worker lives."""
    if not WORKER.fullmatch(worker):
        raise ValueError("that can't be the name of a file")
    hidden = f".{worker}"
    descriptor = os.open(hidden, FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=place)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.rename(hidden, worker, src_dir_fd=place, dst_dir_fd=place)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _is_free(place: int, worker: str) -> bool:
    try:
        descriptor = os.open(worker, FILE, dir_fd=place)
    except OSError:  # the worker has left meanwhile, or this is no file of a worker
        return False
    try:
        if not _is_ours(os.fstat(descriptor)):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _remove(place: int, worker: str) -> None:
    with suppress(FileNotFoundError):
        if WORKER.fullmatch(worker) and _is_ours(os.stat(worker, dir_fd=place, follow_symlinks=False)):
            os.unlink(worker, dir_fd=place)


def _is_ours(found: os.stat_result) -> bool:
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()


class NeighbourWatch:
    """Rescues the jobs of neighbours that died. Their locks tell, so this needs neither the lease nor trust in the
    clock. It has a thread of its own: a look, a cron or retention that the database keeps waiting must not hold it up.
    """

    def __init__(
        self, store: Store, neighbours: Neighbours, rescuer: Rescuer, trust: Trust, *, failed: Callable[[], None]
    ) -> None:
        """`failed` is called if the database did not take a rescue."""
        self._store = store
        self._neighbours = neighbours
        self._rescuer = rescuer
        self._trust = trust
        self._failed = failed
        self.looked = False  # at least once, to the end
        self.loop = Loop("neighbours", self._step)

    def _step(self) -> float:
        try:
            self._rescue()
        except StoreError as error:
            if isinstance(error, OutcomeUnknown):
                self._trust.revoke()
            events.emit("unavailable", error=str(error), wait=WATCH_EVERY)
            self._failed()
        else:
            self.looked = True
        return WATCH_EVERY

    def _rescue(self) -> None:
        for worker in self._neighbours.dead():
            events.emit("neighbour_died", worker=worker)
            self._rescuer.rescue_from([worker])
            self._store.workers.unregister(worker)
            self._neighbours.bury(worker)
