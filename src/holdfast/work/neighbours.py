"""Workers on one host see each other's death at once: each holds a lock on a file for as long as it lives; the kernel
lets go of it when the process is gone, however it ended. (A pid check is fooled by zombies and reused pids.)"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from pathlib import Path

from holdfast.store.base import Store

CROWD = 256  # neighbours looked at in one round


def meeting_place(store: Store, host: str) -> Path | None:
    """The directory where workers of this store on this host leave their files; None where there can't be one, and
    the lease alone decides."""
    path = getattr(store, "path", None)
    if path is not None:
        place = Path(f"{path}-workers")
    else:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        base = Path(runtime) if runtime and Path(runtime).is_dir() else Path(tempfile.gettempdir())
        place = base / f"holdfast-{os.getuid()}" / store.store_id
    try:
        for directory in (place.parent, place, place / host) if path is None else (place, place / host):
            directory.mkdir(mode=0o700, exist_ok=True)
            found = directory.stat()
            if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
                return None  # someone else's: not to be trusted
    except OSError:
        return None
    return place / host


class Neighbours:
    def __init__(self, place: Path | None, worker: str) -> None:
        self._place = place
        self._worker = worker
        self._own: int | None = None
        if place is not None:
            self._own = _locked(place / worker, create=True)

    @property
    def descriptor(self) -> int | None:
        """The lock that says we live. Whoever runs attempts for this worker inherits it."""
        return self._own

    def dead(self) -> list[str]:
        """Workers whose lock is free. Their files stay until `bury`: if rescuing fails, they are found again."""
        if self._place is None:
            return []
        try:
            names = [n for n in os.listdir(self._place) if n != self._worker and not n.startswith(".")]
        except OSError:
            return []
        return [name for name in names[:CROWD] if self._is_free(self._place / name)]

    def bury(self, worker: str) -> None:
        if self._place is not None:
            (self._place / worker).unlink(missing_ok=True)

    def leave(self) -> None:
        """We end in good order: there is nothing to rescue."""
        if self._own is not None:
            self.bury(self._worker)
            os.close(self._own)
            self._own = None

    def _is_free(self, path: Path) -> bool:
        descriptor = _locked(path, create=False)
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def _locked(path: Path, *, create: bool) -> int | None:
    """Lock the file, or None if it is locked or gone. Created under another name first and locked before it gets its
    own, so that nobody can find it unlocked while its worker lives."""
    try:
        if create:
            hidden = path.with_name(f".{path.name}")
            descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            hidden.rename(path)
            return descriptor
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
