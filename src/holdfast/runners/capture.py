"""What an attempt in an isolated process writes to stdout and stderr: its beginning and its end are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from holdfast.model.outcome import clean
from holdfast.redact import Hide

KEPT = 32 * 1024  # bytes of the beginning, and as many of the end
SEEN = 4 * 1024  # bytes beyond them that are searched for secrets: half a secret would not be recognised
CHUNK = 64 * 1024
CHUNKS = 16  # at once
LAST_CHUNKS = 64  # after the end: more than a pipe holds


class Capture:
    """A pipe to write to, `to`, and what came out of it. Reading never blocks; read whenever there is something, so
    that the writer never waits for long."""

    def __init__(self, kept: int = KEPT) -> None:
        self.fd, self.to = os.pipe()
        os.set_blocking(self.fd, False)
        self._kept = kept
        self._first = bytearray()
        self._last = bytearray()
        self.size = 0
        self._open = True

    def started(self) -> None:
        """The writer has its own copy of the pipe's end by now."""
        os.close(self.to)

    def read(self, chunks: int = CHUNKS) -> bool:
        """Read what is there, or some of it: a process that writes without end must not keep us here. False: nobody can
        write any more."""
        for _ in range(chunks):
            try:
                data = os.read(self.fd, CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._take(data)
        return True

    def close(self) -> None:
        """The writers are gone, or no longer of interest."""
        if self._open:
            self._open = False
            with suppress(OSError):
                self.read(LAST_CHUNKS)
            os.close(self.fd)

    def _take(self, data: bytes) -> None:
        self.size += len(data)
        more = self._kept + SEEN - len(self._first)
        if more > 0:
            self._first += data[:more]
            data = data[more:]
        self._last += data
        if len(self._last) > 2 * (self._kept + SEEN):  # cut now and then, not for every line
            del self._last[: -(self._kept + SEEN)]

    def text(self, hide: Hide) -> str | None:
        """What was written, as it may be stored and shown; None: nothing was."""
        if not self.size:
            return None
        if self.size <= 2 * self._kept:
            return _decoded(bytes(self._first + self._last), hide)
        everything = self.size <= len(self._first) + len(self._last)
        rest = bytes(self._first + self._last) if everything else bytes(self._last)
        first = _cut(_decoded(bytes(self._first), hide), self._kept, lambda data, n: data[:n])
        last = _cut(_decoded(rest, hide), self._kept, lambda data, n: data[-n:])
        return f"{first}\n… {self.size - 2 * self._kept:,} bytes left out …\n{last}"


def _decoded(data: bytes, hide: Hide) -> str:
    return hide(clean(data.decode("utf-8", "replace")))


def _cut(text: str, size: int, part: Callable[[bytes, int], bytes]) -> str:
    """So many bytes of it, in whole characters."""
    return part(text.encode(), size).decode("utf-8", "ignore")
