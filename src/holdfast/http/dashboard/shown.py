"""How a job is told in a few words: its state, when it was or will be, how far it is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import UnknownTask
from holdfast.model.filter import parse, quoted
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import FINISHED, REQUESTS, UNFINISHED, State
from holdfast.model.record import shown

if TYPE_CHECKING:
    from holdfast.app import Holdfast

WINDOW, WINDOW_IN_JSON = 50_000, 10_000  # jobs
BRIEF = 90  # characters of arguments in a list
ASKED = {"pause": "asked to pause", "cancel": "asked to stop"}


def window_of(filter: str) -> int:
    """How many jobs a page looks through for a filter. What is inside of JSON takes longer to compare."""
    wanted = parse(filter)
    return WINDOW_IN_JSON if wanted.args or wanted.tags else WINDOW


class JobRow(msgspec.Struct, frozen=True):
    """A job in a list."""

    job: JobRecord
    state: str
    remark: str
    brief: str
    when: tuple[str, datetime]


def row_of(app: Holdfast, job: JobRecord, now: datetime) -> JobRow:
    state, remark = state_of(job, now)
    args = shown(job.args, app._secrets(job.task))
    if job.source is not None and isinstance(args, dict) and isinstance(args.get("row"), dict):
        args = args["row"]
    return JobRow(job, state, remark, brief(args), when(job, now))


def state_of(job: JobRecord, now: datetime) -> tuple[str, str]:
    """The state as people call it, and a remark about it."""
    if job.state is State.QUEUED:
        if job.held_by is not None:
            return "paused", "by a pause on jobs like it"
        if job.run_at > now:
            return ("retrying" if job.attempt else "scheduled"), ""
    if job.state is State.RUNNING:
        return "running", ASKED["cancel"] if job.cancel_requested else ASKED["pause"] if job.pause_requested else ""
    return job.state.value, ""


def when(job: JobRecord, now: datetime) -> tuple[str, datetime]:
    """The instant that matters most in its state, and what it is."""
    if job.state in FINISHED:
        return job.state.value, job.finished_at or job.created_at
    if job.state is State.RUNNING:
        return "started", job.started_at or job.created_at
    if job.state is State.PAUSED:
        return "paused", job.asked_at or job.created_at
    return ("due", job.run_at)


def brief(args: Any) -> str:
    """Arguments on one line: `url=https://…, depth=2`."""
    if not isinstance(args, dict):
        return compact(args)
    return cut(
        ", ".join(f"{name}={value if isinstance(value, str) else compact(value)}" for name, value in args.items())
    )


def compact(value: Any) -> str:
    return cut(msgspec.json.encode(value).decode())


def cut(text: str, most: int = BRIEF) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def verbs_for(app: Holdfast, job: JobRecord) -> list[str]:
    """What people may do to this job now."""
    adopted = job.source is not None
    match job.state:
        case State.QUEUED:
            verbs = ["change", "pause", "cancel"]
        case State.RUNNING:
            asked = {"pause": job.pause_requested or job.cancel_requested, "cancel": job.cancel_requested}
            verbs = [verb for verb in sorted(REQUESTS, reverse=True) if not asked[verb]]
            if job.pause_requested:
                verbs.insert(0, "resume")
        case State.PAUSED:
            verbs = ["resume", "change", "cancel"]
        case State.FAILED:
            verbs = ["retry", "cancel", "delete"]
        case State.CANCELLED:
            verbs = ["retry", "delete"]
        case _:
            verbs = ["delete"]
    if "retry" in verbs and _key_is_taken(app, job):
        verbs.remove("retry")
    if adopted and "delete" in verbs:
        verbs.remove("delete")
    if not adopted and declared(app, job.task):
        verbs.append("replay")
    return verbs


def _key_is_taken(app: Holdfast, job: JobRecord) -> bool:
    """Did its key go to another job that has not finished? Equal jobs are not unfinished at the same time."""
    if job.key is None or job.holds_key:
        return False
    unfinished = ",".join(sorted(UNFINISHED))
    return bool(app.jobs(f"task:{quoted(job.task)} key:{quoted(job.key)} state:{unfinished}", limit=1))


def declared(app: Holdfast, task: str) -> bool:
    try:
        app.find_task(task)
    except UnknownTask:
        return False
    return True
