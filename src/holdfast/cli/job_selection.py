"""Which jobs a verb on the command line is about: counted, shown and asked about before more than one is changed. A
script says --yes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import click
from msgspec.structs import astuple, replace

from holdfast.app import Holdfast
from holdfast.cli.base import open_app, print_data, say, talk
from holdfast.cli.jobs import hint_at_names, print_jobs
from holdfast.errors import BadArguments, JobNotFound, Refused
from holdfast.model.durations import short_duration
from holdfast.model.filter import BadFilter, Filter, in_state_for, parse, states_for
from holdfast.model.job import COUNTED as CAP
from holdfast.model.job import Changed
from holdfast.model.lifecycle import State
from holdfast.model.text import plural
from holdfast.operations import count_up_to
from holdfast.store.base import Store
from holdfast.store.reads import CHUNK
from holdfast.tasks.options import by_of, reason_of

SHOWN = 5

PAST = {
    "retry": "retried", "cancel": "cancelled", "pause": "paused", "resume": "resumed", "delete": "deleted",
    "change": "changed",
}  # fmt: skip
REQUESTED = {"cancel": "stop", "pause": "park"}  # what a running job is asked to do


def apply(
    verb: str, words: Sequence[str], *, yes: bool, dry_run: bool, output: str, url: str | None,
    reason: str | None, by: str | None, parameters: dict[str, Any] | None = None,
    some: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Apply a verb to the jobs that these words select, and print what came of it. `some`: only the oldest `limit`, due
    over `spread` seconds."""
    filter = selected(words)
    who = {"reason": reason_of(verb, reason), "by": by_of(verb, by)}
    app = open_app(url)
    parameters = who | (parameters or {})
    missing: list[str] = []
    if len(filter.ids) == 1 and filter == Filter(ids=filter.ids) and not dry_run and some is None:
        done = _one(app.store, verb, filter.ids[0], parameters)
    else:
        missing = _missing(app.store, filter)
        count = _preview(app, verb, filter, **some or {})
        if dry_run:
            if output != "table":
                print_data([{"verb": verb, "jobs": min(count, CAP), "capped": count > CAP}], output, one=True)
            _complain_of(missing)
            return
        if count > 1 and not yes:
            _ask(verb, count)
        done = _all(app.store, verb, filter, count, parameters, some)
    if output == "table":
        say(_described(verb, done))
    else:
        print_data([{"verb": verb, **done.as_dict()}], output, one=True)
    _complain_of(missing, "; the others are done" * bool(done.changed + done.asked))
    if done.refused and not done.changed and not done.asked:
        raise Refused(f"none of {jobs_(done.refused)} was in a state for {verb}: {_needed(verb)}", number="HF1302")


def _needed(verb: str) -> str:
    """In which states a job can be changed so."""
    *others, last = [state.value for state in states_for(verb)]
    text = "it must be " + f"{', '.join(others)} or " * bool(others) + last
    return text + "; retry failed or cancelled ones first (holdfast jobs retry)" * (verb == "change")


def selected(words: Sequence[str]) -> Filter:
    if words and not any(":" in word for word in words):
        return Filter(ids=tuple(dict.fromkeys(words)))
    filter = parse(" ".join(words))
    if not filter:
        raise BadFilter("which jobs? Name ids (42 43) or a filter (state:failed queue:mail)")
    return filter


def _one(store: Store, verb: str, id: str, parameters: dict[str, Any]) -> Changed:
    asked = getattr(store.operator, verb)(id, **parameters) is State.RUNNING and verb in REQUESTED
    return Changed(int(not asked), 0, int(asked))


def _missing(store: Store, filter: Filter) -> list[str]:
    """The named ids that belong to no job."""
    found = (
        {record.id for record in store.reads.jobs(Filter(ids=filter.ids), limit=len(filter.ids))} if filter.ids else ()
    )
    return [id for id in filter.ids if id not in found]


def _complain_of(missing: Sequence[str], besides: str = "") -> None:
    if missing:
        raise JobNotFound(f"there is no job {', '.join(missing[:20])}{', …' * (len(missing) > 20)}{besides}")


def _preview(app: Holdfast, verb: str, filter: Filter, limit: int | None = None, spread: float = 0.0) -> int:
    """Say how many jobs would change, and show some of them. Returns how many; more than CAP are not counted."""
    able = in_state_for(verb, filter)
    count, _ = count_up_to(app, able)
    others = count_up_to(app, filter)[0] - count
    if able is None or not count:
        talk(f"none of {jobs_(others)} is in a state for {verb}: {_needed(verb)}" if others else "no job matches")
        if not others:
            hint_at_names(app, filter)
        return 0
    besides = f" ({others:,} more not in a state for it)" if others > 0 and count + others <= CAP else ""
    what = _capped(count)
    # Who retries what failed may not mean what was cancelled on purpose.
    if (
        verb == "retry"
        and not filter.states
        and (cancelled := count_up_to(app, replace(able, states=("cancelled",)))[0])
    ):
        what += f" ({cancelled:,} of them cancelled; state:failed leaves those out)"
    if limit is not None and limit < count:
        what, count = f"the oldest {limit:,} of {what}", limit
    what += f" in {app.settings.shown_url}" + f", over {short_duration(spread)}" * bool(spread) + besides
    if limit is None:
        talk(f"{verb}: {what}" + (f", the newest {SHOWN}:" if count > SHOWN else ":"))
        print_jobs(app.store.reads.jobs(able, limit=SHOWN), err=True)
    else:
        talk(f"{verb}: {what}" + (f", the first {SHOWN}:" if count > SHOWN else ":"))
        print_jobs(app.store.reads.records(app.store.reads.oldest(able, min(limit, SHOWN)))[::-1], err=True)
    return count


def _ask(verb: str, count: int) -> None:
    if not sys.stdin.isatty():
        raise BadArguments(
            f"this would {verb} {_capped(count)}, and nobody is there to ask: say --yes, or --dry-run to look",
            number="HF1401",
        )
    if not click.confirm(f"{verb} {_capped(count)}?", err=True):
        talk("nothing was changed")
        raise click.exceptions.Exit(1)


def _all(
    store: Store, verb: str, filter: Filter, count: int, parameters: dict[str, Any], some: dict[str, Any] | None
) -> Changed:
    if some is None:
        act = partial(store.operator.bulk, verb, filter, **parameters)
    else:
        act = partial(store.operator.bulk_some, verb, filter, **parameters, **some)
    if count <= CHUNK or not sys.stderr.isatty():
        return act()
    with click.progressbar(length=count, label=verb, file=sys.stderr) as bar:
        return act(told=lambda so_far: bar.update(sum(astuple(so_far)) - bar.pos))


def _described(verb: str, done: Changed) -> str:
    parts = [f"{PAST[verb]} {jobs_(done.changed)}"] if done.changed or not done.asked else []
    if done.asked:
        running = f"{done.asked:,} running {plural('job', done.asked)}"
        parts.append(f"asked {running} to {REQUESTED[verb]}, which takes effect when the handler next checks")
    if done.refused:
        parts.append(f"{done.refused:,} not in a state for it")
    return "; ".join(parts)


def _capped(count: int) -> str:
    return f"{CAP:,}+ jobs" if count > CAP else jobs_(count)


def jobs_(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
