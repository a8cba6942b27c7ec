"""How operators pause and resume: a queue, a task, a cron, all jobs that match a filter, or the jobs there are. Each
function is a method of `Holdfast`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadArguments
from holdfast.model.cron import goes_on_at
from holdfast.model.job import Changed, Pause
from holdfast.model.pause_filter import meant, pause_name
from holdfast.operations import bulk, stored_cron
from holdfast.tasks.options import by_of, looked_for, moment_of, name_of, reason_of, seconds

if TYPE_CHECKING:
    from holdfast.app import Holdfast

Until = datetime | timedelta | str  # a moment, or a duration from now: "2h"


def pauses(app: Holdfast) -> list[Pause]:
    """The pauses in force: of queues, tasks, crons, and of filters with the number of jobs they hold."""
    return app.store.pauses.all()


# -- pauses that stay until they are ended, also for jobs to come ------------------------------------------------------


def pause_queue(
    app: Holdfast, name: str, *, reason: str | None = None, until: Until | None = None, by: str | None = None
) -> Pause:
    """Start no more jobs of a queue until `resume_queue`, or until the time given. Running jobs go on."""
    return _pause(app, "queue", name_of("the name of a queue", name), reason, until, by)


def pause_task(
    app: Holdfast, name: str, *, reason: str | None = None, until: Until | None = None, by: str | None = None
) -> Pause:
    """Start no more jobs of a task until `resume_task`, or until the time given. Running jobs go on."""
    return _pause(app, "task", name_of("the name of a task", name), reason, until, by)


def pause_cron(
    app: Holdfast, name: str, *, reason: str | None = None, until: Until | None = None, by: str | None = None
) -> Pause:
    """Skip the ticks of a cron until `resume_cron`, or until the time given."""
    stored_cron(app, name_of("the name of a cron", name))
    return _pause(app, "cron", name, reason, until, by)


def pause_matching(
    app: Holdfast, filter: str = "", *, args: Mapping[str, Any] | None = None, reason: str | None = None,
    until: Until | None = None, by: str | None = None,
) -> Pause:  # fmt: skip
    """Start no more jobs that match a filter of `task:`, `queue:` and `args.NAME:`, those to come included, until
    `resume_matching`, or until the time given. `args` adds arguments by name: `args={"customer": 42}`. Running jobs go
    on. To pause the jobs there are, and none that come later: `pause_jobs`."""
    kind, name = _matching(filter, args)
    return _pause(app, kind, name, reason, until, by)


def resume_queue(app: Holdfast, name: str, *, reason: str | None = None, by: str | None = None) -> bool:
    """End the pause of a queue. False: it was not paused."""
    return _resume(app, "queue", looked_for("the name of a queue", name), reason, by)


def resume_task(app: Holdfast, name: str, *, reason: str | None = None, by: str | None = None) -> bool:
    """End the pause of a task. False: it was not paused."""
    return _resume(app, "task", looked_for("the name of a task", name), reason, by)


def resume_cron(app: Holdfast, name: str, *, reason: str | None = None, by: str | None = None) -> bool:
    """End the pause of a cron, which continues with its next tick. False: it was not paused."""
    next_at = goes_on_at(stored_cron(app, looked_for("the name of a cron", name)))
    return _resume(app, "cron", name, reason, by, next_at=next_at)


def resume_matching(
    app: Holdfast, filter: str = "", *, args: Mapping[str, Any] | None = None, reason: str | None = None,
    by: str | None = None,
) -> bool:  # fmt: skip
    """End the pause of this filter; its jobs continue in their old order. False: there was none."""
    kind, name = _matching(filter, args)
    return _resume(app, kind, name, reason, by)


# -- jobs as they are now ----------------------------------------------------------------------------------------------


def pause_jobs(app: Holdfast, filter: str, reason: str | None = None, *, by: str | None = None) -> Changed:
    """Pause every job that matches the filter now: queued ones at once, running ones are asked to park. To pause those
    to come as well: `pause_matching`."""
    return bulk(app, "pause", filter, reason, by)


def resume_jobs(app: Holdfast, filter: str, reason: str | None = None, *, by: str | None = None) -> Changed:
    """Resume every paused job that matches the filter."""
    return bulk(app, "resume", filter, reason, by)


def _pause(
    app: Holdfast, kind: str, name: str, reason: str | None, until: Until | None, by: str | None
) -> Pause:  # fmt: skip
    by, reason = by_of("pause", by), reason_of("pause", reason)
    if isinstance(until, timedelta | str):
        return app.store.pauses.add(kind, name, by=by, reason=reason, delay=seconds("pause: until", until))
    until = moment_of("pause: until", until)
    if until is not None and until <= app.store.reads.now():
        raise BadArguments(f"pause: until {until.isoformat()} is past: a pause needs an end that lies ahead")
    return app.store.pauses.add(kind, name, by=by, reason=reason, until=until)


def _resume(
    app: Holdfast, kind: str, name: str, reason: str | None, by: str | None, *, next_at: datetime | None = None
) -> bool:
    by, reason = by_of("resume", by), reason_of("resume", reason)
    return app.store.pauses.drop(kind, name, by=by, reason=reason, next_at=next_at)


def _matching(filter: str, args: Mapping[str, Any] | None) -> tuple[str, str]:
    """The kind and the name of the pause: a filter that names one queue or one task, and nothing else, is its pause."""
    jobs = meant(filter, args)
    one = [("queue", name) for name in jobs.queues] + [("task", name) for name in jobs.tasks]
    if jobs.args or len(one) > 1:
        return "filter", pause_name(jobs)
    return one[0]
