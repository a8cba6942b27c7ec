"""The schedules: when each is due next, in words and in its own time zone, what it ran last; pausing, running, adding
and removing them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.errors import BadArguments, BadSettings, HoldfastError
from holdfast.http.dashboard.page import Doing, Done, Look
from holdfast.http.dashboard.queues import FOR
from holdfast.http.dashboard.render import filter_of, query
from holdfast.http.problems import detail_of
from holdfast.job import Job
from holdfast.model.cron import CronRecord, correlation_of
from holdfast.model.cron_words import in_words
from holdfast.model.record import shown

COMING = 5  # ticks that are shown
RUNS = 5  # jobs that are shown
SEARCHED = 20  # jobs of a task in which its runs are looked for
TASKS = 50  # whose runs are looked for


class SchedulesQuery(msgspec.Struct, frozen=True):
    """What somebody typed into the form that was refused."""

    name: str = ""
    task: str = ""
    cron: str = ""
    timezone: str = ""
    args: str = ""


@dataclass(frozen=True)
class Row:
    """A schedule. `coming`: its next ticks by the clocks of its zone, with the instants. `change`: what happens to
    these clocks meanwhile. `problem`: why nothing is known of it."""

    cron: CronRecord
    words: str
    args: Any
    coming: list[tuple[datetime, str]]
    change: str
    runs: list[Job[Any]]
    problem: str = ""


def load(look: Look) -> dict[str, Any]:
    crons = look.app.crons()
    tasks = list(dict.fromkeys(cron.task for cron in crons))[:TASKS]
    ran = {task: look.app.jobs(filter_of(task=task), limit=SEARCHED) for task in tasks}
    return {
        "rows": [_row(look, cron, ran.get(cron.task, [])) for cron in crons],
        "tasks": sorted(look.app.tasks),
        "typed": look.query,
        "lasting": FOR,
    }


def _row(look: Look, cron: CronRecord, jobs: Sequence[Job[Any]]) -> Row:
    mark = correlation_of(cron.name, cron.task, None)
    runs = [job for job in jobs if f"{job.record.correlation_id}@".startswith(f"{mark}@")][:RUNS]
    args = None if cron.stored_args is None else shown(cron.stored_args, look.app._secrets(cron.task))
    try:
        zone = cron.schedule.zone
    except BadSettings as error:  # another host may know this time zone
        return Row(cron, cron.expression, args, [], "", runs, error.message)
    ticks = [tick.astimezone(zone) for tick in cron.upcoming(COMING)]
    coming = [(tick, f"{tick:%a %Y-%m-%d %H:%M}{f':{tick:%S}' if tick.second else ''}") for tick in ticks]
    return Row(cron, in_words(cron.expression), args, coming, change_of_clocks(cron.now.astimezone(zone), ticks), runs)


def change_of_clocks(now: datetime, ticks: Sequence[datetime]) -> str:
    """Between now and the last of these ticks, which are in their zone."""
    for before, after in zip([now, *ticks], ticks, strict=False):
        was, becomes = before.utcoffset(), after.utcoffset()
        if was is not None and becomes is not None and was != becomes:
            ahead = "ahead" if becomes > was else "back"
            return f"The clocks go {ahead} before {after:%Y-%m-%d %H:%M}: from {before:UTC%z} to {after:UTC%z}."
    return ""


async def add(doing: Doing) -> Done:
    typed = {name: doing.form.get(name, "").strip() for name in SchedulesQuery.__struct_fields__}
    try:
        task = doing.app.find_task(typed["task"])
        made = await doing.app.aschedule(
            typed["name"], task.bind(**_object(typed["args"])), cron=typed["cron"], timezone=typed["timezone"] or "UTC",
            reason=doing.text("reason"), by=doing.by,
        )  # fmt: skip
    except HoldfastError as error:
        # In code, a wrong expression or time zone would be a setting of the application.
        said = error.message if isinstance(error, BadSettings) else detail_of(error)
        return Done(said, to=f"/schedules{query(**typed)}", wrong=True)
    return Done(f"The schedule {made.name} enqueues {made.task} {in_words(made.expression)} ({made.timezone}).")


async def remove(doing: Doing) -> Done:
    name = _name(doing)
    gone = await doing.app.aunschedule(name, reason=doing.text("reason"), by=doing.by)
    if not gone:
        return Done(f"There is no schedule {name} that people made: a task declares it, or it is gone.", wrong=True)
    return Done(f"The schedule {name} is removed. Jobs that it has enqueued stay.")


async def run(doing: Doing) -> Done:
    name = _name(doing)
    job = await doing.app.arun_cron(name, reason=doing.text("reason"), by=doing.by)
    return Done(f"Enqueued job {job.id} for {name}.")


async def pause(doing: Doing) -> Done:
    name = _name(doing)
    await doing.app.apause_cron(name, reason=doing.text("reason"), until=doing.text("for"), by=doing.by)
    return Done(f"The schedule {name} is paused: ticks until it is resumed are skipped.")


async def resume(doing: Doing) -> Done:
    name = _name(doing)
    ended = await doing.app.aresume_cron(name, reason=doing.text("reason"), by=doing.by)
    return Done(f"The schedule {name} goes on with its next tick." if ended else f"{name} was not paused.")


def _name(doing: Doing) -> str:
    name = doing.form.get("name", "")
    if not name:
        raise BadArguments("which schedule? The form has a field `name`")
    return name


def _object(text: str) -> dict[str, Any]:
    try:
        args = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise BadArguments(f"the arguments are not JSON: {error}") from None
    if not isinstance(args, dict):
        raise BadArguments('the arguments are a JSON object, by name: {"url": "https://example.org"}')
    return args
