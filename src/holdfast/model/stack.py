"""Where a running handler is: what its runner tells, and what people get."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec


class Taken(msgspec.Struct, frozen=True):
    """A stack as a runner tells it: from which process and thread, and its lines. It travels as text."""

    pid: int
    thread: str
    text: str

    def encoded(self) -> str:
        return msgspec.json.encode(self).decode()


def taken(text: str) -> Taken:
    return msgspec.json.decode(text, type=Taken)


@dataclass(frozen=True, slots=True)
class Stack:
    """Where the handler of a running job was at an instant, without the values of its variables. `text` reads like a
    traceback: the innermost call comes last."""

    job: str
    task: str
    attempt: int
    worker: str
    pid: int
    thread: str
    taken_at: datetime
    text: str
