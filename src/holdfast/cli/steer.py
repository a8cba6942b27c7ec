"""`jobs retry|cancel|pause|resume|delete|set`: one job by its id, or all that a filter means. More than one is shown
first and asked about; a script says --yes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import click
from msgspec.structs import asdict, astuple, replace

from holdfast.app import Holdfast
from holdfast.cli.base import open_app, output_option, print_data, say, talk, url_option
from holdfast.cli.jobs import hint_at_names, jobs, print_jobs
from holdfast.cli.queues import user
from holdfast.errors import BadArguments, JobNotFound, Refused
from holdfast.model.filter import DERIVED, BadFilter, Filter, duration, parse
from holdfast.model.job import Changed
from holdfast.model.lifecycle import FINISHED, IN_PLACE, REQUESTS, TRANSITIONS, State
from holdfast.operations import changes
from holdfast.store.base import Store
from holdfast.store.find import CHUNK
from holdfast.tasks.options import by_of, reason_of

CAP = 10_000  # jobs counted before asking
SHOWN = 5

PAST = {
    "retry": "retried", "cancel": "cancelled", "pause": "paused", "resume": "resumed", "delete": "deleted",
    "change": "changed",
}  # fmt: skip

ASKED = {"cancel": "stops", "pause": "parks"}  # what a running job does once asked

Command = Callable[..., Any]


def steering(command: Command) -> Command:
    """The options all of them take."""
    for option in (
        url_option,
        output_option,
        click.option("--dry-run", is_flag=True, help="Only say which jobs it would be."),
        click.option("-y", "--yes", is_flag=True, help="Don't ask."),
    ):
        command = option(command)
    return command


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@steering
def retry(which: tuple[str, ...], **options: Any) -> None:
    """Give failed or cancelled jobs another life: by ID…, or all that a FILTER means.

    \b
    Examples:
      holdfast jobs retry 42
      holdfast jobs retry state:failed queue:mail since:1h --yes
    """
    steer("retry", which, **options)


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@click.option("--reason", help="Kept with the job.")
@click.option("--by", help="Who asks. Default: the user's name.")
@steering
def cancel(which: tuple[str, ...], reason: str | None, by: str | None, **options: Any) -> None:
    """End jobs that have not finished, ask running ones to stop, dismiss failed ones: by ID…, or by FILTER.

    \b
    Examples:
      holdfast jobs cancel 43 --reason 'ordered twice'
      holdfast jobs cancel task:report state:queued --dry-run
    """
    steer("cancel", which, parameters=_asked("cancel", reason, by), **options)


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@click.option("--reason", help="Shown to whoever wonders.")
@click.option("--by", help="Who asks. Default: the user's name.")
@steering
def pause(which: tuple[str, ...], reason: str | None, by: str | None, **options: Any) -> None:
    """Hold queued jobs, and ask running ones to park: by ID…, or all that a FILTER means.

    \b
    Examples:
      holdfast jobs pause 44 --reason 'until the backup is done'
      holdfast jobs pause tag:import state:queued --yes
    """
    steer("pause", which, parameters=_asked("pause", reason, by), **options)


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@steering
def resume(which: tuple[str, ...], **options: Any) -> None:
    """Let paused jobs go on: by ID…, or all that a FILTER means.

    \b
    Examples:
      holdfast jobs resume 45
      holdfast jobs resume state:paused --yes
    """
    steer("resume", which, **options)


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@steering
def delete(which: tuple[str, ...], **options: Any) -> None:
    """Forget finished jobs and their history: by ID…, or all that a FILTER means. Others must be cancelled first.

    \b
    Examples:
      holdfast jobs delete 46
      holdfast jobs delete state:succeeded task:report --yes
    """
    steer("delete", which, parameters={"unfinished": False}, **options)


@jobs.command("set")
@click.argument("which", nargs=-1, required=True)
@steering
def set_(which: tuple[str, ...], **options: Any) -> None:
    """Change queued jobs, by ID… or FILTER: priority=5 delay=10m run_at=2030-01-31T12:00Z tags=a,b.

    \b
    Examples:
      holdfast jobs set 47 priority=5 delay=10m
      holdfast jobs set queue:mail state:queued tags=urgent,paid --yes
    """
    settings = [word for word in which if re.match(r"\w+=", word)]
    if not settings:
        raise BadArguments("what is to change? Say priority=5, delay=10m, run_at=2030-01-31T12:00Z or tags=a,b")
    parameters = changes(**dict(_change(*word.split("=", 1)) for word in settings))
    steer("change", [word for word in which if word not in settings], parameters=parameters, **options)


def _change(name: str, value: str) -> tuple[str, Any]:
    read: dict[str, Callable[[str], Any]] = {
        "priority": int,
        "delay": duration,
        "run_at": datetime.fromisoformat,
        "tags": lambda text: [tag for tag in text.split(",") if tag],
    }
    if name not in read:
        raise BadArguments(f"a job has no {name!r} to change; there are {', '.join(read)}")
    try:
        return name, read[name](value)
    except ValueError:
        raise BadArguments(f"{name}={value} can't be read: write priority=5, delay=10m, tags=a,b") from None


# -- what they all do ------------------------------------------------------------------------------------------------


def steer(
    verb: str, words: Sequence[str], *, yes: bool, dry_run: bool, output: str, url: str | None,
    parameters: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    filter = _meant(words)
    app = open_app(url)
    parameters = parameters or {}
    missing: list[str] = []
    if len(filter.ids) == 1 and filter == Filter(ids=filter.ids) and not dry_run:
        done = _one(app.store, verb, filter.ids[0], parameters)
    else:
        missing = _missing(app.store, filter)
        able = _able(verb, filter)
        count = 0 if able is None else _count(app.store, able)
        others = _count(app.store, filter) - count
        _preview(app, verb, able or filter, count, others)
        if not count and not others:
            hint_at_names(app, filter)
        if dry_run:
            if output != "table":
                row = {"verb": verb, "jobs": min(count, CAP), "capped": count > CAP}
                print_data([row], output, one=True)
            _complain_of(missing)
            return
        if count > 1 and not yes:
            _ask(verb, count)
        done = _all(app.store, verb, filter, count, parameters)
    if output == "table":
        told = [f"{PAST[verb]} {jobs_(done.changed)}"] if done.changed or not done.asked else []
        if done.asked:
            each = "is asked: it" if done.asked == 1 else "are asked: each"
            told.append(
                f"{jobs_(done.asked)} that run{'s' * (done.asked == 1)} {each} {ASKED[verb]} when its handler looks"
            )
        told += [f"{done.refused:,} not in a state for it"] if done.refused else []
        say("; ".join(told))
    else:
        print_data([{"verb": verb, **asdict(done)}], output, one=True)
    _complain_of(missing, "; the others are done" * bool(done.changed + done.asked))
    if done.refused and not done.changed and not done.asked:
        raise Refused(f"none of {jobs_(done.refused)} was in a state for {verb}", number="HF1302")


def _asked(verb: str, reason: str | None, by: str | None) -> dict[str, Any]:
    return {"reason": reason_of(verb, reason), "by": by_of(verb, by or user())}


def _meant(words: Sequence[str]) -> Filter:
    if words and not any(":" in word for word in words):
        return Filter(ids=tuple(dict.fromkeys(words)))
    filter = parse(" ".join(words))
    if not filter:
        raise BadFilter("which jobs? Name ids (42 43) or a filter (state:failed queue:mail)")
    return filter


def _one(store: Store, verb: str, id: str, parameters: dict[str, Any]) -> Changed:
    asked = getattr(store, verb)(id, **parameters) is State.RUNNING and verb in ASKED
    return Changed(int(not asked), 0, int(asked))


def _count(store: Store, filter: Filter) -> int:
    """How many there are; more than CAP are not counted."""
    return sum(len(ids) for ids in islice(store.matching(filter), CAP // CHUNK + 1))


def _able(verb: str, filter: Filter) -> Filter | None:
    """Those of the jobs a filter means that are in a state for this verb; None: there can't be any."""
    possible = FINISHED if verb == "delete" else IN_PLACE[verb] if verb in IN_PLACE else TRANSITIONS[verb][0]
    if verb in REQUESTS:
        possible |= {State.RUNNING}
    wanted = filter.states or tuple(state.value for state in State)
    able = tuple(word for word in wanted if (State.QUEUED if word in DERIVED else word) in possible)
    return replace(filter, states=able) if able else None


def _missing(store: Store, filter: Filter) -> list[str]:
    """The ids among those named that are no job's."""
    found = {record.id for record in store.jobs(Filter(ids=filter.ids), limit=len(filter.ids))} if filter.ids else ()
    return [id for id in filter.ids if id not in found]


def _complain_of(missing: Sequence[str], besides: str = "") -> None:
    if missing:
        raise JobNotFound(f"there is no job {', '.join(missing[:20])}{', …' * (len(missing) > 20)}{besides}")


def _preview(app: Holdfast, verb: str, filter: Filter, count: int, others: int) -> None:
    besides = f" ({others:,} more not in a state for it)" if others > 0 and count + others <= CAP else ""
    if not count:
        talk(f"none of {jobs_(others)} is in a state for {verb}" if others else "no job is meant by this")
        return
    some = f"{CAP:,}+ jobs" if count > CAP else jobs_(count)
    talk(f"{verb}: {some} in {app.settings.shown_url}{besides}" + (f", the newest {SHOWN}:" if count > SHOWN else ":"))
    print_jobs(app.store.jobs(filter, limit=SHOWN), err=True)


def _ask(verb: str, count: int) -> None:
    some = f"{CAP:,}+ jobs" if count > CAP else jobs_(count)
    if not sys.stdin.isatty():
        raise BadArguments(
            f"this would {verb} {some}, and nobody is there to ask: say --yes, or --dry-run to look", number="HF1401"
        )
    if not click.confirm(f"{verb} {some}?", err=True):
        talk("nothing was changed")
        raise click.exceptions.Exit(1)


def _all(store: Store, verb: str, filter: Filter, count: int, parameters: dict[str, Any]) -> Changed:
    if count <= CHUNK or not sys.stderr.isatty():
        return store.bulk(verb, filter, **parameters)
    with click.progressbar(length=count, label=verb, file=sys.stderr) as bar:
        return store.bulk(verb, filter, told=lambda so_far: bar.update(sum(astuple(so_far)) - bar.pos), **parameters)


def jobs_(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
