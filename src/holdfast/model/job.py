"""The values that the parts exchange: a job to enqueue, as stored, and as claimed; what a claim asks for; a worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

from holdfast.errors import StoreError
from holdfast.model.drain import Drain
from holdfast.model.durations import short_duration
from holdfast.model.lifecycle import State
from holdfast.model.peers import Place
from holdfast.model.polling import NO_POLLS, Polling
from holdfast.model.record import Record, shown
from holdfast.redact import hide_secrets

T = TypeVar("T")

DEFAULT_QUEUE = "default"
DEFAULT_MAX_ATTEMPTS = 3
DEFAULT_LEASE = 20.0  # seconds
DEFAULT_GRACE = 25.0  # seconds that a handler has to stop
MIN_PRIORITY, MAX_PRIORITY = -100, 100  # larger is sooner
FOREVER = float("inf")
AfterFailure = Literal["new", "retry", "return"]
AFTER_FAILURE: tuple[AfterFailure, ...] = get_args(AfterFailure)
COUNTED = 10_000  # jobs of a kind that a summary counts at most; beyond that it says "more"
STEP_NAME_LIMIT = 200  # characters
LATE = 5.0  # seconds by which a live worker may be late to report


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to enqueue. Its arguments are JSON text that has been checked. Times are seconds from now by the database's
    clock (`delay`, `expires_in`), or an instant (`run_at`)."""

    task: str
    args: bytes
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    delay: float = 0.0
    run_at: datetime | None = None
    expires_in: float | None = None
    key: str | None = None
    reuse: float | None = None  # seconds for which the result of a succeeded job is returned instead; FOREVER: always
    after_failure: AfterFailure = "new"  # what is done if the job that has the key failed or was cancelled
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The result of an enqueue: the job's id, and whether it is new or an existing job with the same key. `retried`:
    that job had failed or was cancelled, and this enqueue began another life of it."""

    id: str
    created: bool
    state: State = State.QUEUED
    retried: bool = False


class JobRecord(Record, frozen=True):
    """One row of the jobs table, as callers read it. Instants are aware and in UTC. `args`, `result` and `checkpoint`
    are JSON as it is stored: `job.args`, `job.result` and `as_dict()` decode it."""

    id: str
    queue: str
    task: str
    state: State
    priority: int
    attempt: int
    max_attempts: int
    life: int
    crashes: int
    suspicion: int
    pause_requested: bool
    cancel_requested: bool
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failed_at: datetime | None
    expires_at: datetime | None
    fence: str | None
    worker: str | None
    key: str | None
    holds_key: bool
    correlation_id: str | None
    tags: tuple[str, ...]
    args: bytes
    result: bytes | None
    checkpoint: bytes | None
    pending: int | None
    done: int | None
    total: int | None
    note: str | None
    error_code: str | None
    error_message: str | None
    error_fingerprint: str | None  # equal for errors of one kind; while it is tried again, and when it failed
    asked_at: datetime | None  # when the pause or cancel that applies was requested
    asked_by: str | None
    asked_why: str | None
    progressed_at: datetime | None
    rate: float | None
    held_by: str | None  # what keeps it from being claimed while it is queued: `pause:<filter>`
    source: str | None  # the adopted table whose row it works
    source_id: str | None  # and that row's id

    @property
    def finished(self) -> bool:
        return self.state in (State.SUCCEEDED, State.FAILED, State.CANCELLED)

    @property
    def progress(self) -> Progress | None:
        """How far the work is, if its handler has reported that."""
        if self.progressed_at is None or (self.done, self.total, self.note) == (None, None, None):
            return None
        # The rate of an earlier attempt says nothing about this one.
        fresh = self.state is State.RUNNING and self.started_at is not None and self.progressed_at >= self.started_at
        return Progress(self.done, self.total, self.note, self.rate if fresh else None, self.progressed_at)

    def as_dict(self, secrets: Iterable[str] = ()) -> dict[str, Any]:
        """The row as JSON has it, and its progress. Secrets are hidden: these arguments, and what is known as one by
        its name or mark."""
        stored = {"args": self.args, "result": self.result, "checkpoint": self.checkpoint}
        return {
            **super().as_dict(),
            **{name: None if value is None else shown(value, secrets) for name, value in stored.items()},
            "progress": None if self.progress is None else self.progress.as_dict(),
        }


class Mark(NamedTuple):
    """What makes two versions of a job look different to whoever watches it; small enough to read for thousands."""

    state: State
    life: int
    attempt: int
    run_at: datetime
    pause_requested: bool
    cancel_requested: bool
    done: int | None
    total: int | None
    note: str | None
    progressed_at: datetime | None

    @classmethod
    def of(cls, job: JobRecord) -> Mark:
        return cls(*(getattr(job, name) for name in cls._fields))


class LastError(Record, frozen=True):
    """The last error of a job that has not succeeded."""

    code: str
    message: str


class Progress(Record, frozen=True):
    """How far a job is: items done, of how many, and a note. `rate`: items a second at present, while it runs."""

    done: int | None
    total: int | None
    note: str | None
    rate: float | None
    at: datetime

    @property
    def fraction(self) -> float | None:
        """From 0 to 1; None: not known."""
        return min(1.0, self.done / self.total) if self.total and self.done is not None else None

    @property
    def seconds_left(self) -> float | None:
        """At the present rate, counted from `at`."""
        if self.total is None or self.done is None or not self.rate:
            return None
        return max(0, self.total - self.done) / self.rate

    def as_dict(self) -> dict[str, Any]:
        return super().as_dict() | {"fraction": self.fraction, "seconds_left": self.seconds_left}


def progress_in_words(progress: Progress) -> str:
    """`412 of 1,000 (41%), 8.2/s, 74s left`."""
    if progress.done is None:
        return "" if progress.total is None else f"0 of {progress.total:,}"
    words = f"{progress.done:,}"
    if progress.total is not None:
        words += f" of {progress.total:,}"
    if progress.fraction is not None:
        words += f" ({progress.fraction:.0%})"
    if progress.rate is not None:
        words += f", {progress.rate:,.3g}/s"
    if progress.seconds_left is not None:
        words += f", {short_duration(progress.seconds_left)} left"
    return words


class StepRecord(Record, frozen=True):
    """A finished durable step: what it returned, as JSON has it, and in which life and attempt of its job."""

    name: str
    life: int
    attempt: int
    ended_at: datetime
    result: Any

    def as_dict(self, secrets: Iterable[str] = ()) -> dict[str, Any]:
        """Its fields as JSON has them, with secrets hidden in the result."""
        return super().as_dict() | {"result": hide_secrets(self.result, secrets)}


class Page(list[T]):
    """Jobs, newest first. `next`: the id to pass as `before` for the next page, None at the end. `cut`: the page ends
    because enough jobs were searched, not because there are no more."""

    def __init__(self, jobs: Iterable[T] = (), *, cut: bool = False, next: str | None = None) -> None:
        super().__init__(jobs)
        self.cut = cut
        self.next = next


class Changed(Record, frozen=True):
    """What a verb did to many jobs: how many it changed, how many were in a state that does not allow it, and how many
    run and were asked: they stop or pause when their handlers next check."""

    changed: int
    refused: int
    asked: int = 0


class BulkPreview(Record, frozen=True):
    """What a verb would do to the jobs of a filter: how many it would change or ask, and how many are in a state that
    does not allow it; `capped`: there are more than were counted. `filter` is the same with `since:` as an instant, so
    that it selects the same jobs later on."""

    verb: str
    filter: str
    jobs: int
    refused: int
    capped: bool


class Depth(msgspec.Struct, frozen=True):
    """How many jobs of a task a queue has: due now, due later, running by worker, failed. `capped`: there are more than
    were counted. `pending`: items of work that the checkpoints of all unfinished jobs count; `pending_running`:
    those of running jobs."""

    queue: str
    task: str
    due: int
    scheduled: int
    running: dict[str, int]
    failed: int
    oldest_due_at: datetime | None
    capped: bool
    pending_running: int = 0
    pending: int = 0


class QueueSummary(Record, frozen=True):
    """How many jobs a queue has, of all tasks, and when those that are due will be done. `Depth` explains the
    numbers."""

    queue: str
    due: int
    scheduled: int
    running: int
    failed: int
    pending_running: int
    pending: int
    oldest_due_at: datetime | None
    capped: bool
    drain: Drain


class TaskSummary(Record, frozen=True):
    """How many jobs a task has, in all queues. `Depth` explains the numbers."""

    task: str
    due: int
    scheduled: int
    running: int
    failed: int
    pending_running: int
    pending: int
    oldest_due_at: datetime | None
    capped: bool


def by_queue(depths: Iterable[Depth], drains: Mapping[str, Drain]) -> list[QueueSummary]:
    """A summary of each queue, by name."""
    queues: dict[str, list[Depth]] = {}
    for depth in depths:
        queues.setdefault(depth.queue, []).append(depth)
    return [QueueSummary(queue, *_summed(within), drains[queue]) for queue, within in sorted(queues.items())]


def by_task(depths: Iterable[Depth], declared: Iterable[str]) -> list[TaskSummary]:
    """A summary of each task that is declared or has jobs, by name."""
    tasks: dict[str, list[Depth]] = {name: [] for name in declared}
    for depth in depths:
        tasks.setdefault(depth.task, []).append(depth)
    return [TaskSummary(task, *_summed(within)) for task, within in sorted(tasks.items())]


def _summed(depths: list[Depth]) -> tuple[int, int, int, int, int, int, datetime | None, bool]:
    return (
        sum(depth.due for depth in depths),
        sum(depth.scheduled for depth in depths),
        sum(sum(depth.running.values()) for depth in depths),
        sum(depth.failed for depth in depths),
        sum(depth.pending_running for depth in depths),
        sum(depth.pending for depth in depths),
        min((depth.oldest_due_at for depth in depths if depth.oldest_due_at), default=None),
        any(depth.capped for depth in depths),
    )


def running_by_worker(depths: Iterable[Depth]) -> dict[str, int]:
    """How many jobs each worker runs."""
    running: dict[str, int] = {}
    for depth in depths:
        for worker, jobs in depth.running.items():
            running[worker] = running.get(worker, 0) + jobs
    return running


class AttemptRecord(Record, frozen=True):
    """One attempt that did not succeed, kept as history. (A succeeded attempt is stored in the job's own row, unless it
    left `output`: what it wrote to stdout and stderr in a process of its own.)"""

    job_id: str
    fence: str
    life: int
    number: int
    worker: str | None
    outcome: str
    started_at: datetime | None
    ended_at: datetime
    error_code: str | None
    error_message: str | None
    traceback: str | None
    output: str | None


class ErrorGroup(Record, frozen=True):
    """Jobs whose errors are of one kind. `id` selects them in a filter: `group:3f2a9c11ab`."""

    id: str
    jobs: int
    tasks: tuple[str, ...]
    first_at: datetime  # when the first of these jobs failed; of one that is tried again, when its attempt started
    last_at: datetime
    error_code: str | None  # of the newest job
    error_message: str | None
    example: str  # the id of that job


class ClaimedJob(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A job that this worker has claimed: what a runner needs to run it, and the fence that makes its writes count.
    `id` is the store's own kind of id and opaque here; users see `str(id)`."""

    id: int | str
    fence: str
    task: str
    queue: str
    args: bytes
    attempt: int
    max_attempts: int
    priority: int = 0
    checkpoint: bytes | None = None
    correlation_id: str | None = None
    suspicion: int = 0  # how often in a row its process died while other jobs ran there too
    expires_in: float | None = None  # seconds from its claim after which it must not start

    @property
    def correlated(self) -> str:
        """The correlation id it was given, or one made from its own id."""
        return correlated(self.id, self.correlation_id)


class Wants(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker would take: at most `limit` jobs of these tasks, from these queues (None: any queue), and beyond
    them, `ahead` of free slots, only jobs never tried that may be tried again. `held`: how many it has in hand
    already, which its lease records. `told`: it was told of jobs in these lanes (queue, task,
    priority) and knew of no others a moment ago, so a store may look there alone. `thorough`: finding nothing is to
    mean that nothing is due, whatever that costs."""

    fence: str
    worker: str
    tasks: tuple[str, ...]
    limit: int
    lease: float
    ahead: int = 0
    queues: tuple[str, ...] | None = None
    held: int = 0
    told: tuple[tuple[str, str, int], ...] = ()
    thorough: bool = False


class Claimed(msgspec.Struct, frozen=True):
    """What a claim brought. `next_due`: seconds until the next job that this worker could take falls due, or until
    another look may find more (None: none known). `more`: there was more than could be locked just now. `passed`: some
    were left because they may only be taken by a free slot. `filter_version`: that of the pauses by filter when it was
    made (None: not known); whoever starts the jobs goes by them."""

    jobs: list[ClaimedJob] = []
    next_due: float | None = None
    more: bool = False
    passed: bool = False
    filter_version: int | None = None


class Processed(int):
    """How many jobs a worker finished: succeeded, failed for good or cancelled. `failed`: how many of them failed.
    `attempts`: how many attempts ended, including those after which the job is tried again."""

    attempts: int
    failed: int

    @classmethod
    def count(cls, jobs: int, attempts: int, failed: int) -> Processed:
        processed = cls(jobs)
        processed.attempts, processed.failed = attempts, failed
        return processed


class Request(msgspec.Struct, frozen=True):
    """What was requested of a running job, or that this worker has lost it."""

    id: int | str
    fence: str
    lost: bool
    cancel: bool
    pause: bool


def correlated(id: int | str, given: str | None) -> str:
    return given or f"job-{id}"


class Rescued(msgspec.Struct, frozen=True):
    """A job that was taken back from a silent worker, and its new state."""

    id: str
    queue: str
    state: State
    attempt: int
    max_attempts: int
    charged: bool
    worker: str
    task: str
    priority: int
    correlation_id: str
    error_code: str
    error_message: str


class Look(msgspec.Struct, frozen=True):
    """What the watchdog sees, in seconds from now: when the next lease ends, when the next job and the next tick of a
    cron fall due; whether there are leases to rescue or queued jobs past their expiry; of pauses by filter, when the
    next one ends and whether there are any (`filter_pauses`); whether jobs are held by something that has ended
    (`ended_holds`); whether the schema has changed under this code and no longer serves it; the worker's place among
    its peers; whether the worker is registered at all (`known`): after a failover it may not be; whether people
    asked it to stop (`stop_requested`); whether any table is adopted; whether there are `deltas` to fold; and since
    when (a negative number) nobody was seen to perform the call on many jobs that has been silent for longest
    (`bulk_seen`)."""

    next_lease_end: float | None
    next_due: float | None
    expired_leases: bool
    expired_jobs: bool
    next_tick: float | None = None
    next_pause_end: float | None = None
    filter_pauses: bool = False
    ended_holds: bool = False
    misfit: StoreError | None = None
    place: Place = Place()
    known: bool = True
    stop_requested: bool = False
    adopted: bool = False
    bulk_seen: float | None = None
    deltas: bool = False


class Pause(Record, frozen=True):
    """A queue or a task that takes no new attempts, a cron that skips its ticks, or a filter whose jobs are held, with
    who asked, why, and until when. `jobs`: how many a filter holds, counted up to a cap."""

    kind: str
    name: str
    by: str | None
    reason: str | None
    until: datetime | None
    created_at: datetime
    jobs: int | None = None


class Thing(msgspec.Struct, frozen=True):
    """A part of a schema: a table, column, constraint, index or trigger, as the database describes it."""

    kind: str
    table: str
    name: str
    definition: str


class Backlog(msgspec.Struct, frozen=True):
    """Queued jobs of one queue and task; `more`: more are due than were counted."""

    queue: str
    task: str
    due: int
    more: bool
    due_at: datetime  # of the first


class WorkerRecord(Record, frozen=True):
    """A registered worker. `id` is unique for its process, `name` is for display. `version`: of Holdfast. `memory`:
    bytes that it and its runner processes occupied, as of `seen_at`. `leases`: those it holds, of which the first ends
    at `lease_ends_at` unless renewed."""

    id: str
    name: str
    host: str
    pid: int
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...]
    slots: int
    lease: float
    started_at: datetime
    seen_at: datetime
    crons: tuple[str, ...] = ()
    stop_requested_at: datetime | None = None
    stop_requested_by: str | None = None
    stop_reason: str | None = None
    polling: Polling = NO_POLLS  # as of `seen_at`
    version: str | None = None
    memory: int | None = None
    leases: int = 0
    lease_ends_at: datetime | None = None

    def alive(self, now: datetime) -> bool:
        return heard_of(self.seen_at, self.lease, now)

    def polls_well(self, now: datetime) -> bool:
        """Is it heard of, and do its polls succeed?"""
        return self.alive(now) and self.polling.healthy((now - self.seen_at).total_seconds())


class StopRequest(msgspec.Struct, frozen=True):
    """Who asked a worker to stop, and why."""

    by: str | None
    reason: str | None


class WorkerStatus(WorkerRecord, frozen=True, kw_only=True):
    """A worker as people see it. `state`: up; stopping, as was requested; silent: it was not heard of for two leases;
    frozen: the same, though its process is there, on this host. `running`: how many jobs it runs, or has claimed
    ahead to run next. `healthy`: it is heard of, it polled within a minute, and its last five polls did not all
    fail."""

    state: Literal["up", "stopping", "silent", "frozen"]
    running: int
    healthy: bool


def heard_of(seen_at: datetime, lease: float, now: datetime) -> bool:
    """Is this worker considered alive? It reports at least once a lease; one report may be late, but not two."""
    return (now - seen_at).total_seconds() <= 2 * lease + LATE
