"""A connection that enqueues jobs one at a time, each with its wake-up right behind it: a transaction of its own, sent
in the same message, which the server begins as soon as the job is committed. The caller waits only for the job; the
result of the wake-up is read when the connection is used next. So workers hear of the job as early as possible, and the
job's own transaction contains no NOTIFY, which would make commits queue for one lock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg
from msgspec.structs import replace
from psycopg import pq

from holdfast.errors import StoreError
from holdfast.model.job import NewJob
from holdfast.store.columns import kind_of
from holdfast.store.postgres.connect import Connection
from holdfast.store.postgres.notify import aimed
from holdfast.store.postgres.pipeline import Pipeline, Values

ARGS = b"[]"  # in place of a job's own
KINDS = 1000  # of jobs that are remembered at most

# A wake-up waits only briefly for the one lock that all NOTIFYs take: the next job waits behind it. It never waits for
# the disk, as it writes nothing.
WAKE = b"select set_config('lock_timeout', '50ms', true), pg_notify($1, $2)"


class EnqueueConnection(Pipeline):
    """`columns`: the parameters of `enqueue` for a job, in order. `fixed`: equal jobs always have equal parameters."""

    def __init__(
        self, connection: Connection, enqueue: bytes, columns: Callable[[NewJob], list[Any]], *, fixed: bool
    ) -> None:
        super().__init__(connection, {"enqueue": enqueue, "wake": WAKE})
        self._columns = columns
        self._kinds: dict[tuple[object, ...], Values] | None = {} if fixed else None
        self._args_at = columns(NewJob(task="", args=ARGS)).index(ARGS.decode())
        self._wake_sent = False  # its answer has not been read yet
        self._wakeup = ("", "")  # the last one that was sent
        # Of the last job: seconds until it was committed, and whether its wake-up was sent along.
        self.waited, self.along = 0.0, False
        self.failure: tuple[tuple[str, str], str] | None = None  # a wake-up that could not be sent, and why

    def in_order(self) -> bool:
        """As far as its answers say. `usable` finds out what happened since the last one."""
        return self._pgconn.status == pq.ConnStatus.OK and self._unread == self._wake_sent

    def usable(self) -> bool:
        """The answer to the last wake-up stays unread: we read it while the server works on the next job."""
        return self._hears() and self.in_order()

    def enqueue(self, job: NewJob, wakeup: tuple[str, str], turn: Callable[[tuple[str, str]], bool]) -> int:
        """Commit one job and return its id; send the wake-up (its channel and text) behind it, if `turn` allows it.
        That is asked while the server is already working."""
        self.along = False
        self.send([("enqueue", self._values(job))])
        sent = time.monotonic()
        if turn(wakeup):
            self.along = True
            self.send([("wake", self.encoded((aimed(wakeup[0]), wakeup[1])))])
        self.flush()
        self._read_wake_answer()
        if self.along:
            self._wake_sent, self._wakeup = True, wakeup
        [answer] = self.answer()
        self.waited = time.monotonic() - sent
        id = answer.get_value(0, 0) if answer.ntuples else None
        if id is None:
            raise StoreError("the database took the job and kept nothing: is there a trigger on the table of jobs?")
        return int.from_bytes(id)

    def _values(self, job: NewJob) -> Values:
        """Jobs of a kind have everything but their arguments in common: that is encoded once."""
        if self._kinds is None:
            return self.encoded(self._columns(job))
        kind = kind_of(job)
        common = self._kinds.get(kind)
        if common is None:
            common = self.encoded(self._columns(replace(job, args=ARGS)))
            if len(self._kinds) >= KINDS:
                self._kinds.clear()
            self._kinds[kind] = common
        values = common.copy()
        values[self._args_at] = job.args
        return values

    def _read_wake_answer(self) -> None:
        """Of the previous job, if a wake-up was sent behind it."""
        if not self._wake_sent:
            return
        self._wake_sent = False
        try:
            self.answer()
        except psycopg.Error as error:
            if not self.in_step(error):
                raise
            self.failure = self._wakeup, str(error)
