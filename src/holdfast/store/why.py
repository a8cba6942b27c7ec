"""Gathers the facts for `why`: one statement for the job and all that concerns it, one for the jobs due before it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from holdfast.errors import JobNotFound
from holdfast.model.facts import Facts, LongestRunning, WorkerFacts
from holdfast.model.job import Pause, heard_of
from holdfast.model.lifecycle import State
from holdfast.model.pause_filter import PauseFilter, pause_meaning
from holdfast.model.why import (
    POSITIONS,
    QueueWhy,
    Reason,
    ReasonCount,
    Why,
    not_found,
    reasons,
)
from holdfast.store.base import JobId, Row, Store
from holdfast.store.columns import key_of
from holdfast.store.pauses import standing_filters

WINDOW = 10_000  # jobs of a queue that a summary reads, of each kind
PACE_JOBS = 1000  # jobs read to estimate how quickly they are done
PACE_SPAN = 300.0  # seconds of the past that the estimate is based on
RUNNING = 1_000  # running jobs, the oldest first, among which that of a full worker is looked for
PACE_ENOUGH = 5  # finished jobs below which no estimate is made


def why(store: Store, job_id: str, *, position: bool = True) -> list[Reason]:
    """Every reason that a job does not run, or what became of it."""
    try:
        key = key_of(job_id)
    except JobNotFound:
        return not_found(job_id, store.shown_url, None)
    rows = store.db.read("why", id=key)
    if rows[0]["id"] is None:
        return not_found(job_id, store.shown_url, rows[0]["newest"])
    facts = replace(facts_of(store, rows), writing=store.db.writing())
    if facts.state in (State.QUEUED, State.PAUSED):
        facts = replace(facts, filter_pauses=tuple(_meaning(store, job_id)))
    if facts.state is State.QUEUED and facts.all_busy:
        facts = replace(facts, longest=_longest_running(store, {worker.id for worker in facts.able}))
    if position and facts.state is State.QUEUED and facts.due and facts.able:
        facts = _with_position(store, facts, key, rows[0]["due_at"])
    return reasons(facts)


def why_queue(store: Store, queue: str, *, window: int = WINDOW) -> QueueWhy:
    """What the jobs of a queue wait for, counted by reason in a bounded window."""
    kinds = _kinds(store, queue, window)
    counts: dict[Why, ReasonCount] = {}
    for kind in kinds:
        for reason in why(store, str(kind["example"]), position=False):
            known = counts.get(reason.code)
            if known is None:
                counts[reason.code] = ReasonCount(
                    reason.code, kind["jobs"], reason.blocks, str(kind["example"]), reason.text
                )
            else:
                counts[reason.code] = replace(
                    known, jobs=known.jobs + kind["jobs"], blocks=known.blocks or reason.blocks
                )
    seen = sum(kind["jobs"] for kind in kinds)
    waiting = sum(kind["jobs"] for kind in kinds if kind["state"] == State.QUEUED)
    order = {code: place for place, code in enumerate(Why)}
    return QueueWhy(queue, seen, waiting < window, window, sorted(counts.values(), key=lambda c: order[c.code]))


def _kinds(store: Store, queue: str, window: int) -> list[Row]:
    """The jobs of a queue, counted by what may keep them waiting, each kind with one job as an example."""
    pauses = standing_filters(store.db).pauses
    kinds: dict[tuple[Any, ...], Row] = {}
    for row in store.db.read("why_queue", queue=queue, most=window, judged=bool(pauses)):
        args = row.pop("args")
        pause = None if args is None else pause_meaning(queue, row["task"], args.encode(), pauses)
        jobs, example = row.pop("jobs"), row.pop("example")
        kind = kinds.setdefault((*row.values(), pause), {**row, "jobs": 0, "example": example})
        kind["jobs"] += jobs
    return sorted(kinds.values(), key=lambda kind: (-kind["jobs"], kind["task"]))


def facts_of(store: Store, rows: list[Row]) -> Facts:
    """The rows of why.sql as values."""
    job = rows[0]
    now = store.db.codec.moment(job["now"])
    assert now is not None
    due_at = store.db.codec.moment(job["due_at"])
    assert due_at is not None
    moments = ("expires_at", "started_at", "finished_at", "lease_ends_at", "asked_at")
    plain = (
        "queue", "task", "attempt", "max_attempts", "priority", "error_code", "error_message", "holder", "asked_by",
        "asked_why", "held_by", "suspicion",
    )  # fmt: skip
    flags = ("cancel_requested", "pause_requested")
    values: dict[str, Any] = {
        **{name: store.db.codec.moment(job[name]) for name in moments},
        **{name: job[name] for name in plain},
        **{name: bool(job[name]) for name in flags},
    }
    return Facts(
        now=now,
        due_at=due_at,
        id=str(job["id"]),
        state=State(job["state"]),
        queue_pause=_pause(store, "queue", job["queue"], job),
        task_pause=_pause(store, "task", job["task"], job),
        workers=tuple(_worker(store, row) for row in rows if _alive(store, row)),
        **values,
    )


def _longest_running(store: Store, workers: set[str]) -> LongestRunning | None:
    ids = [row["id"] for row in store.db.read("running_ids")]
    for row in store.db.read("running", ids=ids, most=RUNNING) if ids else ():
        started_at = store.db.codec.moment(row["started_at"])
        if row["worker"] in workers and started_at is not None:
            return LongestRunning(str(row["id"]), row["task"], row["worker"], started_at)
    return None


def _pause(store: Store, kind: str, name: str, row: Row) -> Pause | None:
    since = store.db.codec.moment(row[f"{kind}_paused_at"])
    if since is None:
        return None
    by, reason, until = (row[f"{kind}_paused_{what}"] for what in ("by", "why", "until"))
    return Pause(kind, name, by, reason, store.db.codec.moment(until), since)


def _meaning(store: Store, job_id: str) -> Iterator[Pause]:
    """The pauses by filter that mean this job."""
    pauses = [pause for pause in store.pauses.all(count=False) if pause.kind == "filter"]
    job = store.reads.get(job_id) if pauses else None
    for pause in pauses:
        filter = PauseFilter.named(pause.name)
        if job is not None and filter is not None and filter.means(job.queue, job.task, job.args):
            yield pause


def _alive(store: Store, row: Row) -> bool:
    now, seen_at = store.db.codec.moment(row["now"]), store.db.codec.moment(row["seen_at"])
    return now is not None and seen_at is not None and heard_of(seen_at, row["lease"], now)


def _worker(store: Store, row: Row) -> WorkerFacts:
    return WorkerFacts(
        id=row["worker_id"],
        queues=None if row["queues"] is None else store.db.codec.words(row["queues"]),
        tasks=store.db.codec.words(row["tasks"]),
        slots=row["slots"],
        running=row["running"] or 0,
        grace=row["grace"],
        timeouts=json.loads(row["timeouts"]),
    )


def _with_position(store: Store, facts: Facts, key: JobId, due_at: Any) -> Facts:
    """How many jobs are due before it, among those that the workers able to run it would take."""
    able = facts.able
    tasks = sorted({task for worker in able for task in worker.tasks})
    anywhere = any(worker.queues is None for worker in able)
    queues = None if anywhere else sorted({queue for worker in able for queue in worker.queues or ()})
    ahead, first = store.ahead(
        tasks=tasks, queues=queues, priority=facts.priority, due_at=due_at, id=key, most=POSITIONS
    )
    if not ahead or first is None or ahead >= POSITIONS:
        return replace(facts, ahead=ahead)
    [pace] = store.db.read("pace", id=first, tasks=tasks, most=PACE_JOBS, minus_span=-PACE_SPAN)
    if pace["ended"] < PACE_ENOUGH:
        return replace(facts, ahead=ahead)
    return replace(facts, ahead=ahead, estimate=ahead * pace["seconds"] / pace["ended"])
