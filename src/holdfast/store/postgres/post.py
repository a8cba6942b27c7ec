"""A connection that takes jobs in one at a time, each with its wake-up right behind it: a transaction of its own, sent
in the same message, which the server begins as soon as the job is committed. Whoever enqueues waits for the job alone;
what became of the wake-up is read when the connection is used next. So a worker hears of the job before its enqueuer
could have told it, and inside the job's transaction, where NOTIFY makes commits queue up (F18), there is none."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg import pq

from holdfast.errors import StoreError
from holdfast.store.postgres.connect import Connection
from holdfast.store.postgres.line import Line

# The next job would wait behind a wake-up that waits for the one lock all of them take. (For the disk none does: it
# writes nothing but its own commit.)
WAKE = b"select set_config('lock_timeout', '50ms', true), pg_notify($1, $2)"


class Post(Line):
    def __init__(self, connection: Connection, enqueue: bytes) -> None:
        super().__init__(connection, {"enqueue": enqueue, "wake": WAKE})
        self._wake_sent = False  # its answer is still to be read
        self.waited = 0.0  # seconds until the newest job was committed
        self.failure = ""  # why the newest wake-up whose answer was read could not be sent

    def in_order(self) -> bool:
        """As far as its answers tell. What happened since the last of them, `usable` finds out."""
        return self._pgconn.status == pq.ConnStatus.OK and self._unread == self._wake_sent

    def usable(self) -> bool:
        if not self._hears():
            return False
        if self._wake_sent and not self._pgconn.is_busy():
            self._wake_sent = False
            try:
                self._read_wake_answer()
            except psycopg.Error:
                return False
        return self._unread == self._wake_sent

    def enqueue(self, values: list[Any], channel: str, payload: str | None) -> int:
        """Commit one job and return its id; send the wake-up behind it, if there is one to send."""
        job = self.encoded(values)
        wake = None if payload is None else self.encoded([channel, payload])
        self.send([("enqueue", job)])
        if wake is not None:
            self.send([("wake", wake)])
        self.flush()
        sent = time.monotonic()
        if self._wake_sent:
            self._wake_sent = False
            self._read_wake_answer()
        self._wake_sent = wake is not None
        [answer] = self.answer()
        self.waited = time.monotonic() - sent
        id = answer.get_value(0, 0) if answer.ntuples else None
        if id is None:
            raise StoreError("the database took the job and kept nothing: is there a trigger on the table of jobs?")
        return int.from_bytes(id)

    def _read_wake_answer(self) -> None:
        try:
            self.answer()
        except psycopg.Error as error:
            if not self.in_step(error):
                raise
            self.failure = str(error)
