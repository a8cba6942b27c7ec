"""A connection that takes jobs in one at a time, each with its wake-up right behind it: a transaction of its own, sent
in the same message, which the server begins as soon as the job is committed. Whoever enqueues waits for the job alone;
what became of the wake-up is read when the connection is used next. So a worker hears of the job before its enqueuer
could have told it, and inside the job's transaction, where NOTIFY makes commits queue up (F18), there is none.

This is the driver's pipeline without its ceremony, which would wait for the wake-up too."""

from __future__ import annotations

import select
import time
from datetime import datetime
from typing import Any

import psycopg
from psycopg import pq
from psycopg.errors import error_from_result

from holdfast.errors import StoreError, ValueRefused
from holdfast.store.postgres.connect import Connection, ready
from holdfast.store.postgres.copy import array

ENQUEUE = b"holdfast_enqueue"
WAKE = b"holdfast_wake"
# A wake-up need not outlive a crash of the server: its commit does not wait for the disk; nor for long in the queue for
# the one lock that all of them take, as the next job would wait behind it.
SEND = (
    b"select set_config('synchronous_commit', 'off', true), set_config('lock_timeout', '50ms', true), pg_notify($1, $2)"
)


class Post:
    def __init__(self, connection: Connection, enqueue: bytes) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._encoding = connection.info.encoding
        for name, text in ((ENQUEUE, enqueue), (WAKE, SEND)):
            prepared = self._pgconn.prepare(name, text)
            if prepared.status == pq.ExecStatus.FATAL_ERROR:
                raise error_from_result(prepared, self._encoding)
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        self._wake_sent = 0.0  # when the wake-up was sent whose answer is still to be read; 0: none
        self.waited = 0.0  # seconds the newest wake-up took, if it kept the next job waiting
        self.failure = ""  # why the newest wake-up whose answer was read could not be sent

    def usable(self) -> bool:
        """Is there still a server at the other end? Never waits."""
        try:
            while ready(self._pgconn.socket, timeout=0):  # its last words first, then its end
                self._pgconn.consume_input()
            if self._wake_sent and not self._pgconn.is_busy():
                self._wake_sent = 0.0
                self._read_wake_answer()
        except psycopg.Error:
            return False
        return self._pgconn.status == pq.ConnStatus.OK

    def enqueue(self, values: list[Any], channel: str, payload: str | None) -> int:
        """Commit one job and return its id; send the wake-up behind it, if there is one to send."""
        pgconn = self._pgconn
        job = [self._encoded(value) for value in values]
        wake = None if payload is None else [self._encoded(channel), self._encoded(payload)]
        try:
            pgconn.send_query_prepared(ENQUEUE, job)
            pgconn.pipeline_sync()
            if wake is not None:
                pgconn.send_query_prepared(WAKE, wake)
                pgconn.pipeline_sync()
            while pgconn.flush():
                ready(pgconn.socket, select.POLLIN | select.POLLOUT)
                pgconn.consume_input()
            sent = time.monotonic()
            self.waited = 0.0
            if self._wake_sent:
                began, self._wake_sent = self._wake_sent, 0.0
                self._read_wake_answer()
                self.waited = time.monotonic() - began
            if wake is not None:
                self._wake_sent = sent
            answer = self._answer()
        except BaseException:
            self.close()  # nobody could tell the answers that are still to come apart
            raise
        if answer.status == pq.ExecStatus.FATAL_ERROR:
            raise error_from_result(answer, self._encoding)
        id = answer.get_value(0, 0) if answer.ntuples else None
        if id is None:
            raise StoreError("the database took the job and kept nothing: is there a trigger on the table of jobs?")
        return int(id)

    def close(self) -> None:
        self.connection.close()

    def _read_wake_answer(self) -> None:
        answer = self._answer()
        if answer.status == pq.ExecStatus.FATAL_ERROR:
            self.failure = str(error_from_result(answer, self._encoding))

    def _answer(self) -> pq.abc.PGresult:
        """The answer to one message, all of it up to its end."""
        found: pq.abc.PGresult | None = None
        while True:
            while self._pgconn.is_busy():
                ready(self._pgconn.socket)
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is not None and result.status == pq.ExecStatus.PIPELINE_SYNC:
                assert found is not None
                return found
            # What fails when it is committed fails after its rows were sent: the worst of its answers counts.
            if found is None or (result is not None and result.status == pq.ExecStatus.FATAL_ERROR):
                found = result
            if self._pgconn.status != pq.ConnStatus.OK:  # it was not the server's answer, but its end
                raise psycopg.OperationalError(self._pgconn.get_error_message(self._encoding))

    def _encoded(self, value: Any) -> bytes | None:
        if value is None:
            return None
        if isinstance(value, list):
            value = array(value)
        elif isinstance(value, datetime):
            value = value.isoformat()
        # Members of an enumeration are what they stand for, whatever they call themselves.
        if isinstance(value, str):
            text = str.__str__(value)
        else:
            text = int.__repr__(value) if isinstance(value, int) else float.__repr__(value)
        encoded = text.encode(self._encoding)
        if b"\0" in encoded:
            raise ValueRefused("PostgreSQL keeps no text with a NUL character in it")
        return encoded
