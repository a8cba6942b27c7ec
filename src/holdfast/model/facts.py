"""What decides whether a job is claimed: the job, the pauses that apply to it, and the workers that are alive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from holdfast.model.audit import AuditRecord
from holdfast.model.job import DEFAULT_GRACE, Pause
from holdfast.model.lifecycle import State


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that keeps all others from writing to a SQLite file. `note` is the job, if a handler's transaction
    does so. `writer` is the process it waits for in turn: one that took SQLite's own write lock without queueing at
    the gate."""

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
    """A worker that is alive. `running`: how many jobs it has in flight that take the
    same slots, known for workers that could run the job."""

    id: str
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...]
    slots: int  # for the job's task
    running: int = 0
    sharing: tuple[str, ...] = ()  # the tasks that take these slots; its other tasks have slots of their own
    grace: float = DEFAULT_GRACE  # seconds that a handler has to stop
    timeouts: Mapping[str, float] = field(default_factory=dict)  # seconds an attempt may run, by task

    def serves(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues


@dataclass(frozen=True, slots=True)
class LongestRunning:
    """Of the jobs that take the slots, the one that has run for longest."""

    id: str
    task: str
    worker: str
    started_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the database knows about one job at one moment of its own clock."""

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
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested: bool = False
    pause_requested: bool = False
    asked_at: datetime | None = None  # when the pause or cancel that applies was requested
    asked_by: str | None = None
    asked_why: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    holder: str | None = None
    lease_ends_at: datetime | None = None
    queue_pause: Pause | None = None
    task_pause: Pause | None = None
    filter_pauses: tuple[Pause, ...] = ()  # those that match it
    held_by: str | None = None  # what holds it, as the job says
    source: str | None = None  # the adopted table whose row it works
    source_id: str | None = None
    owed: bool = False  # what it became is still to be written to its row
    run_at: datetime | None = None  # when it was to run; a claim that can't have its row puts it off to `due_at`
    table_suspended: bool = False
    table_problems: tuple[str, ...] = ()  # why its table can't be worked
    workers: tuple[WorkerFacts, ...] = ()
    longest: LongestRunning | None = None  # on the workers that could run it, if all of them are full
    ahead: int | None = None  # jobs due before it, up to POSITIONS; None: not counted
    estimate: float | None = None  # seconds until those are done, at the recent rate
    stopped: AuditRecord | None = None  # if no worker serves its queue: the last one that people stopped which did
    writing: Holder | None = None  # on SQLite: the process that keeps others from writing

    @property
    def due(self) -> bool:
        return self.due_at <= self.now

    @property
    def put_off(self) -> bool:
        """A claim could not have its row just now."""
        return self.source is not None and self.run_at is not None and self.run_at <= self.now < self.due_at

    @property
    def stop_at(self) -> datetime | None:
        """When a running job has to stop: its timeout ends, or it was asked to. None: nothing says so."""
        at = [self.asked_at] if self.asked_at and (self.cancel_requested or self.pause_requested) else []
        worker = self.held_on
        timeout = None if worker is None else worker.timeouts.get(self.task)
        if timeout is not None and self.started_at is not None:
            at.append(self.started_at + timedelta(seconds=timeout))
        return min(at, default=None)

    @property
    def held_on(self) -> WorkerFacts | None:
        """The live worker that holds it."""
        return next((worker for worker in self.workers if worker.id == self.holder), None)

    @property
    def all_busy(self) -> bool:
        """Are all workers that could run it full? (False: there is none.)"""
        able = self.able
        return bool(able) and all(worker.running >= worker.slots for worker in able)

    @property
    def able(self) -> list[WorkerFacts]:
        """The workers that could run it if they had a free slot."""
        return [worker for worker in self.workers if worker.serves(self.queue) and self.task in worker.tasks]
