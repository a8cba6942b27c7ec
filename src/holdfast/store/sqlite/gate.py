"""Our writers queue at a file lock before they ask SQLite for its own: with SQLite's busy handler alone, many
processes starve each other (its waits grow while luckier ones slip in). Here every waiter tries at the same short
intervals, so each gets its turn; and after a while it gives up with a clear error instead of waiting for ever. Threads
of one process queue among themselves first: hundreds that try so often would leave none of them the time to write."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from pathlib import Path

from holdfast.errors import StoreError, StoreUnavailable


class Turns:
    """Of the threads of this process at one gate. A courtesy, no more: what keeps others out is the file lock."""

    __slots__ = ("lock",)

    def __init__(self) -> None:
        self.lock = threading.Lock()


_turns: dict[Path, Turns] = {}
os.register_at_fork(after_in_child=_turns.clear)  # a child has no handle of its parent's


class Gate:
    """One per connection: a lock taken through one descriptor keeps out all others, also of the same process."""

    def __init__(self, path: Path, patience: float) -> None:
        self._path = path
        self._patience = patience
        self._turns = _turns.setdefault(path, Turns())
        self._turn: threading.Lock | None = None  # while it is ours
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{path} can't be opened for writing: {error.strerror}", number="HF3301") from error

    def __enter__(self) -> None:
        deadline = time.monotonic() + self._patience
        turn = self._turns.lock
        if turn.acquire(blocking=False) or turn.acquire(timeout=self._patience):
            self._turn = turn
        elif self._turns.lock is turn:
            # Whoever had it may have been interrupted by a signal before it could give it back: begin anew.
            self._turns.lock = threading.Lock()
        try:
            while not self._try():
                self._rest(deadline)
        except BaseException:
            self._give_up_turn()
            raise

    def _try(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _rest(self, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise StoreUnavailable(
                f"another process, or thread, has been writing to {self._path.name.removesuffix('-gate')} for more "
                f"than {self._patience:g} s; is one stopped in the middle of a transaction?",
                number="HF3302",
            )
        time.sleep(random.uniform(0.0002, 0.001))  # noqa: S311 - spreads the waiters, guards nothing

    def __exit__(self, *_: object) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        finally:
            self._give_up_turn()

    def _give_up_turn(self) -> None:
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.release()

    def close(self) -> None:
        os.close(self._descriptor)
