"""Schedules that are made at run time: a task with its arguments, and when to enqueue it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.errors import BadArguments, BadSettings
from holdfast.model.cron import CATCH_UP, CronRecord, Schedule, cron_tag
from holdfast.model.job import NewJob
from holdfast.tasks.options import name_of
from holdfast.tasks.task import Bound


def schedule_of(name: Any, bound: Any, *, cron: Any, timezone: Any, catch_up: Any, now: datetime) -> CronRecord:
    """The cron to store, or an error that says what is wrong with it."""
    name = name_of("schedule: its name", name)
    where = f"schedule {name}"
    if not isinstance(bound, Bound):
        raise BadArguments(f"{where}: it takes a task with its arguments, as in task.bind(…), not {bound!r:.80}")
    new = bound.new
    wrong = [option for option, value in _unfit(new).items() if value] + (["conn"] if bound.conn is not None else [])
    if wrong:
        raise BadArguments(
            f"{where}: {', '.join(wrong)} can't be given to each of its jobs; using() takes queue, priority, "
            "max_attempts and tags here"
        )
    if not isinstance(catch_up, str) or catch_up not in CATCH_UP:
        raise BadSettings(f"{where}: catch_up is one of {', '.join(CATCH_UP)}, not {catch_up!r:.80}")
    try:
        schedule = Schedule(cron, timezone)
    except BadSettings as error:
        raise BadSettings(f"{where}: {error.message}") from None
    return CronRecord(
        name=name, task=new.task, stored_args=new.args, expression=cron, timezone=timezone, catch_up=catch_up,
        queue=new.queue, priority=new.priority, max_attempts=new.max_attempts,
        tags=tuple(dict.fromkeys((*new.tags, cron_tag(name)))), next_at=schedule.after(now), now=now,
    )  # fmt: skip


def _unfit(new: NewJob) -> dict[str, Any]:
    """What is said of one job, by the name of its option."""
    return {
        "delay": new.delay, "run_at": new.run_at, "expires": new.expires_in is not None, "key": new.key,
        "correlation_id": new.correlation_id,
    }  # fmt: skip
