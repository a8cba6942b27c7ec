"""Pauses of queues, tasks, crons, and of jobs with certain arguments: `pause`, `resume`, `pauses`, and the commands
`pause NAME` and `resume NAME` that the groups `queues`, `tasks` and `cron` share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import click
from msgspec.structs import replace

from holdfast.app import Holdfast
from holdfast.cli.base import (
    ago,
    cli,
    counted,
    database_option,
    open_app,
    output_option,
    print_data,
    print_table,
    talk,
    who_options,
)
from holdfast.durations import parse_duration
from holdfast.errors import BadArguments
from holdfast.model.job import COUNTED, Pause
from holdfast.model.pause_filter import meant, pause_name
from holdfast.model.text import named, nearest, plural, quoted

GROUPS = {"queue": "queues", "task": "tasks", "cron": "cron"}  # what is paused -> the group of its commands
PAUSE = {"queue": Holdfast.pause_queue, "task": Holdfast.pause_task, "cron": Holdfast.pause_cron}
RESUME = {"queue": Holdfast.resume_queue, "task": Holdfast.resume_task, "cron": Holdfast.resume_cron}


def pause_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a pause, whatever is paused."""
    until = "When it ends by itself: 30m, 1h, 2d, or 2030-01-31T12:00Z. Default: when resumed."
    return who_options(click.option("--until", help=until)(database_option(command)))


def add_pause_commands(
    group: click.Group, kind: str, pause_help: str, resume_help: str,
    known: Callable[[Holdfast], Collection[str]] | None = None,
) -> None:  # fmt: skip
    """Give the commands of a queue, task or cron their `pause` and `resume`. `known` lists the names there are. A queue
    or task with an unknown name is paused all the same, because its first job may be yet to come; a hint says so."""

    @group.command("pause", help=pause_help)
    @click.argument("name", metavar=kind.upper())
    @pause_options
    def pause_one(name: str, url: str | None, **options: str | None) -> None:
        app = open_app(url)
        names = None if known is None else known(app)
        PAUSE[kind](app, name, **asked(**options))
        if names is not None:
            hint_if_unknown(kind, name, names)
        talk(f"{kind} {name} is paused. To end the pause: holdfast {GROUPS[kind]} resume {named(name)}")

    @group.command("resume", help=resume_help)
    @click.argument("name", metavar=kind.upper())
    @database_option
    @who_options
    def resume_one(name: str, url: str | None, reason: str | None, by: str | None) -> None:
        ended = RESUME[kind](open_app(url), name, reason=reason, by=by)
        talk(f"{kind} {name} is resumed" if ended else f"{kind} {name} was not paused")


def hint_if_unknown(kind: str, name: str, names: Collection[str]) -> None:
    """For a name that is none of these."""
    if name not in names:
        near = nearest(name, names)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        talk(f"no waiting, running or failed job, no worker and no application knows of {kind} {name!r}{hint}")


@cli.command()
@click.argument("filter", nargs=-1, required=True)
@pause_options
def pause(filter: tuple[str, ...], url: str | None, **options: str | None) -> None:
    """Start no more jobs that match a FILTER, those to come included: args.NAME:, task:, queue:.

    Running jobs finish: `holdfast jobs cancel 'state:running …'` asks them to stop.

    \b
    Examples:
      holdfast pause args.customer:42 --reason 'their API is down' --until 2h
      holdfast pause task:sync args.customer:42
    """
    app = open_app(url)
    jobs = meant(" ".join(filter))
    where = pause_name(jobs)
    made = app.pause_matching(where, **asked(**options))
    aside = f", {held(made)} held" if made.kind == "filter" else ""
    talk(f"{where} is paused{aside}. To end the pause: holdfast resume {named(where)}")
    if running := len(app.store.reads.jobs(replace(jobs, states=("running",)), limit=COUNTED)):
        ask = f"holdfast jobs cancel {quoted('state:running ' + where)}"
        talk(f"{running:,} matching {plural('job', running)} still running. To stop: {ask}")


@cli.command()
@click.argument("filter", nargs=-1, required=True)
@database_option
@who_options
def resume(filter: tuple[str, ...], url: str | None, reason: str | None, by: str | None) -> None:
    """End the pause of the jobs that match a FILTER; they continue in their old order.

    \b
    Examples:
      holdfast resume args.customer:42
      holdfast resume task:sync args.customer:42
    """
    app = open_app(url)
    where = pause_name(meant(" ".join(filter)))
    if app.resume_matching(where, reason=reason, by=by):
        talk(f"{where} is resumed")
        return
    there = [pause.name for pause in app.pauses() if pause.kind == "filter"]
    talk(f"{where} was not paused" + (f"; these are: {'; '.join(there)}" if there else ""))


@cli.command()
@output_option
@database_option
def pauses(output: str, url: str | None) -> None:
    """List what is paused: queues, tasks, crons, and jobs by their arguments; since when, by whom, why and until when.

    \b
    Examples:
      holdfast pauses
      holdfast pauses -o json
    """
    found = open_app(url).pauses()
    if output != "table":
        print_data([_data(pause) for pause in found], output)
        return
    print_table(
        ("paused", "", "since", "jobs held", "by whom, why, until when", "to end it"),
        [
            (
                pause.kind, pause.name, ago(pause.created_at), "" if pause.jobs is None else held(pause).split()[0],
                described(pause_data(pause)), f"holdfast {_resume(pause)}",
            )
            for pause in found
        ],
    )  # fmt: skip


def _resume(pause: Pause) -> str:
    group = f"{GROUPS[pause.kind]} " if pause.kind in GROUPS else ""
    return f"{group}resume {named(pause.name)}"


def _data(pause: Pause) -> dict[str, Any]:
    jobs = {"jobs": pause.jobs and min(pause.jobs, COUNTED), "capped": (pause.jobs or 0) > COUNTED}
    return {"kind": pause.kind, "name": pause.name, **(pause_data(pause) or {}), **jobs}


# -- what other commands say of pauses -------------------------------------------------------------------------------


def held(pause: Pause) -> str:
    """How many jobs a pause by filter holds."""
    jobs = pause.jobs or 0
    return f"{counted(min(jobs, COUNTED), jobs > COUNTED)} {plural('job', jobs)}"


def pause_data(pause: Pause | None) -> dict[str, Any] | None:
    if pause is None:
        return None
    moments = {"until": pause.until, "since": pause.created_at}
    return {"by": pause.by, "reason": pause.reason, **{name: at and at.isoformat() for name, at in moments.items()}}


def described(pause: dict[str, Any] | None) -> str:
    """`by anna: provider down, ends in 2h`."""
    if pause is None:
        return ""
    parts = [f"by {pause['by']}" if pause["by"] else "yes"]
    if pause["reason"]:
        parts[0] += f": {pause['reason']}"
    if pause["until"]:
        parts.append(f"ends {ago(datetime.fromisoformat(pause['until']))}")
    return ", ".join(parts)


# -- options as the app takes them -----------------------------------------------------------------------------------


def asked(*, reason: str | None, until: str | None, by: str | None) -> dict[str, Any]:
    return {"reason": reason, "by": by, "until": None if until is None else moment(until)}


def moment(text: str) -> datetime | timedelta:
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadArguments(f"--until {text} is no time: write 30m, 1h, 2d or 2030-01-31T12:00Z") from None
    return at.replace(tzinfo=at.tzinfo or UTC)
