"""Why a job does not run, or what became of it. A pure decision: facts in, every reason that applies out, in order.

`blocks` agrees with the claim: no reason blocks if and only if a live worker that has the task, serves the queue and
has enough free slots, also for the jobs before this one, would claim it now. A test compares the two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.durations import dated, short_duration
from holdfast.model.facts import Facts, WorkerFacts
from holdfast.model.job import Backlog, Pause, WorkerRecord
from holdfast.model.lifecycle import FINISHED, State
from holdfast.model.pause_filter import pause_of
from holdfast.model.record import Record
from holdfast.model.rescue import runs_isolated
from holdfast.model.text import named, nearest, no_id, plural, to_serve

# Due jobs that no worker can run: none that is alive serves their queue, or none of those has their task.


@dataclass(frozen=True, slots=True)
class Unserved:
    waiting: Backlog
    served: bool  # workers serve the queue, but don't have the task
    nearest: list[str]  # names like it


def unserved(waiting: Sequence[Backlog], workers: Sequence[WorkerRecord], now: datetime) -> Iterator[Unserved]:
    """Of the jobs that are due, those that no worker can run."""
    live = [worker for worker in workers if worker.alive(now)]
    known = {task for worker in live for task in worker.tasks}
    for kind in waiting:
        serving = [worker for worker in live if worker.queues is None or kind.queue in worker.queues]
        if kind.due_at <= now and not any(kind.task in worker.tasks for worker in serving):
            yield Unserved(kind, bool(serving), nearest(kind.task, known - {kind.task}))


PATIENCE = 5.0  # seconds within which a handler that checks now and then has seen a request
TURN = 1.0  # seconds a process may block other writers before we report it
POSITIONS = 10_000  # a position is counted up to here: more is "10,000+"


class Why(StrEnum):
    """All reasons, in the order in which they are reported."""

    NOT_FOUND = "NOT_FOUND"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    LEASED = "LEASED"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    PAUSE_REQUESTED = "PAUSE_REQUESTED"
    PAUSED = "PAUSED"
    EXPIRED = "EXPIRED"
    SCHEDULED = "SCHEDULED"
    BACKOFF = "BACKOFF"
    QUEUE_PAUSED = "QUEUE_PAUSED"
    TASK_PAUSED = "TASK_PAUSED"
    FILTER_PAUSED = "FILTER_PAUSED"
    TABLE_SUSPENDED = "TABLE_SUSPENDED"
    TABLE_REFUSED = "TABLE_REFUSED"
    ROW_BUSY = "ROW_BUSY"
    OWED = "OWED"
    WRITERS_WAIT = "WRITERS_WAIT"
    NO_WORKER = "NO_WORKER"
    NO_HANDLER = "NO_HANDLER"
    WORKERS_BUSY = "WORKERS_BUSY"
    SUSPECT = "SUSPECT"
    BEHIND = "BEHIND"
    READY = "READY"


MEANINGS: dict[Why, str] = {
    Why.NOT_FOUND: "there is no such job: not committed yet, deleted, forgotten by retention, or in another database",
    Why.SUCCEEDED: "it is done",
    Why.FAILED: "it failed for good, with this error",
    Why.CANCELLED: "it was cancelled",
    Why.LEASED: "a worker runs it, or is about to",
    Why.LEASE_EXPIRED: "its worker went silent; the next watchdog gives it back",
    Why.CANCEL_REQUESTED: "it runs, and was asked to stop",
    Why.PAUSE_REQUESTED: "it runs, and was asked to pause",
    Why.PAUSED: "the job itself is paused",
    Why.EXPIRED: "it was not started before its expiry, and is about to be cancelled",
    Why.SCHEDULED: "it is not due yet",
    Why.BACKOFF: "an attempt went wrong; the next one is not due yet",
    Why.QUEUE_PAUSED: "its queue is paused",
    Why.TASK_PAUSED: "its task is paused",
    Why.FILTER_PAUSED: "jobs with arguments like its own are paused",
    Why.TABLE_SUSPENDED: "its adopted table is suspended: nothing of it is claimed or written",
    Why.TABLE_REFUSED: "its adopted table can't be worked as it is mapped",
    Why.ROW_BUSY: "the last claim could not have its row: somebody has it locked, or it says something else",
    Why.OWED: "what it became is not written to its row yet",
    Why.WRITERS_WAIT: "somebody keeps everyone else from writing to the SQLite file: nothing starts or ends meanwhile",
    Why.NO_WORKER: "no worker that is up serves its queue",
    Why.NO_HANDLER: "workers serve its queue, but none of them has its task",
    Why.WORKERS_BUSY: "all workers that could run it are full",
    Why.SUSPECT: "its process died twice in a row while it ran among others: next it gets a process of its own",
    Why.BEHIND: "others are due before it",
    Why.READY: "nothing stands in its way: the next free slot takes it",
}


class Reason(Record, frozen=True):
    """A reason: its code, what it means for this job and what to do, and whether it keeps the job from starting."""

    code: Why
    text: str
    blocks: bool = True
    details: dict[str, Any] = msgspec.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"


class ReasonCount(Record, frozen=True):
    """How many jobs of a queue a reason applies to, with its text for one of them."""

    code: Why
    jobs: int
    blocks: bool
    example: str  # a job's id
    text: str


class QueueWhy(Record, frozen=True):
    """What the jobs of a queue wait for. `looked_at`: how many were counted; `complete`: these were all."""

    queue: str
    looked_at: int
    complete: bool
    window: int
    reasons: list[ReasonCount]


def not_found(id: str, where: str, newest: int | None) -> list[Reason]:
    """The likely reasons why there is no such job."""
    if not (id.isascii() and id.isdigit()):
        guess = no_id(id)
    elif len(id) > 18:
        guess = "no id is that long; is it from another database?"
    elif newest is None:
        guess = "there are no jobs at all; is this the right database?"
    elif int(id) > newest:
        guess = (
            f"the newest is {newest}: the transaction that enqueued it has not committed, or was rolled back, or this "
            "is not its database"
        )
    else:
        guess = (
            "it was deleted, forgotten by retention (settings keep_finished, keep_failed), or its transaction was "
            "rolled back or is still open"
        )
    return [Reason(Why.NOT_FOUND, f"there is no job {id} in {where}: {guess}", details={"newest": newest})]


def reasons(facts: Facts) -> list[Reason]:
    """Every reason that applies, in order."""
    if facts.state in FINISHED:
        return [_finished(facts), *_owed(facts)]
    if facts.state is State.RUNNING:
        return list(_running(facts))
    return list(_waiting(facts)) or [
        Reason(Why.READY, "nothing stands in its way: the next free slot takes it", blocks=False)
    ]


def _finished(facts: Facts) -> Reason:
    at = _at(facts.finished_at, facts.now)
    told = {"finished_at": facts.finished_at, "error_code": facts.error_code, "error_message": facts.error_message}
    error = f"{facts.error_code}: {facts.error_message}"
    if facts.state is State.SUCCEEDED:
        return Reason(Why.SUCCEEDED, f"it succeeded {at}", details={"finished_at": facts.finished_at})
    if facts.state is State.FAILED:
        again = f"for another life: holdfast jobs retry {facts.id}"
        return Reason(Why.FAILED, f"it failed {at} after attempt {facts.attempt} with {error}; {again}", details=told)
    text = f"it was cancelled {at}{_by(facts)}" + f" ({error})" * bool(facts.error_code)
    if facts.asked_why and facts.asked_why != facts.error_message:
        text += f"; asked for because: {facts.asked_why}"
    return Reason(Why.CANCELLED, text, details=told | _asked(facts))


def _running(facts: Facts) -> Iterator[Reason]:
    ends, holder = facts.lease_ends_at, facts.holder
    told: dict[str, Any] = {"worker": holder, "expires_at": ends, "attempt": facts.attempt}
    if holder is not None and holder == f"foreign:{facts.source}:{facts.source_id}":
        holder = f"that is not one of ours (row {facts.source_id} of {facts.source} says that somebody works it)"
    if ends is not None and ends >= facts.now:
        text = f"worker {holder} has it, attempt {facts.attempt} of {facts.max_attempts}"
        text += f"; its lease ends {_at(ends, facts.now)} unless renewed"
        stop_at, worker = facts.stop_at, facts.held_on
        if stop_at is not None and worker is not None:
            kill_at = stop_at + timedelta(seconds=worker.grace)
            text += (
                f"; it has to stop {_at(stop_at, facts.now)}, and is killed {_at(kill_at, facts.now)} at the earliest"
            )
            told |= {"stop_at": stop_at, "kill_at": kill_at}
        yield Reason(Why.LEASED, text, details=told)
    else:
        ended = "has no lease" if ends is None else f"let its lease run out {_at(ends, facts.now)}"
        rescuer = "a worker's watchdog gives it back" if facts.workers else "no worker is up to give it back: start one"
        yield Reason(Why.LEASE_EXPIRED, f"worker {holder} {ended}; {rescuer}", details=told)
    if facts.cancel_requested:
        yield _requested(facts, Why.CANCEL_REQUESTED, "stop")
    if facts.pause_requested:
        yield _requested(facts, Why.PAUSE_REQUESTED, "pause", told=not facts.cancel_requested)
    yield from _held_up(facts)


def _requested(facts: Facts, code: Why, what: str, *, told: bool = True) -> Reason:
    """What was requested of a running job, and whether it should have obeyed by now. If both a pause and a cancel were
    requested, the row keeps who and why of the cancel."""
    words = f"it was asked to {what}"
    if not told or facts.asked_at is None:
        return Reason(code, f"{words}, and will at the next place its handler looks")
    waits = max(0.0, (facts.now - facts.asked_at).total_seconds())
    words += f" {short_duration(waits)} ago{_by(facts)}" + f" ({facts.asked_why})" * bool(facts.asked_why)
    if waits < PATIENCE:
        words += ", and will at the next place its handler looks"
    else:
        words += (
            ", and has not yet: its handler has come to no ctx.track, ctx.checkpoint, ctx.should_stop or await since; "
            "a process for handlers is ended for it when its grace time is over, but a thread of the worker itself "
            "can't be killed, and keeps its slot and lease until it returns"
        )
    return Reason(code, words, details=_asked(facts) | {"waits_seconds": waits})


def _by(facts: Facts) -> str:
    return f" by {facts.asked_by}" * bool(facts.asked_by)


def _asked(facts: Facts) -> dict[str, Any]:
    return {"asked_at": facts.asked_at, "by": facts.asked_by, "why": facts.asked_why}


def _waiting(facts: Facts) -> Iterator[Reason]:
    if facts.state is State.PAUSED:
        text = f"the job itself is paused{_by(facts)}" + f" ({facts.asked_why})" * bool(facts.asked_why)
        if facts.asked_at is not None:
            text += f" since {dated(facts.asked_at, facts.now)}"
        yield Reason(Why.PAUSED, f"{text}: holdfast jobs resume {facts.id}", details=_asked(facts))
    elif facts.expires_at and facts.expires_at <= facts.now and not facts.attempt:
        text = f"it was to start before {dated(facts.expires_at, facts.now)}; the next watchdog cancels it"
        yield Reason(Why.EXPIRED, text, details={"expires_at": facts.expires_at})
    if facts.put_off:
        row = {"source": facts.source, "row": facts.source_id}
        text = f"{MEANINGS[Why.ROW_BUSY]}; row {facts.source_id} of {facts.source} is tried again "
        text += _at(facts.due_at, facts.now)
        yield Reason(Why.ROW_BUSY, text, details={**row, "until": facts.due_at})
    elif not facts.due:
        yield _not_due(facts)
    yield from _table(facts)
    yield from _owed(facts)
    for code, kind, name, pause in (
        (Why.QUEUE_PAUSED, "queue", facts.queue, facts.queue_pause),
        (Why.TASK_PAUSED, "task", facts.task, facts.task_pause),
    ):
        if pause is not None:
            yield _paused(code, f"{kind} {name} is", pause, facts.now, f"{kind}s resume {named(name)}", {kind: name})
    for pause in facts.filter_pauses:
        what, resume = f"jobs with {pause.name} are", f"resume {named(pause.name)}"
        yield _paused(Why.FILTER_PAUSED, what, pause, facts.now, resume, {"filter": pause.name})
    hold = None if facts.held_by is None else pause_of(facts.held_by)
    if hold is not None and hold not in {pause.name for pause in facts.filter_pauses}:
        up = (
            "a worker's watchdog lets it go within seconds"
            if facts.workers
            else "the next worker that starts lets it go"
        )
        text = f"the pause of {hold}, which had set it aside, is over: {up}"
        yield Reason(Why.FILTER_PAUSED, text, details={"filter": hold, "over": True})
    yield from _held_up(facts)
    able = facts.able
    if not able:
        yield _nobody(facts)
        return
    if facts.all_busy:
        yield _busy(able, facts)
    if runs_isolated(facts.suspicion):
        yield Reason(Why.SUSPECT, MEANINGS[Why.SUSPECT], blocks=False, details={"losses": facts.suspicion})
    if facts.ahead:
        yield _behind(facts.ahead, facts.estimate)


def _table(facts: Facts) -> Iterator[Reason]:
    if facts.source is None:
        return
    where = {"source": facts.source, "row": facts.source_id}
    if facts.table_suspended:
        text = f"the adopted table {facts.source} is suspended: holdfast adopt {named(facts.source)} --resume"
        yield Reason(Why.TABLE_SUSPENDED, text, details=where)
    elif facts.table_problems:
        text = f"the adopted table {facts.source} can't be worked: {'; '.join(facts.table_problems)}"
        yield Reason(Why.TABLE_REFUSED, text, details=where | {"problems": list(facts.table_problems)})


def _owed(facts: Facts) -> Iterator[Reason]:
    if facts.owed:
        text = (
            f"row {facts.source_id} of {facts.source} does not say yet what became of it: somebody has it locked, or "
        )
        text += "the table can't be written. A worker writes it as soon as it can"
        told = {"source": facts.source, "row": facts.source_id}
        yield Reason(Why.OWED, text, details=told)


def _held_up(facts: Facts) -> Iterator[Reason]:
    if facts.writing is not None and facts.writing.seconds >= TURN:
        text = f"nobody else can write to the SQLite file: it is held by {facts.writing}"
        yield Reason(Why.WRITERS_WAIT, text, details=asdict(facts.writing))


def _not_due(facts: Facts) -> Reason:
    when = _at(facts.due_at, facts.now)
    now = f"to run it now: holdfast jobs set {facts.id} delay=0"
    told: dict[str, Any] = {"until": facts.due_at}
    if not facts.attempt:
        return Reason(Why.SCHEDULED, f"it is due {when}; {now}", details=told)
    after = f" after {facts.error_code}: {facts.error_message}" * bool(facts.error_code)
    text = f"attempt {facts.attempt + 1} of {facts.max_attempts} is due {when}{after}; {now}"
    return Reason(Why.BACKOFF, text, details={**told, "attempt": facts.attempt + 1, "error_code": facts.error_code})


def _paused(code: Why, what: str, pause: Pause, now: datetime, resume: str, named: dict[str, Any]) -> Reason:
    text = f"{what} paused" + f" by {pause.by}" * bool(pause.by)
    text += f" ({pause.reason})" * bool(pause.reason)
    text += f" until {dated(pause.until, now)}" if pause.until else " until someone resumes it"
    told = {**named, "by": pause.by, "reason": pause.reason, "until": pause.until}
    return Reason(code, f"{text}: holdfast {resume}", details=told)


def _nobody(facts: Facts) -> Reason:
    serving = [worker for worker in facts.workers if worker.serves(facts.queue)]
    if not serving:
        others = sorted({queue for worker in facts.workers for queue in worker.queues or ()})
        up = f"those that are up serve {', '.join(others)}" if others else "no worker is up"
        told: dict[str, Any] = {"queue": facts.queue, "served": others}
        if (stop := facts.stopped) is not None:
            up += f"; {stop.what} was stopped" + f" by {stop.by}" * bool(stop.by) + f" {_at(stop.at, facts.now)}"
            up += f": {stop.reason}" * bool(stop.reason)
            told |= {"stopped": stop.what, "stopped_by": stop.by, "stopped_at": stop.at, "reason": stop.reason}
        text = f"no worker serves queue {facts.queue} ({up}): {to_serve(facts.queue)}"
        return Reason(Why.NO_WORKER, text, details=told)
    near = nearest(facts.task, {task for worker in facts.workers for task in worker.tasks})
    like = f"nearest: {', '.join(near)}" if near else "and none with a name like it"
    text = (
        f"{len(serving)} {plural('worker', len(serving))} {'serves' if len(serving) == 1 else 'serve'} queue "
        f"{facts.queue}, none has task {facts.task} "
        f"({like}): deploy it, or give the renamed task aliases=[{facts.task!r}]"
    )
    return Reason(Why.NO_HANDLER, text, details={"task": facts.task, "nearest": near, "workers": len(serving)})


def _busy(able: Sequence[WorkerFacts], facts: Facts) -> Reason:
    slots = sum(worker.slots for worker in able)
    ahead = sum(max(0, worker.running - worker.slots) for worker in able)
    where = f"{len(able)} {plural('worker', len(able))}"
    text = f"all {slots:,} {plural('slot', slots)} for {facts.task} on {where} are taken"
    if ahead:
        text += f", and {ahead:,} more {plural('job', ahead)} they claimed ahead {'waits' if ahead == 1 else 'wait'}"
    text += "; it starts when one is free, or start another worker"
    told: dict[str, Any] = {"slots": slots, "claimed_ahead": ahead, "workers": len(able)}
    oldest = facts.longest
    if oldest is not None:
        since = short_duration((facts.now - oldest.started_at).total_seconds())
        text += f". The oldest is job {oldest.id} ({oldest.task}), for {since} on {oldest.worker}: "
        text += f"holdfast stack {oldest.id}"
        told |= {"oldest": oldest.id, "oldest_since": oldest.started_at}
    return Reason(Why.WORKERS_BUSY, text, details=told)


def _behind(ahead: int, estimate: float | None) -> Reason:
    many = f"{POSITIONS:,}+" if ahead >= POSITIONS else f"{ahead:,}"
    text = f"{many} {plural('job', ahead)} due before it"
    if estimate is not None:
        text += f"; at the recent rate it starts in about {short_duration(estimate)}"
    told = {"position": ahead + 1, "capped": ahead >= POSITIONS, "estimate_seconds": estimate}
    return Reason(Why.BEHIND, text, blocks=False, details=told)


def _at(moment: datetime | None, now: datetime) -> str:
    return "at an unknown time" if moment is None else f"at {dated(moment, now)}"
