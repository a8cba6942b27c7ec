"""A connection that takes jobs in one at a time, each with its wake-up right behind it: a transaction of its own, sent
in the same message, which the server begins as soon as the job is committed. Whoever enqueues waits for the job alone;
what became of the wake-up is read when the connection is used next. So a worker hears of the job before its enqueuer
could have told it, and inside the job's transaction, where NOTIFY makes commits queue up (F18), there is none.

Or, where jobs come one at a time and far between, each by a statement that gives it to a worker that has offered to
take it: that one need not claim it any more (docs/decisions/0022)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
from msgspec.structs import replace
from psycopg import pq

from holdfast.errors import StoreError
from holdfast.model.job import NewJob
from holdfast.store.postgres.connect import LOCK_TIMEOUT, Connection, session_ended
from holdfast.store.postgres.line import Line, Values

ARGS = b"[]"  # in the place of a job's own
KINDS = 1000  # of jobs that are remembered

# For locks nobody waits for long here: not for the one that all wake-ups take, as the next job would wait behind it,
# nor for what it takes to give a job away. Only a job that goes the plain way does, if it must. (For the disk no
# wake-up waits: it writes nothing but its own commit.)
IMPATIENT = b"set lock_timeout = '50ms'"
PATIENT = f"select set_config('lock_timeout', '{LOCK_TIMEOUT}', true)".encode()
WAKE = b"select pg_notify($1, $2)"


Columns = Callable[[NewJob], list[Any]]  # what a statement takes of a job, in its order


class Post(Line):
    """`ways`: the statements by which a job is taken in, `enqueue` and `enqueue_offered`. `fixed`: what they take is
    the same for equal jobs, always."""

    def __init__(self, connection: Connection, ways: Mapping[str, tuple[bytes, Columns]], *, fixed: bool) -> None:
        connection.execute(IMPATIENT, prepare=False)
        super().__init__(connection, {"enqueue": ways["enqueue"][0], "wake": WAKE, "patient": PATIENT})
        self._giving = ways["enqueue_offered"][0]
        self._columns = {name: columns for name, (_, columns) in ways.items()}
        self._kinds: dict[tuple[str, NewJob], Values] | None = {} if fixed else None
        probe = NewJob(task="", args=ARGS)
        self._args_at = {name: columns(probe).index(ARGS.decode()) for name, columns in self._columns.items()}
        self._wake_sent = False  # its answer is still to be read
        self._wakeup = ("", "")  # the newest that was sent
        # Of the newest job: seconds until it was committed, and whether its wake-up was sent along.
        self.waited, self.along = 0.0, False
        self.failure: tuple[tuple[str, str], str] | None = None  # a wake-up that could not be sent, and why

    def in_order(self) -> bool:
        """As far as its answers tell. What happened since the last of them, `usable` finds out."""
        return self._pgconn.status == pq.ConnStatus.OK and self._unread == self._wake_sent

    def usable(self) -> bool:
        """The answer to the last wake-up is left unread: there is time for that while the server takes the next job."""
        return self._hears() and self.in_order()

    def enqueue(self, job: NewJob, wakeup: tuple[str, str], turn: Callable[[tuple[str, str]], bool]) -> int:
        """Commit one job and return its id; send the wake-up (its channel and text) behind it, if it is its turn. That
        is asked while the server works already."""
        self.along = False
        values = self._values("enqueue", job)
        self.send([("enqueue", values)])
        sent = time.monotonic()
        if turn(wakeup):
            self.along = True
            self.send([("wake", self.encoded(wakeup))])
        self.flush()
        self._read_wake_answer()
        if self.along:
            self._wake_sent, self._wakeup = True, wakeup
        try:
            return self._id(sent)
        except psycopg.errors.LockNotAvailable:
            self.along = False  # that one told of nothing
            self.send([("patient", []), ("enqueue", values)])
            self.flush()
            self._read_wake_answer()
            return self._id(sent)

    def give(self, job: NewJob) -> int | psycopg.Error:
        """Commit one job, which goes to a worker that has offered to take it, if there is one; somebody is told of it
        in any case. Returns its id; or why the server refused, for whatever reason, so that nothing was done."""
        self.along = True
        try:
            if "enqueue_offered" not in self._names:
                self._prepare_to_give()
            self.send([("enqueue_offered", self._values("enqueue_offered", job))])
            sent = time.monotonic()
            self.flush()
            self._read_wake_answer()
            return self._id(sent)
        except psycopg.Error as error:
            if session_ended(self.connection, error):  # perhaps right after the commit
                raise
            return error

    def _prepare_to_give(self) -> None:
        """Only now: it needs other tables, too, which somebody may have locked."""
        self._read_wake_answer()
        self.prepare("enqueue_offered", self._giving)

    def _id(self, sent: float) -> int:
        """Of the job that was sent then."""
        [*_, answer] = self.answer()
        self.waited = time.monotonic() - sent
        id = answer.get_value(0, 0) if answer.ntuples else None
        if id is None:
            raise StoreError("the database took the job and kept nothing: is there a trigger on the table of jobs?")
        return int.from_bytes(id)

    def _values(self, way: str, job: NewJob) -> Values:
        """Jobs of a kind have all but their arguments in common: that is encoded once."""
        columns = self._columns[way]
        if self._kinds is None:
            return self.encoded(columns(job))
        kind = way, replace(job, args=ARGS)
        common = self._kinds.get(kind)
        if common is None:
            common = self.encoded(columns(kind[1]))
            if len(self._kinds) >= KINDS:
                self._kinds.clear()
            self._kinds[kind] = common
        values = common.copy()
        values[self._args_at[way]] = job.args
        return values

    def _read_wake_answer(self) -> None:
        """Of the job before, if one was sent behind it."""
        if not self._wake_sent:
            return
        self._wake_sent = False
        try:
            self.answer()
        except psycopg.Error as error:
            if not self.in_step(error):
                raise
            self.failure = self._wakeup, str(error)
