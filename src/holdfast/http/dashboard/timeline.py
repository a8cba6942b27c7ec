"""What happened to a job, in order: what it waited for, where it ran, and what people did to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from holdfast.model.audit import AuditRecord
from holdfast.model.job import AttemptRecord, JobRecord
from holdfast.model.lifecycle import FINISHED, State

Kind = Literal["wait", "due", "pause", "run", "good", "bad", "back", "call"]
OUTCOMES: dict[str, Kind] = {"succeeded": "good", "released": "back", "snoozed": "back", "parked": "pause"}
ENDED = "Had ended, until it was retried"
WIDTH = 1000  # of the drawing
SHORTEST = timedelta(seconds=16)  # that the drawing of an unfinished job goes on for at least
THIN = 4  # that something brief is drawn at least


class Span(msgspec.Struct, frozen=True):
    """Something that took a while, or (without an end) still does; a call of people happens at an instant."""

    kind: Kind
    what: str
    begins: datetime
    ends: datetime | None = None
    where: str = ""
    remark: str = ""
    x: int = 0
    width: int = 0

    @property
    def seconds(self) -> float | None:
        return None if self.ends is None else max(0.0, (self.ends - self.begins).total_seconds())


def timeline(
    job: JobRecord, attempts: Sequence[AttemptRecord], calls: Sequence[AuditRecord], now: datetime
) -> list[Span]:  # fmt: skip
    """The oldest first, each placed on one scale from the job's first instant to its last, or to now."""
    spans = [*_spans(job, attempts, now), *_calls(job, calls)]
    spans.sort(key=lambda span: (span.begins, span.ends is None))
    until = max([job.created_at, *(at for span in spans for at in (span.begins, span.ends) if at is not None)])
    if job.state not in FINISHED:
        until += _age(now - until)
    return [_placed(span, job.created_at, until) for span in spans]


def _age(age: timedelta) -> timedelta:
    """In steps that double: a drawing that grows all the time would be sent all the time."""
    step = SHORTEST
    while step < age:
        step *= 2
    return step


def _placed(span: Span, since: datetime, until: datetime) -> Span:
    whole = max((until - since).total_seconds(), 0.001)
    x = round(WIDTH * max(0.0, (span.begins - since).total_seconds()) / whole)
    end = round(WIDTH * max(0.0, ((span.ends or until) - since).total_seconds()) / whole)
    width = max(THIN, end - x) if span.kind != "call" else THIN
    return msgspec.structs.replace(span, x=min(x, WIDTH - width), width=width)


def _spans(job: JobRecord, attempts: Sequence[AttemptRecord], now: datetime) -> Iterator[Span]:
    since, life, earlier = job.created_at, 1, 0
    for attempt in attempts:
        began = attempt.started_at or attempt.ended_at
        # When an earlier attempt was due is not kept, so its wait is one.
        only = len(attempts) == 1 and job.run_at <= began and job.life == 1 and job.state in FINISHED
        if attempt.life > life:
            yield Span("back", ENDED, since, began)
        else:
            yield from _waits(since, job.run_at if only else None, began, earlier)
        code = f"{attempt.error_code}: {attempt.error_message}" if attempt.error_code else ""
        name = f"Attempt {attempt.number}" + (f" of life {attempt.life}" if job.life > 1 else "")
        yield Span(
            OUTCOMES.get(attempt.outcome, "bad"), f"{name} {attempt.outcome.replace('_', ' ')}", began,
            attempt.ended_at, attempt.worker or "", code,
        )  # fmt: skip
        since, life, earlier = attempt.ended_at, attempt.life, earlier + 1
    if job.life > life:  # of its present life no attempt was kept
        again = max(since, min(job.run_at, now))
        yield Span("back", ENDED, since, again)
        since, earlier = again, 0
    recorded = any(attempt.fence == job.fence for attempt in attempts)
    if job.started_at is not None and not recorded and job.state in (State.RUNNING, State.SUCCEEDED):
        yield from _waits(since, job.run_at, job.started_at, earlier)
        name = f"Attempt {job.attempt}" + (f" of life {job.life}" if job.life > 1 else "")
        if job.state is State.RUNNING:
            yield Span("run", f"{name} runs", job.started_at, None, job.worker or "")
        else:
            yield Span("good", f"{name} succeeded", job.started_at, job.finished_at, job.worker or "")
    elif job.state is State.QUEUED and job.held_by is None:
        due = min(max(job.run_at, since), now)
        if job.run_at > now:
            yield Span("due", "Waits until it is due", since, None)
        else:
            yield from _waits(since, job.run_at, due, earlier)
            yield Span("wait", "Waits for a free slot", due, None)
    elif job.state in (State.QUEUED, State.PAUSED):
        yield Span("pause", "Paused", job.asked_at or since, None, "", job.asked_why or "")
    elif job.state is State.CANCELLED and job.finished_at is not None and job.finished_at > since:
        yield Span("back", "Until it was cancelled", since, job.finished_at, "", job.asked_why or "")


def _waits(since: datetime, due: datetime | None, until: datetime, earlier: int) -> Iterator[Span]:
    """What it waited for between these instants."""
    what = "Waited until the next try" if earlier else "Waited until it was due"
    if due is None:
        if until > since:
            yield Span("due" if earlier else "wait", "Waited for the next try" if earlier else "Waited", since, until)
        return
    if since < due <= until:
        yield Span("due", what, since, due)
    if until > max(since, due):
        yield Span("wait", "Waited for a free slot", max(since, due), until)


def _calls(job: JobRecord, calls: Sequence[AuditRecord]) -> Iterator[Span]:
    for call in calls:
        by = f"by {call.by}" if call.by else ""
        among = "" if call.what == f"id:{job.id}" else f"with others, {call.what}"
        remark = ", ".join(part for part in (among, call.reason) if part)
        yield Span("call", call.verb.replace("_", " ").capitalize(), call.at, call.at, by, remark)
