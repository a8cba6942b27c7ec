"""A worker's row in the database: it exists, what it serves, and whether it can take more work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from holdfast.model.job import Look
from holdfast.model.peers import Place
from holdfast.store.base import Store


class Presence:
    def __init__(
        self, store: Store, id: str, *, name: str, host: str, queues: tuple[str, ...] | None, tasks: tuple[str, ...],
        crons: Sequence[str] = (), lease: float, slots: Callable[[], int],
        is_open: Callable[[], bool],
    ) -> None:  # fmt: skip
        """`slots`: how many there are. `is_open`: the desk hears wake-ups and has a free slot."""
        self._store = store
        self._id = id
        self._name = name
        self._host = host
        self._queues = queues
        self._tasks = tasks
        self._crons = tuple(crons)
        self._lease = lease
        self._is_open = is_open
        self._slots = slots
        self._announced = False  # the other workers know that there is one more to wake
        self.place = Place()  # among its peers, as of the last look
        self.leaving = False  # the worker stops: its row is about to be deleted, so it is not written again

    def register(self) -> None:
        if not self.leaving:
            self._store.workers.register(
                id=self._id, name=self._name, host=self._host, pid=os.getpid(), queues=self._queues, tasks=self._tasks,
                slots=self._slots(), crons=self._crons, lease=self._lease,
            )  # fmt: skip

    def look(self) -> Look:
        """Mark the worker present, and read what concerns it."""
        is_open = self._is_open()
        look = self._store.look(self._id, self._tasks, self._queues, self._crons, open=is_open)
        if not look.known:
            # A failover lost the row, or another worker took us for dead. Whoever lists workers would miss us.
            self.register()
            self._announced = False
        if is_open and not self._announced:
            self._announced = True
            self._store.wakeups.notify(workers=True)
        self.place = look.place
        return look

    def unregister(self) -> None:
        self._store.workers.unregister(self._id)
