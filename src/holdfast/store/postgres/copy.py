"""Jobs as rows of COPY's binary format, written by hand: the driver's own way, value by value, takes longer than the
database does, which in turn reads numbers and times sooner than text. What jobs of one kind share is written once."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from holdfast.errors import ValueRefused
from holdfast.model.job import NewJob

COPIED = "id, args, queue, task, priority, max_attempts, run_at, ready_at, expires_at, correlation_id, tags"

BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"
NULL = b"\xff\xff\xff\xff"
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # PostgreSQL counts from there, in microseconds
MICROSECOND = timedelta(microseconds=1)
TEXT = 25  # the type's number in every catalogue
KINDS = 1000  # remembered at most

_row = struct.Struct("!hiqi").pack  # how many values; the first one's length and the first one, the id; length of args


class CopyRows:
    """Times are relative to one reading of the database's clock."""

    def __init__(self, now: datetime, *, tell_clock: bool) -> None:
        self._now = now
        self._tell_clock = tell_clock
        self._values = COPIED.count(",") + 1 + tell_clock
        self._endings: dict[tuple[object, ...], bytes] = {}

    def of(self, ids: Iterable[int], jobs: Iterable[NewJob]) -> bytes:
        values, endings = self._values, self._endings
        rows: list[bytes] = []
        for id, job in zip(ids, jobs, strict=True):
            kind = (
                job.queue, job.task, job.priority, job.max_attempts, job.delay, job.run_at, job.expires_in,
                job.correlation_id, job.tags,
            )  # fmt: skip
            ending = endings.get(kind)
            if ending is None:
                ending = self._ending(job)
                if len(endings) < KINDS:
                    endings[kind] = ending
            rows += (_row(values, 8, id, len(job.args)), job.args, ending)
        return b"".join(rows)

    def _ending(self, job: NewJob) -> bytes:
        due = _instant(self._later(job.delay) if job.run_at is None else job.run_at)
        try:
            numbers = struct.pack("!ihii", 2, job.priority, 4, job.max_attempts)
        except struct.error:
            raise ValueRefused(f"priority {job.priority} or max_attempts {job.max_attempts} is out of range") from None
        values = [
            _text(job.queue), _text(job.task), numbers, due, due,
            NULL if job.expires_in is None else _instant(self._later(job.expires_in)),
            NULL if job.correlation_id is None else _text(job.correlation_id),
            _texts(job.tags) if job.tags else NULL,
        ]  # fmt: skip
        if self._tell_clock:
            values.append(_instant(self._now))
        return b"".join(values)

    def _later(self, seconds: float) -> datetime:
        return self._now + timedelta(seconds=seconds)


def _text(text: str) -> bytes:
    return _value(text.encode())


def _texts(texts: tuple[str, ...]) -> bytes:
    """An array: of one dimension, without nulls, counted from 1."""
    return _value(struct.pack("!iiiii", 1, 0, TEXT, len(texts), 1) + b"".join(map(_text, texts)))


def _value(data: bytes) -> bytes:
    return struct.pack("!i", len(data)) + data


def _instant(moment: datetime) -> bytes:
    return struct.pack("!iq", 8, (moment - EPOCH) // MICROSECOND)


def array(words: Iterable[str]) -> str:
    """A list of texts as PostgreSQL writes it."""
    quoted = (word.replace("\\", r"\\").replace('"', r"\"") for word in words)
    return "{" + ",".join(f'"{word}"' for word in quoted) + "}"
