"""Gathers the facts for `why`: one statement for the job and all that concerns it, one for the jobs due before it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from msgspec import structs

from holdfast.errors import JobNotFound, OutcomeUnknown
from holdfast.model.audit import AuditRecord
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
from holdfast.store.columns import key_of, known
from holdfast.store.pauses import read_pause, standing

WINDOW = 10_000  # jobs of a queue that a summary reads, of each kind
PACE_JOBS = 1000  # jobs read to estimate how quickly they are done
PACE_SPAN = 300.0  # seconds of the past that the estimate is based on
RUNNING = 1_000  # running jobs, the oldest first, among which that of a full worker is looked for
STOPS, STOPS_SPAN = 100, timedelta(days=7)  # calls that stopped workers, among which that of a queue is looked for
PACE_ENOUGH = 5  # finished jobs below which no estimate is made


Read = Callable[..., list[Row]]  # runs a statement by its name


def why(store: Store, job_id: str) -> list[Reason]:
    """Every reason that a job does not run, or what became of it."""
    try:
        key = key_of(job_id)
    except JobNotFound:
        return not_found(job_id, store.shown_url, None)
    rows = store.db.read("why", id=key)
    if rows[0]["id"] is None:
        return not_found(job_id, store.shown_url, rows[0]["newest"])
    facts = _with_surroundings(store, store.db.read, facts_of(store, rows))
    if facts.state is State.QUEUED and facts.due and facts.able:
        facts = _with_position(store, facts, key, rows[0]["due_at"])
    return reasons(facts)


def why_queue(store: Store, queue: str, *, window: int = WINDOW) -> QueueWhy:
    """What the jobs of a queue wait for, counted by reason in a bounded window."""
    try:
        return _why_queue(store, queue, window)
    except OutcomeUnknown:  # the connection broke under way: it only reads, so it is simply asked again
        return _why_queue(store, queue, window)


def _why_queue(store: Store, queue: str, window: int) -> QueueWhy:
    counts: dict[Why, ReasonCount] = {}
    # One snapshot: otherwise the example of a kind may be claimed before it is explained, and its reason would be told
    # of all jobs of the kind.
    with store.db.snapshot() as tx:
        kinds = _kinds(store, tx.rows, queue, window)
        for kind in kinds:
            for reason in _why_kind(store, tx.rows, kind):
                before = counts.get(reason.code)
                if before is None:
                    counts[reason.code] = ReasonCount(
                        reason.code, kind["jobs"], reason.blocks, str(kind["example"]), reason.text
                    )
                else:
                    counts[reason.code] = structs.replace(
                        before, jobs=before.jobs + kind["jobs"], blocks=before.blocks or reason.blocks
                    )
    seen = sum(kind["jobs"] for kind in kinds)
    waiting = sum(kind["jobs"] for kind in kinds if kind["state"] == State.QUEUED)
    order = {code: place for place, code in enumerate(Why)}
    return QueueWhy(queue, seen, waiting < window, window, sorted(counts.values(), key=lambda c: order[c.code]))


def _kinds(store: Store, read: Read, queue: str, window: int) -> list[Row]:
    """The jobs of a queue, counted by what may keep them waiting, each kind with one job as an example."""
    pauses = standing(read("standing_filters")).pauses
    kinds: dict[tuple[Any, ...], Row] = {}
    for row in read("why_queue", queue=queue, most=window, judged=bool(pauses)):
        args = row.pop("args")
        pause = None if args is None else pause_meaning(queue, row["task"], args.encode(), pauses)
        jobs, example = row.pop("jobs"), row.pop("example")
        kind = kinds.setdefault((*row.values(), pause), {**row, "jobs": 0, "example": example})
        kind["jobs"] += jobs
    return sorted(kinds.values(), key=lambda kind: (-kind["jobs"], kind["task"]))


def _why_kind(store: Store, read: Read, kind: Row) -> list[Reason]:
    """The reasons of a kind's example, at the moment at which it was counted: a moment later it may be due."""
    facts = replace(facts_of(store, read("why", id=kind["example"])), now=known(store.db.codec.moment(kind["now"])))
    return reasons(_with_surroundings(store, read, facts))


def _with_surroundings(store: Store, read: Read, facts: Facts) -> Facts:
    """Who keeps the job from starting: writers, pauses by filter, the jobs that take all slots."""
    facts = replace(facts, writing=store.db.writing())
    if facts.state in (State.QUEUED, State.PAUSED):
        facts = replace(facts, filter_pauses=tuple(_meaning(store, read, facts)))
    if facts.state is State.QUEUED and facts.source is not None:
        facts = replace(facts, table_problems=tuple(_table_problems(store, facts.source)))
    if facts.state is State.QUEUED and not any(worker.serves(facts.queue) for worker in facts.workers):
        facts = replace(facts, stopped=_stopped(store, facts.queue))
    if facts.state is State.QUEUED and facts.all_busy:
        facts = replace(facts, longest=_longest_running(store, read, facts))
    return facts


def facts_of(store: Store, rows: list[Row]) -> Facts:
    """The rows of why.sql as values."""
    job = rows[0]
    now = store.db.codec.moment(job["now"])
    assert now is not None
    due_at = store.db.codec.moment(job["due_at"])
    assert due_at is not None
    moments = ("expires_at", "started_at", "finished_at", "lease_ends_at", "asked_at", "run_at")
    plain = (
        "queue", "task", "attempt", "max_attempts", "priority", "error_code", "error_message", "holder", "asked_by",
        "asked_why", "held_by", "suspicion", "source", "source_id",
    )  # fmt: skip
    flags = ("cancel_requested", "pause_requested", "owed", "table_suspended")
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
        workers=tuple(_worker(store, row, job["task"]) for row in rows if _alive(store, row)),
        **values,
    )


def _table_problems(store: Store, source: str) -> Iterator[str]:
    """Why its adopted table can't be worked."""
    for one in store.adopted.installed():
        if one.name == source:
            yield from (str(problem) for problem in store.adopted.check(one.mapping) if problem.fatal)


def _stopped(store: Store, queue: str) -> AuditRecord | None:
    """The last worker for this queue that people stopped."""
    stops = store.audit.all(verb="stop_worker", since=STOPS_SPAN, limit=STOPS)
    return next((stop for stop in stops if queue in stop.parameters.get("queues", [queue])), None)


def _longest_running(store: Store, read: Read, facts: Facts) -> LongestRunning | None:
    sharing = {worker.id: worker.sharing for worker in facts.able}
    ids = [row["id"] for row in read("running_ids")]
    for row in read("running", ids=ids, most=RUNNING) if ids else ():
        started_at = store.db.codec.moment(row["started_at"])
        if row["task"] in sharing.get(row["worker"], ()) and started_at is not None:
            return LongestRunning(str(row["id"]), row["task"], row["worker"], started_at)
    return None


def _pause(store: Store, kind: str, name: str, row: Row) -> Pause | None:
    since = store.db.codec.moment(row[f"{kind}_paused_at"])
    if since is None:
        return None
    by, reason, until = (row[f"{kind}_paused_{what}"] for what in ("by", "why", "until"))
    return Pause(kind, name, by, reason, store.db.codec.moment(until), since)


def _meaning(store: Store, read: Read, facts: Facts) -> Iterator[Pause]:
    """The pauses by filter that mean this job."""
    pauses = [read_pause(store.db, row) for row in read("pauses", most=0) if row["kind"] == "filter"]
    jobs = read("get", id=key_of(facts.id)) if pauses else []  # none: it was deleted just now
    for pause in pauses if jobs else ():
        filter = PauseFilter.named(pause.name)
        if filter is not None and filter.means(facts.queue, facts.task, store.db.codec.json(jobs[0]["args"]) or b""):
            yield pause


def _alive(store: Store, row: Row) -> bool:
    now, seen_at = store.db.codec.moment(row["now"]), store.db.codec.moment(row["seen_at"])
    return now is not None and seen_at is not None and heard_of(seen_at, row["lease"], now)


def _worker(store: Store, row: Row, task: str) -> WorkerFacts:
    """What matters of a worker for a job of this task: synchronous, asynchronous and isolated tasks have slots each."""
    tasks = store.db.codec.words(row["tasks"])
    runners: list[tuple[int, list[str]]] = json.loads(row["runners"])
    slots, sharing = next((runner for runner in runners if task in runner[1]), (row["slots"], []))
    held: dict[str, int] = json.loads(row["running"] or "{}")
    return WorkerFacts(
        id=row["worker_id"],
        queues=None if row["queues"] is None else store.db.codec.words(row["queues"]),
        tasks=tasks,
        slots=slots,
        running=sum(jobs for name, jobs in held.items() if not sharing or name in sharing),
        sharing=tuple(sharing or tasks),
        grace=row["grace"],
        timeouts=json.loads(row["timeouts"]),
    )


def _with_position(store: Store, facts: Facts, key: JobId, due_at: Any) -> Facts:
    """How many jobs are due before it, among those that the workers able to run it would take."""
    able = facts.able
    tasks = sorted({task for worker in able for task in worker.sharing})
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
