"""What handlers leave behind, in files of the run's directory: counting costs no database traffic. One file per
process, mapped, holding how many handlers started, when the first did, and when the last. CLOCK_MONOTONIC is one clock
for all processes of a host."""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RECORD = struct.Struct("<qqq")


class Recorder:
    """The handlers' side: of threads, coroutines or forked processes."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._process = 0

    def started(self, asked_ns: int) -> None:
        """A handler has started. `asked_ns`: when its job was asked for; 0: nobody wants to know."""
        now = time.monotonic_ns()
        with self._lock:
            if self._process != os.getpid():
                self._open(now)
            self._count += 1
            RECORD.pack_into(self._map, 0, self._count, self._first, now)
            if asked_ns:
                os.write(self._waits, b"%d\n" % (now - asked_ns))

    def started_long(self) -> None:
        with (self._place / "long").open("a") as file:
            file.write(f"{time.monotonic_ns()}\n")

    def _open(self, now: int) -> None:
        self._process = os.getpid()
        self._count = 0
        self._first = now
        with (self._place / f"count-{self._process}").open("w+b") as file:
            file.truncate(RECORD.size)
            self._map = mmap.mmap(file.fileno(), RECORD.size)
        self._waits = os.open(self._place / f"waits-{self._process}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


@dataclass(frozen=True)
class Tally:
    """The driver's side: how far all processes of a run have come."""

    count: int
    processes: int
    first_ns: int


def read_tally(place: Path) -> Tally:
    records = [RECORD.unpack(data) for data in _contents(place, "count-*") if len(data) == RECORD.size]
    begun = [(count, first) for count, first, _ in records if count]
    return Tally(sum(count for count, _ in begun), len(begun), min((first for _, first in begun), default=0))


def read_waits_ms(place: Path) -> list[float]:
    return [int(line) / 1e6 for data in _contents(place, "waits-*") for line in data.splitlines()]


def read_long_starts(place: Path) -> list[int]:
    return [int(line) for data in _contents(place, "long") for line in data.splitlines()]


def _contents(place: Path, pattern: str) -> Iterator[bytes]:
    return (path.read_bytes() for path in place.glob(pattern))
