"""What goes on, at one look: for screens that show it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.job import Depth, Pause, WorkerRecord


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs, and how far it is."""

    id: str
    queue: str
    task: str
    fence: str
    worker: str | None
    attempt: int
    max_attempts: int
    started_at: datetime
    done: int | None
    total: int | None
    note: str | None
    pause_requested: bool
    cancel_requested: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that failed, and why."""

    id: str
    queue: str
    task: str
    attempt: int
    failed_at: datetime
    error_code: str | None
    error_message: str | None


@dataclass(frozen=True, slots=True)
class Rates:
    """Jobs a second that came to a queue, and that ended there: estimates."""

    came: float
    ended: float


@dataclass(frozen=True, slots=True)
class Overview:
    at: datetime  # by the database's clock
    depths: list[Depth]
    rates: dict[str, Rates]  # by queue
    workers: list[WorkerRecord]
    running: list[Running]  # the longest running first; not more than so many
    failures: list[Failure]  # the newest first
    pauses: list[Pause]
