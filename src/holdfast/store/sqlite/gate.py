"""Our writers queue at a file lock before they ask SQLite for its own: with SQLite's busy handler alone, many
processes starve each other (its waits grow while luckier ones slip in). Here every waiter tries at the same short
intervals, so each gets its turn; and after a while it gives up with a clear error instead of waiting for ever."""

from __future__ import annotations

import fcntl
import os
import random
import time
from pathlib import Path

from holdfast.errors import StoreError, StoreUnavailable


class Gate:
    """One per connection: a lock taken through one descriptor keeps out all others, also of the same process."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{path} can't be opened for writing: {error.strerror}", number="HF3301") from error

    def __enter__(self) -> None:
        deadline = 0.0
        while not self._try():
            now = time.monotonic()
            deadline = deadline or now + self._patience
            if now > deadline:
                raise StoreUnavailable(
                    f"another process has been writing to {self._path.name.removesuffix('-gate')} for more than "
                    f"{self._patience:g} s; is one stopped in the middle of a transaction?",
                    number="HF3302",
                )
            time.sleep(random.uniform(0.0002, 0.001))  # noqa: S311 - spreads the waiters, guards nothing

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self._descriptor)
