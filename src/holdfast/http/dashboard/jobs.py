"""The jobs: a filter, the page of jobs that match it, and what helps to type a filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.errors import BadArguments, JobNotFound
from holdfast.http.dashboard.page import Doing, Done, Look
from holdfast.http.dashboard.render import query as query_of
from holdfast.http.dashboard.shown import WINDOW, row_of, window_of
from holdfast.http.problems import detail_of
from holdfast.model.filter import DERIVED, STATES, parse, quoted, words
from holdfast.model.job import COUNTED
from holdfast.operations import BULK, count_up_to

if TYPE_CHECKING:
    from holdfast.app import Holdfast

LISTED = 50
TRAIL = 20  # pages that one can go back by `newer`
SUGGESTED = 12
HINTS = {
    "state": "queued, running, failed, …", "queue": "in this queue", "task": "of this task", "tag": "has this tag",
    "since": "30s, 15m, 1h, 7d, or a date", "error": "in the code or text of its error", "group": "a group of errors",
    "args.": "an argument: args.user_id:42", "id": "this job", "key": "its dedup key", "worker": "ran it last",
    "source": "an adopted table", "row": "the id of its row there",
}  # fmt: skip
OFTEN = ("since:15m", "since:1h", "since:24h", "since:7d")


class JobsQuery(msgspec.Struct, frozen=True):
    filter: str = ""
    before: str = ""  # the page below this job
    trail: str = ""  # where the pages before it began, divided by dots


class FilterQuery(msgspec.Struct, frozen=True):
    filter: str = ""


def load(look: Look) -> dict[str, Any]:
    """A wrong filter is told, and stays as it was typed."""
    query: JobsQuery = look.query
    now = look.app.store.reads.now()
    wrong, jobs, cut, following, window = None, [], False, None, WINDOW
    try:
        window = window_of(query.filter)
        found = look.app.jobs(query.filter, before=query.before or None, limit=LISTED, window=window)
        jobs = [row_of(look.app, job.record, now) for job in found]
        cut, following = found.cut, found.next if found.cut or len(found) == LISTED else None
    except (BadArguments, JobNotFound) as error:
        wrong = detail_of(error)
    typed = [] if wrong else words(query.filter)
    trail = query.trail.split(".") if query.trail else []
    return {
        "filter": query.filter, "wrong": wrong, "jobs": jobs, "cut": cut, "before": query.before,
        "chips": [(word, _without(typed, n)) for n, word in enumerate(typed)],
        "states": _states(typed),
        "older": None if following is None else address(
            query.filter, following, ".".join([*trail, query.before or "0"][-TRAIL:])
        ),
        "newer": address(query.filter, *_newer(trail)) if query.before else None,
        "verbs": BULK, "window": window,
    }  # fmt: skip


def address(filter: str, before: str = "", trail: str = "") -> str:
    return "jobs" + query_of(filter=filter, before=before, trail=trail)


def _newer(trail: list[str]) -> tuple[str, str]:
    """Where the page above this one began; the newest jobs, if that is not known any more."""
    last = trail[-1] if trail else "0"
    return "" if last == "0" else last, ".".join(trail[:-1])


def _without(typed: list[str], n: int) -> str:
    return address(" ".join(typed[:n] + typed[n + 1 :]))


def _states(typed: list[str]) -> list[tuple[str, str, bool]]:
    """For each state its name, the address of the same list in it, and whether that is what is shown."""
    others = [word for word in typed if not word.startswith("state:")]
    wanted = next((word.partition(":")[2] for word in typed if word.startswith("state:")), "")
    offered = [("all", address(" ".join(others)), not wanted)]
    for state in STATES:
        offered.append((state, address(" ".join([f"state:{state}", *others])), state == wanted))
    return offered


# -- what helps to type a filter ---------------------------------------------------------------------------------------


def suggest(look: Look) -> dict[str, Any]:
    """What the last word of a half-typed filter may become, each with the whole text that choosing it makes."""
    text: str = look.query.filter
    head, last = _half(text)
    found = list(_completions(look.app, last))[:SUGGESTED]
    return {"suggestions": [(word, hint, head + word + ("" if word[-1] in ":." else " ")) for word, hint in found]}


def _half(text: str) -> tuple[str, str]:
    """The words that are finished, and the one that is being typed."""
    in_quotes = False
    start = 0
    for n, character in enumerate(text):
        if character == '"':
            in_quotes = not in_quotes
        elif character.isspace() and not in_quotes:
            start = n + 1
    return text[:start], text[start:]


def _completions(app: Holdfast, last: str) -> list[tuple[str, str]]:
    qualifier, colon, value = last.partition(":")
    if not colon:
        wanted = qualifier.lower()
        offered = [(f"{name}:" if name[-1] != "." else name, hint) for name, hint in HINTS.items() if wanted in name]
        # Who types the value of a state, a queue or a task without its qualifier is offered both.
        if wanted:
            offered += [(f"state:{state}", "") for state in STATES if wanted in state]
            for kind, names in _names(app).items():
                offered += [(f"{kind}:{quoted(name)}", "") for name in names if wanted in name.lower()]
        return offered
    *before, piece = value.split(",")
    values = {"state": list(STATES), "since": [word.partition(":")[2] for word in OFTEN]}.get(qualifier)
    if values is None:
        values = _names(app).get(qualifier, [])
    chosen = ",".join([*before, ""])
    piece = piece.strip('"').lower()
    return [
        (f"{qualifier}:{chosen}{quoted(name)}", "queued, not due yet" if name in DERIVED else "")
        for name in values
        if piece in name.lower() and name.lower() != piece
    ]


def _names(app: Holdfast) -> dict[str, list[str]]:
    """What there is, by qualifier."""
    depths = app.store.reads.depths()
    workers = app.store.workers.all()
    return {
        "queue": sorted({depth.queue for depth in depths}),
        "task": sorted({*(depth.task for depth in depths), *app.tasks}),
        "worker": sorted({name for worker in workers for name in (worker.name, worker.id)}),
        "source": sorted(app.adopted),
    }


def count(look: Look) -> dict[str, Any]:
    """How many jobs match, of as many as a page looks through."""
    filter = look.query.filter
    jobs, more = count_up_to(look.app, parse(filter), window=window_of(filter))
    return {"jobs": min(jobs, COUNTED), "more": more}


# -- what to do with many ----------------------------------------------------------------------------------------------


async def choose(doing: Doing) -> Done:
    """A verb for the jobs that were selected: shown before it is done."""
    verb = doing.text("verb")
    if verb not in BULK:
        raise BadArguments(f"which verb? There are {', '.join(BULK)}")
    if doing.text("all"):
        filter = doing.form.get("filter", "").strip()
        parse(filter)
        if not filter:
            raise BadArguments("type a filter first: an empty one would mean every job there is")
    elif ids := list(dict.fromkeys(doing.many.get("id", ()))):
        filter = f"id:{','.join(map(quoted, ids))}"
    else:
        raise BadArguments("no job is selected: tick some, or all that match the filter")
    return Done("", to="/bulk/new" + query_of(verb=verb, filter=filter, back=doing.form.get("back")))
