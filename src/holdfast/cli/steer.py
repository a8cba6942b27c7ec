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

from holdfast.cli.base import open_app, output_option, print_data, talk, url_option
from holdfast.cli.jobs import jobs, print_jobs
from holdfast.cli.queues import user
from holdfast.client import Holdfast
from holdfast.errors import BadArguments, Refused
from holdfast.model.filter import BadFilter, Filter, duration, parse
from holdfast.model.job import Changed
from holdfast.model.lifecycle import State
from holdfast.people import changes
from holdfast.store.base import Store
from holdfast.store.find import CHUNK

CAP = 10_000  # jobs counted before asking
SHOWN = 5

PAST = {
    "retry": "retried", "cancel": "cancelled", "pause": "paused", "resume": "resumed", "delete": "deleted",
    "change": "changed",
}  # fmt: skip

ASKED = {"cancel": "stops", "pause": "parks"}  # what a running job is asked for

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
    steer("cancel", which, parameters={"reason": reason, "by": by or user()}, **options)


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@click.option("--why", help="Shown to whoever wonders.")
@click.option("--by", help="Who asks. Default: the user's name.")
@steering
def pause(which: tuple[str, ...], why: str | None, by: str | None, **options: Any) -> None:
    """Hold queued jobs, and ask running ones to park: by ID…, or all that a FILTER means.

    \b
    Examples:
      holdfast jobs pause 44 --why 'until the backup is done'
      holdfast jobs pause tag:import state:queued --yes
    """
    steer("pause", which, parameters={"reason": why, "by": by or user()}, **options)


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
    if len(filter.ids) == 1 and filter == Filter(ids=filter.ids) and not dry_run:
        done = _one(app.store, verb, filter.ids[0], parameters)
    else:
        count = _count(app.store, filter)
        _tell_missing(app.store, filter)
        _preview(app, verb, filter, count)
        if dry_run:
            if output != "table":
                row = {"verb": verb, "jobs": min(count, CAP), "capped": count > CAP}
                print_data([row], output, one=True)
            return
        if count > 1 and not yes:
            _ask(verb, count)
        done = _all(app.store, verb, filter, count, parameters)
    if output == "table":
        others = f"; {done.refused:,} not in a state for it" if done.refused else ""
        click.echo(f"{PAST[verb]} {jobs_(done.changed)}{others}")
    else:
        print_data([{"verb": verb, "changed": done.changed, "refused": done.refused}], output, one=True)
    if done.refused and not done.changed:
        raise Refused(f"none of {jobs_(done.refused)} was in a state for {verb}", number="HF1302")


def _meant(words: Sequence[str]) -> Filter:
    if words and not any(":" in word for word in words):
        return Filter(ids=tuple(dict.fromkeys(words)))
    filter = parse(" ".join(words))
    if not filter:
        raise BadFilter("which jobs? Name ids (42 43) or a filter (state:failed queue:mail)")
    return filter


def _one(store: Store, verb: str, id: str, parameters: dict[str, Any]) -> Changed:
    if verb == "delete":
        record = store.get(id)
        if not record.finished:
            raise Refused(f"can't delete job {id}: it is {record.state}, and must have finished; cancel it first")
        store.delete(id)
    else:
        if getattr(store, verb)(id, **parameters) is State.RUNNING and verb in ASKED:
            talk(f"job {id} runs: it is asked, and {ASKED[verb]} when its handler looks")
    return Changed(1, 0)


def _count(store: Store, filter: Filter) -> int:
    """How many there are; more than CAP are not counted."""
    return sum(len(ids) for ids in islice(store.matching(filter), CAP // CHUNK + 1))


def _tell_missing(store: Store, filter: Filter) -> None:
    if filter.ids:
        found = {record.id for record in store.jobs(Filter(ids=filter.ids), limit=len(filter.ids))}
        if missing := [id for id in filter.ids if id not in found]:
            talk(f"there is no job {', '.join(missing[:20])}{', …' if len(missing) > 20 else ''}")


def _preview(app: Holdfast, verb: str, filter: Filter, count: int) -> None:
    if not count:
        talk("no job is meant by this")
        return
    some = f"{CAP:,}+ jobs" if count > CAP else jobs_(count)
    talk(f"{verb}: {some} in {app.settings.shown_url}" + (f", the newest {SHOWN}:" if count > SHOWN else ":"))
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
        return store.bulk(
            verb, filter, told=lambda so_far: bar.update(so_far.changed + so_far.refused - bar.pos), **parameters
        )


def jobs_(count: int) -> str:
    return "1 job" if count == 1 else f"{count:,} jobs"
