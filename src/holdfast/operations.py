"""What operators do with jobs, queues and crons: list, count, retry, cancel, change, ask why. Each function is a method
of `Holdfast`; those that pause and resume are in `pausing`. What few of these need is imported when they are called, to
keep `import holdfast` quick."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from holdfast.errors import BadArguments, Refused, UnknownTask, WorkerNotFound
from holdfast.job import Job, handle
from holdfast.model.audit import AuditRecord
from holdfast.model.cron import CronRecord
from holdfast.model.filter import BadFilter, Filter, parse
from holdfast.model.job import Changed, ErrorGroup, Page, QueueSummary, WorkerStatus, running_by_worker, summed
from holdfast.model.lifecycle import State
from holdfast.model.text import nearest
from holdfast.tasks.offload import notice_loop
from holdfast.tasks.options import Seconds, by_of, changes, looked_for, reason_of, seconds

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.doctor import Finding
    from holdfast.model.stack import Stack
    from holdfast.model.why import QueueWhy, Reason

MOST = 1_000_000  # jobs, or calls, in one list
STACK_TIMEOUT = 10.0  # seconds; a worker that can't be notified learns of the request at its next heartbeat


# -- look ------------------------------------------------------------------------------------------------------------


def job(app: Holdfast, id: str) -> Job[Any]:
    """The job with this id."""
    return handle(app, app.store.reads.get(str(id)))


def jobs(
    app: Holdfast,
    filter: str = "",
    *,
    state: State | str | None = None,
    queue: str | None = None,
    task: str | None = None,
    before: str | None = None,
    limit: int = 50,
) -> Page[Job[Any]]:
    """The jobs that match a filter (`"state:failed queue:mail since:1h"`), newest first. `.next` is the id to pass as
    `before` for the next page."""
    _checked_limit("jobs", limit)
    _checked_text(filter)
    for name, value in {"queue": queue, "task": task, "before": before}.items():
        if value is not None:
            looked_for(f"jobs: {name}", value)
    found = app.store.reads.jobs(parse(filter), state=state, queue=queue, task=task, before=before, limit=limit)
    return Page((handle(app, record) for record in found), cut=found.cut, next=found.next)


def count(app: Holdfast, filter: str = "") -> int:
    """How many jobs match a filter, exactly. It reads every job in the table once, 10,000 ids with each statement, so a
    million jobs take seconds; with `state:running`, `state:failed` (up to 100,000 of them) or `id:`, only those. Jobs
    that move meanwhile may be counted as before or after. For a quick overview of any table: `queues`."""
    _checked_text(filter)
    return app.store.reads.count(parse(filter))


def queues(app: Holdfast) -> list[QueueSummary]:
    """How many jobs of each queue wait, run and failed, and how much work they have pending, by name. No more than
    10,000 jobs of a kind are counted, so it costs the same however many there are."""
    return summed(app.store.reads.depths())


def error_groups(app: Holdfast, filter: str = "state:failed", *, limit: int = 100) -> list[ErrorGroup]:
    """The failed jobs that match the filter, grouped by the kind of their error, the largest groups first. With
    `state:retrying`, jobs that are tried again."""
    _checked_limit("error_groups", limit)
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


def stack(app: Holdfast, id: str, *, timeout: Seconds = STACK_TIMEOUT) -> Stack:
    """Where the handler of a running job is right now, as its worker reports it: its calls, or its awaits, without the
    values of variables. Refused if the job does not run, WaitTimeout if no answer comes in time."""
    from holdfast.store.stack_requests import ask_for_stack

    return ask_for_stack(app.store, str(id), seconds("stack: timeout", timeout))


def output(app: Holdfast, id: str, *, timeout: Seconds = STACK_TIMEOUT) -> str | None:
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
    return examine(app.settings)


def audit(app: Holdfast, *, before: str | None = None, limit: int = 50) -> list[AuditRecord]:
    """What operators did, newest first: one record for each call. Pass the id of the last one as `before` for the next
    page."""
    _checked_limit("audit", limit)
    if before is not None and not (isinstance(before, str) and before.isascii() and before.isdigit()):
        raise BadArguments(f"audit: before is the id of a record, not {before!r:.80}; pass records[-1].id")
    return app.store.audit.all(before=before, limit=limit)


# -- change jobs -----------------------------------------------------------------------------------------------------


def retry(
    app: Holdfast,
    filter: str,
    reason: str | None = None,
    *,
    limit: int | None = None,
    spread: Seconds | None = None,
    by: str | None = None,
) -> Changed:
    """Queue every failed or cancelled job that matches the filter again, with its attempts counted from 0. `limit`:
    only so many, the oldest. `spread`: due evenly over this time, instead of all at once."""
    if limit is None and spread is None:
        return bulk(app, "retry", filter, reason, by)
    which = _some(filter)
    return app.store.operator.retry_some(
        which, reason_of("retry", reason), by_of("retry", by), **share(limit, spread)
    )  # fmt: skip


def share(limit: int | None, spread: Seconds | None) -> dict[str, Any]:
    """How many jobs to retry, and over which time, checked."""
    if limit is not None:
        _checked_limit("retry", limit)
    return {"limit": limit, "spread": 0.0 if spread is None else seconds("retry: spread", spread)}


def cancel(app: Holdfast, filter: str, reason: str | None = None, *, by: str | None = None) -> Changed:
    """Cancel every unfinished or failed job that matches the filter. Running ones are asked to stop."""
    return bulk(app, "cancel", filter, reason, by)


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
    delay: Seconds | None = None,
    run_at: datetime | None = None,
    tags: Sequence[str] | None = None,
    by: str | None = None,
) -> Changed:
    """Change queue, priority, due time or tags of every queued or paused job that matches the filter. In another queue
    it is for that queue's workers, and no longer for those of the old one."""
    given = changes(queue=queue, priority=priority, delay=delay, run_at=run_at, tags=tags)
    return bulk(app, "change", filter, reason, by, **given)


def bulk(
    app: Holdfast, verb: str, filter: str, reason: str | None, by: str | None, **parameters: Any
) -> Changed:  # fmt: skip
    """Apply a verb to every job that matches the filter."""
    return app.store.operator.bulk(verb, _some(filter), reason_of(verb, reason), by_of(verb, by), **parameters)


def _count(what: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST:
        raise BadArguments(f"{what} must be a whole number of 1 to {MOST:,}, not {number!r}")
    return number


def _some(text: str) -> Filter:
    _checked_text(text)
    filter = parse(text)
    if not filter:
        raise BadFilter("an empty filter would match every job: say which, as in state:failed or id:42")
    return filter


def _checked_text(filter: str) -> None:
    if not isinstance(filter, str):
        raise BadFilter(f"a filter is a text, as in 'state:failed' or 'id:42', not {filter!r:.80}")


def _checked_limit(verb: str, limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST:
        raise BadArguments(f"{verb}: limit must be a whole number of 1 to {MOST:,}, not {limit!r}")


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
            **asdict(worker), running=running.get(worker.id, 0),
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
    mine = [task for task in app.tasks.values() if task.schedule is not None and task.name not in known]
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
        app.store.crons.rename(name, app.tasks[name].defaults.aliases)
        app.store.crons.declare(known[name])
        known = {cron.name: cron for cron in app.store.crons.all()}
    return known[name]
