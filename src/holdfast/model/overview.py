"""A snapshot of the whole system, for screens that show it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.job import Depth, Pause, WorkerRecord


class Running(msgspec.Struct, frozen=True):
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


class Failure(msgspec.Struct, frozen=True):
    """A job that failed, and why."""

    id: str
    queue: str
    task: str
    attempt: int
    failed_at: datetime
    error_code: str | None
    error_message: str | None


class Rates(msgspec.Struct, frozen=True):
    """Jobs a second that were enqueued to a queue, and that ended there. Estimates."""

    came: float
    ended: float


class Overview(msgspec.Struct, frozen=True):
    at: datetime  # by the database's clock
    depths: list[Depth]
    rates: dict[str, Rates]  # by queue
    workers: list[WorkerRecord]
    running: list[Running]  # the longest running first; a limited number
    failures: list[Failure]  # the newest first
    pauses: list[Pause]
