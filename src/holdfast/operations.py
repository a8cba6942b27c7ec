"""What operators do with jobs, queues and crons: list, count, retry, cancel, change, ask why. Each function is a method
of `Holdfast`; those that pause and resume are in `pausing`. What few of these need is imported when they are called, to
keep `import holdfast` quick."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict
from msgspec.structs import replace as replaced

from holdfast.durations import Duration
from holdfast.errors import BadArguments, JobNotFound, Refused, UnknownTask, WorkerNotFound
from holdfast.job import Job, handle
from holdfast.model.audit import VERBS, AuditRecord, BulkOperation
from holdfast.model.cron import CronRecord
from holdfast.model.filter import BadFilter, Filter, in_state_for, not_in_state_for, parse, text
from holdfast.model.job import (
    COUNTED,
    BulkPreview,
    Changed,
    Enqueued,
    ErrorGroup,
    Page,
    QueueSummary,
    TaskSummary,
    WorkerStatus,
    by_queue,
    by_task,
    running_by_worker,
)
from holdfast.model.lifecycle import State
from holdfast.model.record import arguments
from holdfast.model.text import nearest
from holdfast.store.metrics import drains_of
from holdfast.store.reads import WINDOW
from holdfast.tasks.offload import notice_loop
from holdfast.tasks.options import (
    MAX_REASON,
    by_of,
    changes,
    limit_of,
    looked_for,
    moment_of,
    no_such,
    queue_of,
    reason_of,
    seconds,
)

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.doctor import Finding
    from holdfast.model.stack import Stack
    from holdfast.model.why import QueueWhy, Reason

BULK = ("retry", "cancel", "pause", "resume", "change", "delete")  # verbs that take a filter
REPLAY = "replay:"  # a tag of a replayed job: which one it repeats
STACK_TIMEOUT = 10.0  # seconds; a worker that can't be notified learns of the request at its next heartbeat


# -- look ------------------------------------------------------------------------------------------------------------


def job(app: Holdfast, id: str) -> Job[Any]:
    """The job with this id."""
    try:
        return handle(app, app.store.reads.get(str(id)))
    except JobNotFound:
        from holdfast.model.why import not_found

        [reason] = not_found(str(id), app.store.shown_url, app.store.reads.newest() or None)
        raise JobNotFound(reason.text) from None


def jobs(
    app: Holdfast,
    filter: str = "",
    *,
    state: State | str | None = None,
    queue: str | None = None,
    task: str | None = None,
    before: str | None = None,
    limit: int = 50,
    window: int = WINDOW,
) -> Page[Job[Any]]:
    """The jobs that match a filter (`"state:failed queue:mail since:1h"`), newest first. `.next` is the id to pass as
    `before` for the next page. It looks through `window` jobs at most; `.cut` says that there are more."""
    limit_of("jobs: limit", limit)
    limit_of("jobs: window", window)
    _checked_text(filter)
    for name, value in {"queue": queue, "task": task, "before": before}.items():
        if value is not None:
            looked_for(f"jobs: {name}", value)
    found = app.store.reads.jobs(
        parse(filter), state=state, queue=queue, task=task, before=before, limit=limit, window=window
    )
    return Page((handle(app, record) for record in found), cut=found.cut, next=found.next)


def count(app: Holdfast, filter: str = "") -> int:
    """How many jobs match a filter, exactly. It reads every job in the table once, 10,000 ids with each statement, so a
    million jobs take seconds; with `state:running`, `state:failed` (up to 100,000 of them) or `id:`, only those. Jobs
    that move meanwhile may be counted as before or after. For a quick overview of any table: `queues`."""
    _checked_text(filter)
    return app.store.reads.count(parse(filter))


def queues(app: Holdfast) -> list[QueueSummary]:
    """How many jobs of each queue wait, run and failed, how much work they have pending, and when those that are due
    will be done, by name. No more than 10,000 jobs of a kind are counted, so it costs the same however many there
    are."""
    depths = app.store.reads.depths()
    return by_queue(depths, drains_of(app.store, depths))


def task_summaries(app: Holdfast) -> list[TaskSummary]:
    """The same for each task: those that this application declares, and those that have jobs."""
    return by_task(app.store.reads.depths(), app.tasks)


def error_groups(app: Holdfast, filter: str = "state:failed", *, limit: int = 100) -> list[ErrorGroup]:
    """The failed jobs that match the filter, grouped by the kind of their error, the largest groups first. With
    `state:retrying`, jobs that are tried again."""
    limit_of("error_groups: limit", limit)
    _checked_text(filter)
    return app.store.reads.error_groups(parse(filter), limit)


def why(app: Holdfast, id: str) -> list[Reason]:
    """Why a job does not run, or what became of it: every reason that holds, in order."""
    from holdfast.store.why import why

    return why(app.store, str(id))


def why_queue(app: Holdfast, queue: str) -> QueueWhy:
    """What the jobs of a queue wait for, counted by reason over a bounded window."""
    from holdfast.store.why import why_queue

    return why_queue(app.store, looked_for("the name of a queue", queue))


def stack(app: Holdfast, id: str, *, timeout: Duration = STACK_TIMEOUT) -> Stack:
    """Where the handler of a running job is right now, as its worker reports it: its calls, or its awaits, without the
    values of variables. Refused if the job does not run, WaitTimeout if no answer comes in time."""
    from holdfast.store.stack_requests import ask_for_stack

    return ask_for_stack(app.store, str(id), seconds("stack: timeout", timeout))


def output(app: Holdfast, id: str, *, timeout: Duration = STACK_TIMEOUT) -> str | None:
    """What a job with `isolation="process"` has written to stdout and stderr: so far, while it runs, else in its last
    attempt. None: nothing. WaitTimeout if its worker does not answer in time."""
    try:
        return stack(app, id, timeout=timeout).output
    except Refused:  # it does not run
        attempts = app.store.reads.attempts(str(id))
        return attempts[-1].output if attempts else None


def doctor(app: Holdfast) -> list[Finding]:
    """What is wrong with the database, or soon will be, and which checks passed. Changes nothing."""
    from holdfast.doctor import examine

    notice_loop(app.settings.sync_in_loop)
    app._check_url()
    return examine(
        app.settings, mappings={name: one.mapping for name, one in app.adopted.items()}, own_checks=app._checks
    )


def audit(
    app: Holdfast,
    *,
    by: str | None = None,
    verb: str | None = None,
    what: str | None = None,
    job: str | None = None,
    since: datetime | timedelta | str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> list[AuditRecord]:
    """What operators did, newest first: one record for each call. Only what was done `by` this operator, with this
    `verb`, to a name or filter that contains `what` (or with parameters that do), to the `job` of this id (alone, or by
    a call on many jobs), or `since` a time or so long ago. Pass the id of the last record as `before` for the next
    page."""
    limit_of("audit: limit", limit)
    if before is not None and not (isinstance(before, str) and before.isascii() and before.isdigit()):
        raise BadArguments(f"audit: before is the id of a record, not {before!r:.80}; pass records[-1].id")
    if verb is not None and verb not in VERBS:
        raise BadArguments(f"audit: {no_such('verb', [str(verb)], VERBS)}")
    return app.store.audit.all(
        by=None if by is None else looked_for("audit: by", by),
        verb=verb,
        what="" if what is None else looked_for("audit: what", what, limit=MAX_REASON),
        job=None if job is None else str(job),
        since=moment_of("audit: since", since)
        if not isinstance(since, timedelta | str)
        else timedelta(seconds=seconds("audit: since", since)),
        before=before,
        limit=limit,
    )


# -- change jobs -----------------------------------------------------------------------------------------------------


def retry(
    app: Holdfast,
    filter: str,
    reason: str | None = None,
    *,
    limit: int | None = None,
    spread: Duration | None = None,
    queue: str | None = None,
    by: str | None = None,
) -> Changed:
    """Queue every failed or cancelled job that matches the filter again, with its attempts counted from 0. `limit`:
    only so many, the oldest. `spread`: due evenly over this time, instead of all at once. `queue`: in another queue."""
    into: dict[str, Any] = {"queue": None if queue is None else queue_of("retry: queue", queue)}
    return bulk(app, "retry", filter, reason, by, some=share("retry", limit, spread), **into)


def share(verb: str, limit: int | None, spread: Duration | None = None) -> dict[str, Any] | None:
    """How many jobs, and over which time, checked. None: all of them, at once."""
    if limit is None and spread is None:
        return None
    if limit is not None:
        limit_of(f"{verb}: limit", limit)
    return {"limit": limit, "spread": 0.0 if spread is None else seconds(f"{verb}: spread", spread)}


def cancel(
    app: Holdfast, filter: str, reason: str | None = None, *, limit: int | None = None, by: str | None = None
) -> Changed:
    """Cancel every unfinished or failed job that matches the filter. Running ones are asked to stop. `limit`: only so
    many, the oldest."""
    return bulk(app, "cancel", filter, reason, by, some=share("cancel", limit))


def delete(app: Holdfast, filter: str, reason: str | None = None, *, by: str | None = None) -> Changed:
    """Delete every finished job that matches the filter, with its history."""
    return bulk(app, "delete", filter, reason, by, unfinished=False)


def change(
    app: Holdfast,
    filter: str,
    reason: str | None = None,
    *,
    queue: str | None = None,
    priority: int | None = None,
    delay: Duration | None = None,
    run_at: datetime | None = None,
    tags: Sequence[str] | None = None,
    by: str | None = None,
) -> Changed:
    """Change queue, priority, due time or tags of every queued or paused job that matches the filter. In another queue
    it is for that queue's workers, and no longer for those of the old one."""
    given = changes(queue=queue, priority=priority, delay=delay, run_at=run_at, tags=tags)
    return bulk(app, "change", filter, reason, by, **given)


def replay(
    app: Holdfast, id: str, args: Mapping[str, Any] | None = None, *, reason: str | None = None, by: str | None = None
) -> Job[Any]:  # fmt: skip
    """Enqueue a new job like this one: with its arguments, except for those given here, its queue, priority, attempts,
    correlation id and tags, and the tag `replay:ID`. It has no key, and the old job stays as it is. The task must be
    declared in this application, which checks the arguments."""
    if args is not None and not isinstance(args, Mapping):
        raise BadArguments(f"replay: args are arguments by name, as in args={{'url': …}}, not {args!r:.80}")
    old = app.store.reads.get(str(id))
    kept = arguments(old.args)
    if old.source is not None:
        raise Refused(f"can't replay job {old.id}: it works a row of {old.source}; change the row, or retry the job")
    if not isinstance(kept, dict):
        raise BadArguments(f"can't replay job {old.id}: its arguments are not an object; enqueue a job of {old.task}")
    tags = tuple(tag for tag in old.tags if not tag.startswith(REPLAY))
    options: dict[str, Any] = {"correlation_id": old.correlation_id} if old.correlation_id else {}
    bound = app.find_task(old.task).using(
        queue=old.queue, priority=old.priority, max_attempts=old.max_attempts, tags=(*tags, REPLAY + old.id), **options
    ).bind(**{**kept, **(args or {})})  # fmt: skip
    made = app.store.operator.replay(
        old.id, bound.new, reason_of("replay", reason), by_of("replay", by), edited=sorted(args or {})
    )
    return app._enqueued(bound, Enqueued(made, True))


def preview(app: Holdfast, verb: str, filter: str, *, window: int | None = None) -> BulkPreview:
    """How many jobs a verb (retry, cancel, pause, resume, change, delete) would change now, counted up to 10,000.
    `window`: looks only through so many of the newest jobs."""
    if verb not in BULK:
        raise BadArguments(f"preview: {no_such('verb', [str(verb)], BULK)}")
    which = _some(filter)
    if isinstance(which.since, timedelta):
        which = replaced(which, since=app.store.reads.now() - which.since)
    able, others = in_state_for(verb, which), not_in_state_for(verb, which)
    jobs, more = count_up_to(app, able, window=window)
    refused, others_more = count_up_to(app, others, window=window)
    return BulkPreview(verb, text(which), min(jobs, COUNTED), min(refused, COUNTED),
        capped=more or others_more or max(jobs, refused) > COUNTED,
    )  # fmt: skip


def count_up_to(
    app: Holdfast, filter: Filter | None, most: int = COUNTED, *, window: int | None = None
) -> tuple[int, bool]:
    """How many jobs match, and whether there are, or may be, more than were counted. None: no job can match."""
    return (0, False) if filter is None else app.store.reads.count_up_to(filter, most, window)


def bulk_operations(app: Holdfast, *, limit: int = 50) -> list[BulkOperation]:
    """The verbs on many jobs that are under way, and the newest that have ended: how far they are, by whom and why."""
    limit_of("bulk_operations: limit", limit)
    return app.store.operator.bulk_calls.newest(limit)


def bulk(
    app: Holdfast, verb: str, filter: str, reason: str | None, by: str | None, *, some: dict[str, Any] | None = None,
    counted: int = 0, **parameters: Any,
) -> Changed:  # fmt: skip
    """Apply a verb to every job that matches the filter, or to `some` of them. `counted`: how many they are, if
    somebody has counted them."""
    which = _some(filter)
    parameters |= {"reason": reason_of(verb, reason), "by": by_of(verb, by)}
    if some is None:
        return app.store.operator.bulk(verb, which, counted=counted, **parameters)
    return app.store.operator.bulk_some(verb, which, **some, **parameters)


def _some(text: str) -> Filter:
    _checked_text(text)
    filter = parse(text)
    if not filter:
        raise BadFilter("an empty filter would match every job: say which, as in state:failed or id:42")
    return filter


def _checked_text(filter: str) -> None:
    if not isinstance(filter, str):
        raise BadFilter(f"a filter is a text, as in 'state:failed' or 'id:42', not {filter!r:.80}")


# -- workers ---------------------------------------------------------------------------------------------------------


def workers(app: Holdfast) -> list[WorkerStatus]:
    """The workers of this database, the oldest first: what they serve, how busy they are, and whether they are up,
    stopping, silent or frozen."""
    from holdfast.worker.neighbours import living

    now = app.store.reads.now()
    running = running_by_worker(app.store.reads.depths())
    found = app.store.workers.all()
    silent = [worker.id for worker in found if not worker.alive(now)]
    frozen = living(app.store, app.settings.host or socket.gethostname(), silent)
    return [
        WorkerStatus(
            **asdict(worker), running=running.get(worker.id, 0), healthy=worker.polls_well(now),
            state="frozen" if worker.id in frozen else "silent" if worker.id in silent
            else "up" if worker.stop_requested_at is None else "stopping",
        )
        for worker in found
    ]  # fmt: skip


def stop_worker(app: Holdfast, worker: str, *, reason: str | None = None, by: str | None = None) -> list[str]:
    """Ask a worker to stop in good order, as SIGTERM does, wherever it runs: by its id, or all workers of a name.
    Returns their ids. They stop within seconds, or with their next look (once a lease) where they don't listen."""
    looked_for("the name of a worker", worker)
    who = {"reason": reason_of("stop_worker", reason), "by": by_of("stop_worker", by)}
    found = app.store.workers.all()
    ids = [one.id for one in found if worker in (one.id, one.name)]
    if asked := [id for id in ids if app.store.workers.request_stop(id, **who)]:
        return asked
    near = nearest(worker, {name for one in found for name in (one.id, one.name)})
    there = f"perhaps {near[0]!r}" if near else f"there are {', '.join(one.id for one in found) or 'none'}"
    raise WorkerNotFound(f"there is no worker {worker!r} in {app.settings.shown_url}; {there}")


# -- crons -----------------------------------------------------------------------------------------------------------


def crons(app: Holdfast) -> list[CronRecord]:
    """The crons that tasks declare and those that `schedule` made, by name."""
    from holdfast.tasks.manifest import cron_of, info_of

    known = {cron.name: cron for cron in app.store.crons.all(with_workers=True)}
    mine = [task for task in app.tasks.values() if task._schedule is not None and task.name not in known]
    now = app.store.reads.now() if mine else None
    known |= {task.name: cron_of(info_of(task), now) for task in mine if now is not None}
    return [known[name] for name in sorted(known)]


def run_cron(app: Holdfast, name: str, *, reason: str | None = None, by: str | None = None) -> Job[Any]:
    """Enqueue a job of this cron now. Its schedule stays as it is."""
    cron = stored_cron(app, name)
    id = app.store.crons.run(name, by=by_of("run_cron", by), reason=reason_of("run_cron", reason))
    if id is None:
        raise UnknownTask(f"the cron {name!r} is gone")
    return Job(app, id, cron.task, created=True)


def stored_cron(app: Holdfast, name: str) -> CronRecord:
    """The cron of this name, as the database has it. One that only this application declares is stored first."""
    known = {cron.name: cron for cron in crons(app)}
    if name not in known:
        there = ", ".join(list(known)[:20]) or "none"
        raise UnknownTask(f"there is no cron {name!r} in {app.settings.shown_url}; there are: {there}")
    if name not in {cron.name for cron in app.store.crons.all()}:
        app.store.crons.rename(name, app.tasks[name]._defaults.aliases)
        app.store.crons.declare(known[name])
        known = {cron.name: cron for cron in app.store.crons.all()}
    return known[name]
