"""Where a running handler is: as its runner reports it, and as it is shown."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.model.outcome import clean
from holdfast.model.record import Record
from holdfast.redact import Hide

LIMIT = 256_000  # characters kept of a stack, from its innermost call on
SEEN = 8_000  # further characters that are searched for secrets


class Taken(msgspec.Struct, frozen=True):
    """A stack as a runner reports it: process, thread and lines. It is stored as text. The worker adds what an isolated
    process has written so far."""

    pid: Annotated[int, Meta(ge=0, lt=2**31)]
    thread: str
    text: str
    output: str | None = None

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()


def shown(text: str, hide: Hide) -> str:
    """The text as it may be stored and shown. Secrets are removed before it is cut: half a secret is not recognised."""
    return hide(clean(text[-LIMIT - SEEN :]))[-LIMIT:]


def taken(text: str) -> Taken:
    return msgspec.json.decode(text, type=Taken)


class Stack(Record, frozen=True):
    """Where the handler of a running job was at an instant, without the values of its variables. `text` reads like a
    traceback: the innermost call comes last. `output`: what it had written by then, if it has a process of its own."""

    job: str
    task: str
    attempt: int
    worker: str
    pid: int
    thread: str
    taken_at: datetime
    text: str
    output: str | None = None
