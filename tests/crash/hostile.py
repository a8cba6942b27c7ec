"""Handlers that attack their own worker: they look for their process's line to it, and write to that themselves."""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from holdfast import JobContext
from holdfast.model.job import ClaimedJob
from holdfast.tasks.attempt import Attempt

FLOOD = 2.0  # seconds
MUCH = 50_000  # bytes of what it says again and again
LONG = 7 * 2**20  # characters of an error message
SECRET = "hunter2"


def line() -> socket.socket:
    """The socket that the worker has made: event loops have some of their own, and so has the database."""
    for place in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if os.readlink(place).startswith("socket:"):
                found = socket.socket(fileno=os.dup(int(place.name)))
                if found.family == socket.AF_UNIX and _made_by(found) == os.getppid():
                    return found
    raise LookupError("no line")


def _made_by(found: socket.socket) -> int:
    return int(struct.unpack("3i", found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])


def framed(message: Any) -> bytes:
    data = msgspec.msgpack.encode(message)
    return len(data).to_bytes(4, "big") + data


def attack(ctx: JobContext, how: str, *, alone: bool) -> None:
    """Whatever comes of it, this process says nothing more by itself."""
    attempt = ctx._attempt
    assert attempt is not None
    to_worker = line()
    with suppress(OSError):  # the worker has ended us, or is about to
        for data in _said(how, attempt, alone=alone):
            to_worker.sendall(data)
    if alone:
        os._exit(0)
    time.sleep(FLOOD)


def _said(how: str, attempt: Attempt, *, alone: bool) -> Any:
    held, now = attempt.held, time.monotonic()
    match how:
        case "not utf-8" | "not json" | "nul":
            result = {"not utf-8": b'"\xff\xfe"', "not json": b"{not JSON", "nul": b'"\\u0000"'}[how]
            yield framed(("ended", _outcome(held, "succeed", None, result)) if alone else
                         ("done", [attempt.number], [now], [now], [result]))  # fmt: skip
        case "secret":
            text = f"password={SECRET} " + "x" * LONG + f" password={SECRET}"
            outcome = _outcome(held, "fail", "errored", None, ("BOOM", text, text[-1000:]))
            yield framed(
                ("ended", outcome) if alone else ("done", [], [], [], [], [(attempt.number, now, now, outcome)])
            )
        case "flood":
            # All that a process may say again and again.
            asks = [("ask", 1, ("checkpoint", b'"' + b"x" * MUCH + b'"', 0, None)), ("ask", 1, ("records_success",))]
            told = [
                ("progressed", [(attempt.number, 1, 2, "n" * 900)]),
                ("delivered",),
                ("stack", attempt.number, "x" * MUCH),
            ]
            batch = b"".join(map(framed, (*(asks if alone else told), told[0]) * 50))
            until = time.monotonic() + FLOOD
            while time.monotonic() < until:
                yield batch
            yield b"\xff" * 100
        case "garbage":
            yield b"\xff" + os.urandom(10_000)
        case "hello":
            yield framed(("hello", {}, [])) * 2
        case _:
            raise AssertionError(how)


def _outcome(held: ClaimedJob, verb: str, word: str | None, result: bytes | None, error: Any = None) -> tuple[Any, ...]:
    return verb, held.id, held.fence, word, result, 0.0, error
