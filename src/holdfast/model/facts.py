"""What decides whether a job is claimed: the job, the pauses that concern it, and the workers that are up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model.job import Pause
from holdfast.model.lifecycle import State


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
    suspect: bool = False
    suspect_until: datetime | None = None
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
    workers: tuple[WorkerFacts, ...] = ()
    ahead: int | None = None  # jobs due before it, up to POSITIONS; None: not counted
    estimate: float | None = None  # seconds until those are gone, at the pace of late

    @property
    def due(self) -> bool:
        return self.due_at <= self.now

    @property
    def alone(self) -> bool:
        """Does it wait to be run without company?"""
        return self.suspect and (self.suspect_until is None or self.suspect_until > self.now)

    @property
    def able(self) -> list[WorkerFacts]:
        """The workers that could run it, if they had room."""
        return [worker for worker in self.workers if worker.serves(self.queue) and self.task in worker.tasks]
