"""What decides whether a job is claimed: the job, the pauses that concern it, and the workers that are up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.job import Pause
from holdfast.model.lifecycle import State


@dataclass(frozen=True, slots=True)
class Holder:
    """Who keeps all others from writing to a SQLite file. `note`: the job, if it is a handler's transaction. `writer`:
    the process it waits for itself, which has SQLite's own write lock without having queued for it."""

    pid: int
    thread: str
    note: str
    seconds: float
    writer: int | None = None

    def __str__(self) -> str:
        whose = f" ({self.note})" if self.note else ""
        text = f"process {self.pid}, thread {self.thread}{whose}, for {self.seconds:.1f} s"
        if self.writer is not None:
            text += f"; it waits for process {self.writer}, whose connection has a write transaction open"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """A worker that is up. `running` is what it has in hand; known of those that could run the job."""

    id: str
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...]
    slots: int
    running: int = 0

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the database knew of one job at one moment of its own clock."""

    now: datetime
    id: str
    queue: str
    task: str
    state: State
    due_at: datetime
    attempt: int = 0
    max_attempts: int = 3
    priority: int = 0
    suspicion: int = 0
    expires_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested: bool = False
    pause_requested: bool = False
    asked_at: datetime | None = None  # when people asked for the pause or cancel that holds, or did
    asked_by: str | None = None
    asked_why: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    holder: str | None = None
    lease_ends_at: datetime | None = None
    queue_pause: Pause | None = None
    task_pause: Pause | None = None
    filter_pauses: tuple[Pause, ...] = ()  # those that mean it
    held_by: str | None = None  # what holds it, as the job says
    workers: tuple[WorkerFacts, ...] = ()
    ahead: int | None = None  # jobs due before it, up to POSITIONS; None: not counted
    estimate: float | None = None  # seconds until those are gone, at the pace of late
    writing: Holder | None = None  # who keeps others from writing, on SQLite

    @property
    def due(self) -> bool:
        return self.due_at <= self.now

    @property
    def able(self) -> list[WorkerFacts]:
        """The workers that could run it, if they had room."""
        return [worker for worker in self.workers if worker.serves(self.queue) and self.task in worker.tasks]
