"""A connection on which whole transactions are sent, each in one message. Their answers are read in the same order,
some of them later; the driver's own pipeline mode would wait for all of them."""

from __future__ import annotations

import select
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from holdfast.errors import ValueRefused
from holdfast.store.postgres.codec import array
from holdfast.store.postgres.connect import LOCK_TIMEOUT, Connection, hears, ready
from holdfast.store.postgres.session import TICK, Wait

Values = list[bytes | None]
Statement = tuple[str, Values]  # its name and its values as text

# Where a session can't keep settings (behind a pooler), each transaction brings its own.
BOUND = f"select set_config('lock_timeout', '{LOCK_TIMEOUT}', true)".encode()


class Pipeline:
    def __init__(self, connection: Connection, statements: Mapping[str, bytes], *, prepare: bool = True) -> None:
        self.connection = connection
        self._pgconn = connection.pgconn
        self._loading = Transformer(connection)
        self._texts = statements
        self._names = {name: b"holdfast_" + name.encode() for name in statements} if prepare else {}
        self._unread = 0  # messages whose answers have not been read yet
        self._readable = select.poll()
        self._readable.register(self._pgconn.socket, select.POLLIN)
        self._pgconn.nonblocking = 1
        self._pgconn.enter_pipeline_mode()
        if self._names:
            for name, text in statements.items():
                self._pgconn.send_prepare(self._names[name], text)
            self._sync()
            self.flush()
            self.answer()

    def send(self, statements: Iterable[Statement]) -> None:
        """Queue one transaction; `flush` sends it."""
        if self._names:
            for name, values in statements:
                self._pgconn.send_query_prepared(self._names[name], values, result_format=pq.Format.BINARY)
        else:
            self._pgconn.send_query_params(BOUND, [])
            for name, values in statements:
                self._pgconn.send_query_params(self._texts[name], values, result_format=pq.Format.BINARY)
        self._sync()

    def _sync(self) -> None:
        self._unread += 1  # first: if we are interrupted in between, nobody must read another's answer
        self._pgconn.pipeline_sync()

    def flush(self) -> None:
        while self._pgconn.flush():
            ready(self._pgconn.socket, select.POLLIN | select.POLLOUT)
            self._pgconn.consume_input()

    def answer(self) -> list[pq.abc.PGresult]:
        """The results of the oldest transaction whose answer has not been read, one per statement. Raises what the
        server refused."""
        results: list[pq.abc.PGresult] = []
        refused: pq.abc.PGresult | None = None
        while True:
            while self._pgconn.is_busy():
                if not self._readable.poll(TICK * 1000):
                    self._wait()
                self._pgconn.consume_input()
            result = self._pgconn.get_result()
            if result is not None:
                if result.status == pq.ExecStatus.PIPELINE_SYNC:
                    break
                # What fails at commit fails after its rows were sent.
                if result.status == pq.ExecStatus.FATAL_ERROR and refused is None:
                    refused = result
                results.append(result)
            if self._pgconn.status != pq.ConnStatus.OK:  # not an answer: the connection ended
                raise psycopg.OperationalError(self._pgconn.get_error_message("utf-8"))
        self._unread -= 1
        if refused is not None:
            raise error_from_result(refused)
        return results if self._names else results[1:]

    def _wait(self) -> None:
        wait = Wait(self.connection)
        try:
            while not self._readable.poll(TICK * 1000):
                wait.goes_on()
        finally:
            wait.ends()

    def in_step(self, error: psycopg.Error) -> bool:
        """Is this error an answer of the server, so that the next answers can be read?"""
        return bool(error.sqlstate) and self._pgconn.status == pq.ConnStatus.OK

    def rows(self, result: pq.abc.PGresult) -> list[tuple[Any, ...]]:
        self._loading.set_pgresult(result)
        return self._loading.load_rows(0, result.ntuples, tuple)

    def usable(self) -> bool:
        """Is the server still there, with no answers outstanding? Never waits."""
        return self._hears() and not self._unread

    def _hears(self) -> bool:
        return hears(self._pgconn, self._readable)

    def close(self) -> None:
        self.connection.close()

    def encoded(self, values: Iterable[Any]) -> Values:
        """These values as text."""
        return [None if value is None else self._encoded(value) for value in values]

    def _encoded(self, value: Any) -> bytes:
        try:
            encoded = (value if type(value) is str else _text(value)).encode()
        except UnicodeEncodeError as error:
            raise ValueRefused(f"PostgreSQL keeps no text like this: {error}") from None
        if b"\0" in encoded:
            raise ValueRefused("PostgreSQL keeps no text with a NUL character in it")
        return encoded


def _text(value: Any) -> str:
    if isinstance(value, list):
        return array(value)
    if isinstance(value, datetime):
        return value.isoformat()
    # Members of an enumeration are sent as their values, whatever their `__str__` says.
    if isinstance(value, str):
        return str.__str__(value)
    return int.__repr__(value) if isinstance(value, int) else float.__repr__(value)
