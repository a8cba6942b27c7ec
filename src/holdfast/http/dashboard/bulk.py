"""Verbs on many jobs: what one would do, doing it, and how those that are under way stand."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import BadArguments, RequestRefused
from holdfast.http.dashboard.page import Doing, Done, Look
from holdfast.http.dashboard.shown import row_of, window_of
from holdfast.model.filter import in_state_for, parse, states_for, text
from holdfast.model.job import Changed
from holdfast.model.text import plural
from holdfast.operations import BULK, bulk, share
from holdfast.tasks.offload import in_long_thread
from holdfast.tasks.options import changes, no_such, queue_of

if TYPE_CHECKING:
    pass

LISTED = 50
EXAMPLES = 5
SOON = 1.0  # seconds in which most verbs are done; of others the page of operations shows the progress
SENTENCES = {
    "retry": "Queues failed and cancelled jobs again, with their attempts counted from 0.",
    "cancel": "Ends jobs that wait, dismisses failed ones, and asks those that run to stop.",
    "pause": "Holds jobs that wait until somebody resumes them, and asks those that run to park.",
    "resume": "Lets paused jobs run.",
    "change": "Gives jobs that wait another queue, priority or due time.",
    "delete": "Forgets finished jobs with their results, errors and history. This can't be undone.",
}
PAST = {
    "retry": "retried", "cancel": "cancelled", "pause": "paused", "resume": "resumed", "change": "changed",
    "delete": "deleted",
}  # fmt: skip
REQUESTED = {"cancel": "asked to stop", "pause": "asked to park"}
_under_way: set[asyncio.Future[Changed]] = set()  # the event loop itself does not keep them


class NewQuery(msgspec.Struct, frozen=True):
    verb: str = "retry"
    filter: str = "state:failed"
    limit: str = ""
    spread: str = ""
    back: str = "/jobs"


def load(look: Look) -> dict[str, Any]:
    return {"operations": look.app.bulk_operations(limit=LISTED), "past": PAST}


def new(look: Look) -> dict[str, Any]:
    """What a verb would do to the jobs of a filter."""
    query: NewQuery = look.query
    found = look.app.preview(_verb(query.verb), query.filter, window=window_of(query.filter))
    able = in_state_for(found.verb, parse(found.filter))
    now = look.app.store.reads.now()
    newest = (
        look.app.jobs(text(able), limit=EXAMPLES, window=window_of(found.filter))
        if able is not None and found.jobs
        else []
    )
    return {
        "found": found, "examples": [row_of(look.app, job.record, now) for job in newest],
        "sentence": SENTENCES[found.verb], "needed": [state.value for state in states_for(found.verb)],
        "limit": query.limit, "spread": query.spread, "back": query.back,
        "mixed": found.verb == "retry" and able is not None and "cancelled" in (able.states or ("cancelled",)),
    }  # fmt: skip


async def start(doing: Doing) -> Done:
    """Begin it. If it takes long, it goes on when the request is answered, and if this process dies, a worker carries
    it on."""
    verb, filter = _verb(doing.form.get("verb", "")), doing.form.get("filter", "")
    given = _given(verb, doing)
    expected = _whole("expected", doing.text("expected"))

    def act() -> Changed:
        found = doing.app.preview(verb, filter, window=window_of(filter))
        if expected is not None and found.jobs > expected:
            raise RequestRefused(
                f"this would {verb} {found.jobs:,}{'+' * found.capped} jobs, and {expected:,} were shown: look again",
                status=409, number="HF1513",
            )  # fmt: skip
        counted = 0 if found.capped else found.jobs
        return bulk(doing.app, verb, filter, doing.text("reason"), doing.by, counted=counted, **given)

    call = asyncio.ensure_future(in_long_thread(doing.app, act))
    _under_way.add(call)
    call.add_done_callback(_under_way.discard)
    done, _ = await asyncio.wait([call], timeout=SOON)
    if done:
        return Done(described(verb, call.result()), to=doing.text("then"))
    return Done(f"It is under way: jobs are {PAST[verb]}, a few hundred at a time.", to="/bulk")


def _given(verb: str, doing: Doing) -> dict[str, Any]:
    """What the fields of the form say beside the filter."""
    limit, spread, queue = _whole("limit", doing.text("limit")), doing.text("spread"), doing.text("queue")
    if verb == "retry":
        return {"some": share(verb, limit, spread), "queue": None if queue is None else queue_of("queue", queue)}
    if verb == "cancel":
        return {"some": share(verb, limit)}
    if verb == "change":
        return changed_by(doing)
    return {"unfinished": False} if verb == "delete" else {}


def changed_by(doing: Doing) -> dict[str, Any]:
    """The changes that a form asks for."""
    return changes(
        queue=doing.text("queue"), priority=_whole("priority", doing.text("priority")), delay=doing.text("delay"),
        run_at=_instant(doing.text("run_at")),
    )  # fmt: skip


def described(verb: str, done: Changed) -> str:
    """What became of it."""
    parts = [f"{PAST[verb]} {done.changed:,} {plural('job', done.changed)}"] if done.changed or not done.asked else []
    if done.asked:
        parts.append(f"{done.asked:,} running {plural('job', done.asked)} {REQUESTED[verb]}")
    if done.refused:
        parts.append(f"{done.refused:,} not in a state for it")
    said = "; ".join(parts)
    return said[0].upper() + said[1:] + "."


def _verb(given: str) -> str:
    if given not in BULK:
        raise BadArguments(no_such("verb", [given], BULK))
    return given


def _whole(name: str, given: str | None) -> int | None:
    try:
        return None if given is None else int(given.replace(",", ""))
    except ValueError:
        raise BadArguments(f"{name} is a whole number, not {given!r:.80}") from None


def _instant(given: str | None) -> datetime | None:
    """What a field for date and time holds: UTC, as the page says."""
    try:
        at = None if given is None else datetime.fromisoformat(given)
    except ValueError:
        raise BadArguments(f"{given!r:.80} is no time: write 2030-01-31T12:00") from None
    return at if at is None or at.tzinfo is not None else at.replace(tzinfo=UTC)
