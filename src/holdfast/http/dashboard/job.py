"""One job: what became of it and why, what it is doing, and all that may be done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import BadArguments, HoldfastError
from holdfast.http.dashboard.bulk import changed_by
from holdfast.http.dashboard.copies import copies
from holdfast.http.dashboard.page import Doing, Done, Look
from holdfast.http.dashboard.render import pretty
from holdfast.http.dashboard.shown import state_of, verbs_for, when
from holdfast.http.dashboard.timeline import timeline
from holdfast.http.dashboard.tracebacks import parts
from holdfast.http.problems import detail_of, status_of
from holdfast.model.job import AttemptRecord, JobRecord
from holdfast.model.lifecycle import State
from holdfast.model.record import shown
from holdfast.operations import REPLAY
from holdfast.redact import HIDDEN, hide_secrets
from holdfast.tasks.options import queue_of

if TYPE_CHECKING:
    from holdfast.app import Holdfast

CALLS = 50  # of operators
PAST = {
    "retry": "is queued again", "cancel": "is cancelled", "pause": "is paused", "resume": "goes on",
    "change": "is changed", "delete": "is deleted",
}  # fmt: skip
REQUESTED = {
    "cancel": "is asked to stop, which it does when its handler next checks",
    "pause": "is asked to park, which it does when its handler next checks",
    "resume": "runs on: the request to pause is taken back",
}


class StackQuery(msgspec.Struct, frozen=True):
    timeout: float = 5.0


def load(look: Look) -> dict[str, Any]:
    app = look.app
    job = app.job(look.path["id"])
    record, now = job.record, app.store.reads.now()
    secrets = app._secrets(job.task)
    attempts, calls = job.attempts(), app.audit(job=job.id, limit=CALLS)
    state, remark = state_of(record, now)
    steps = [msgspec.structs.replace(step, result=hide_secrets(step.result, secrets)) for step in job.steps()]
    stored = {name: getattr(record, name) for name in ("args", "result", "checkpoint")}
    return {
        "job": record, "state": state, "remark": remark, "when": when(record, now),
        "why": [] if record.state in (State.SUCCEEDED, State.FAILED) else job.why(),
        "verbs": verbs_for(app, record),
        "attempts": attempts[::-1], "traceback": _traceback(record, attempts),
        "spans": timeline(record, attempts, calls, now),
        "steps": steps, "calls": calls, "progress": job.progress,
        **{name: None if value is None else shown(value, secrets) for name, value in stored.items()},
        "replay_of": next((tag.removeprefix(REPLAY) for tag in record.tags if tag.startswith(REPLAY)), None),
        "replays": [call.parameters["job"] for call in calls if call.verb == "replay" and "job" in call.parameters],
        "copies": copies(app, record),
    }  # fmt: skip


def _traceback(job: JobRecord, attempts: list[AttemptRecord]) -> Any:
    """Of the error that it has now."""
    if job.error_code is None or job.state is State.SUCCEEDED:
        return None
    last = next((attempt for attempt in reversed(attempts) if attempt.error_code), None)
    return None if last is None or last.traceback is None else parts(last.traceback)


def now(look: Look) -> dict[str, Any]:
    """What its handler is doing at this moment."""
    return {"stack": look.app.stack(look.path["id"], timeout=min(30.0, max(0.0, look.query.timeout)))}


async def act(doing: Doing) -> Done:
    """One of the verbs on one job."""
    id, verb = doing.path["id"], doing.form.get("verb", "")
    job = await doing.app.ajob(id)
    who: dict[str, Any] = {"reason": doing.text("reason"), "by": doing.by}
    queue = doing.text("queue")
    match verb:
        case "retry":
            state = await job.aretry(queue=None if queue is None else queue_of("queue", queue), **who)
        case "cancel" | "pause" | "resume":
            state = await getattr(job, f"a{verb}")(**who)
        case "change":
            given = {name: value for name, value in changed_by(doing).items() if value is not None}
            state = await job.achange(**given, **who)
        case "delete":
            await job.adelete(**who)
            return Done(f"Job {id} is deleted.", to="/jobs")
        case _:
            raise BadArguments(f"which verb? There are {', '.join(PAST)}")
    said = REQUESTED[verb] if state is State.RUNNING and verb in REQUESTED else PAST[verb]
    return Done(f"Job {id} {said}.")


# -- replay ------------------------------------------------------------------------------------------------------------


def edit(look: Look) -> dict[str, Any]:
    """The arguments, to be edited."""
    job = look.app.job(look.path["id"])
    args = _arguments(look.app, job.record)
    return {"job": job.record, "text": pretty(args), "hidden": HIDDEN in pretty(args), "wrong": None, "reason": ""}


async def replay(doing: Doing) -> Done:
    """Enqueue the edited job. If its task refuses the arguments, the form is shown again as it was sent."""
    id, text = doing.path["id"], doing.form.get("args", "")
    job = await doing.app.ajob(id)
    try:
        made = await doing.app.areplay(
            id, _edited(text, _arguments(doing.app, job.record)), reason=doing.text("reason"), by=doing.by
        )
    except HoldfastError as error:
        if status_of(error) == 500:
            raise
        kept = {"text": text, "wrong": detail_of(error), "reason": doing.form.get("reason", "")}
        return Done("", to=f"/jobs/{id}/replay", wrong=True, kept=kept)
    return Done(f"Job {made.id} is enqueued: a replay of job {id}.", to=f"/jobs/{made.id}")


def _arguments(app: Holdfast, job: JobRecord) -> Any:
    return shown(job.args, app._secrets(job.task))


def _edited(text: str, before: Any) -> dict[str, Any]:
    """The arguments that differ from what the form showed: so a hidden secret that was left alone stays what it is."""
    try:
        given = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadArguments(f"the arguments are not JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadArguments('the arguments are a JSON object, as in {"name": "value"}')
    old = before if isinstance(before, dict) else {}
    return {name: value for name, value in given.items() if name not in old or _differs(value, old[name])}


def _differs(one: Any, other: Any) -> bool:
    """(In Python 1, 1.0 and true are equal.)"""
    return msgspec.json.encode(one) != msgspec.json.encode(other)
