"""How PostgreSQL stores values: it, or its driver, has a type for each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.errors import ValueRefused
from holdfast.model.job import NewJob
from holdfast.store.columns import DUE, EXPIRY, NOW, Column, JobId, kind_of


class PostgresCodec:
    def moment(self, stored: Any) -> datetime | None:
        return None if stored is None else stored.astimezone(UTC)

    def instant(self, moment: datetime | None) -> Any:
        return moment

    def words(self, stored: Any) -> tuple[str, ...]:
        return tuple(stored or ())

    def json(self, stored: Any) -> bytes | None:
        return None if stored is None else bytes(stored)

    def ids(self, stored: Any) -> list[JobId]:
        return list(stored)


def array(words: Iterable[str]) -> str:
    """A list of texts as PostgreSQL writes it."""
    quoted = (word.replace("\\", r"\\").replace('"', r"\"") for word in words)
    return "{" + ",".join(f'"{word}"' for word in quoted) + "}"


def numbers(values: Iterable[Any]) -> str:
    """An array of numbers or UUIDs as PostgreSQL writes it: one parameter of one type, whatever its length."""
    return "{" + ",".join(map(str, values)) + "}"


# Jobs as rows of COPY's binary format, encoded here: the driver's encoding, value by value, takes longer than the
# database takes to store them, and the database reads binary numbers and times faster than text. What equal jobs
# share is encoded once.

BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"
NULL = b"\xff\xff\xff\xff"
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # PostgreSQL counts from there, in microseconds
MICROSECOND = timedelta(microseconds=1)
TEXT = 25  # the type's number in every catalogue
KINDS = 1000  # remembered at most

_row = struct.Struct("!hiqi").pack  # how many values; the length of the id and the id; the length of the arguments


class CopyRows:
    """Rows of these columns, of which the arguments come first, behind an id. Times are relative to one reading of the
    database's clock."""

    def __init__(self, columns: Iterable[Column], now: datetime) -> None:
        self._rest = [column for column in columns if column.name != "args"]
        self._now = now
        self._encoded: dict[tuple[object, ...], bytes] = {}

    @property
    def names(self) -> str:
        return ", ".join(["id", "args", *(column.name for column in self._rest)])

    def of(self, ids: Iterable[int], jobs: Iterable[NewJob]) -> bytes:
        count, encoded = 2 + len(self._rest), self._encoded
        rows: list[bytes] = []
        for id, job in zip(ids, jobs, strict=True):
            kind = kind_of(job)
            rest = encoded.get(kind)
            if rest is None:
                rest = b"".join(self._value(column, job) for column in self._rest)
                if len(encoded) < KINDS:
                    encoded[kind] = rest
            rows += (_row(count, 8, id, len(job.args)), job.args, rest)
        return b"".join(rows)

    def _value(self, column: Column, job: NewJob) -> bytes:
        value = self._source(column, job)
        if value is None or value == ():
            return NULL
        try:
            return _ENCODERS[column.type](value)
        except struct.error:
            raise ValueRefused(f"{column.name} {value} is out of range") from None

    def _source(self, column: Column, job: NewJob) -> Any:
        if column.enqueued is DUE:
            return self._later(job.delay) if job.run_at is None else job.run_at
        if column.enqueued is EXPIRY:
            return None if job.expires_in is None else self._later(job.expires_in)
        return self._now if column.enqueued is NOW else getattr(job, column.name)

    def _later(self, seconds: float) -> datetime:
        return self._now + timedelta(seconds=seconds)


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _texts(texts: tuple[str, ...]) -> bytes:
    """An array: of one dimension, without nulls, counted from 1."""
    return _sized(struct.pack("!iiiii", 1, 0, TEXT, len(texts), 1) + b"".join(map(_text, texts)))


def _sized(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "text": _text,
    "text[]": _texts,
    "smallint": lambda number: struct.pack("!ih", 2, number),
    "integer": lambda number: struct.pack("!ii", 4, number),
    "timestamptz": lambda moment: struct.pack("!iq", 8, (moment - EPOCH) // MICROSECOND),
}
