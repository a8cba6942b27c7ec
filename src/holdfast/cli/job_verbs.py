"""`jobs retry|cancel|pause|resume|delete|set`: change one job by its id, or all that match a filter."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import click
from msgspec.structs import replace

from holdfast.cli.base import database_option, open_app, output_option, talk, who_options
from holdfast.cli.job_selection import apply, selected
from holdfast.cli.jobs import jobs
from holdfast.cli.pauses import hint_if_unknown
from holdfast.cli.queues import known_names
from holdfast.errors import BadArguments
from holdfast.model.durations import parse_duration
from holdfast.model.filter import Filter, text
from holdfast.model.text import named
from holdfast.operations import MOST, share
from holdfast.tasks.options import changes

Command = Callable[..., Any]


def verb_options(command: Command) -> Command:
    """The options that all verbs take."""
    for option in (
        who_options,
        database_option,
        output_option,
        click.option("--dry-run", is_flag=True, help="Only say which jobs it would be."),
        click.option("-y", "--yes", is_flag=True, help="Don't ask."),
    ):
        command = option(command)
    return command


group_option = click.option("--group", metavar="ID", help="Only failed jobs of this group of errors.")


def _of_group(which: tuple[str, ...], group: str | None) -> tuple[str, ...]:
    """The words of a filter, narrowed to a group of errors."""
    if group is None:
        return which
    return (*which, f"group:{group}", *["state:failed"] * (not any(word.startswith("state:") for word in which)))


@jobs.command()
@click.argument("which", nargs=-1)
@group_option
@click.option("--limit", type=click.IntRange(1, MOST), help="Only so many, the oldest.")
@click.option("--spread", metavar="DURATION", help="Due evenly over this time (10m), instead of all at once.")
@verb_options
def retry(which: tuple[str, ...], group: str | None, limit: int | None, spread: str | None, **options: Any) -> None:
    """Run failed or cancelled jobs again, attempts counted from 0: by ID…, or all that match a FILTER.

    \b
    Examples:
      holdfast jobs retry state:failed queue:mail since:1h --yes
      holdfast jobs retry --group 3f2a9c11ab --limit 10 --spread 10m --dry-run
    """
    which = _of_group(which, group)
    some = None
    if limit is not None or spread is not None:
        some = share(limit, None if spread is None else _duration("--spread", spread))
    apply("retry", which, some=some, **options)


@jobs.command()
@click.argument("which", nargs=-1)
@group_option
@verb_options
def cancel(which: tuple[str, ...], group: str | None, **options: Any) -> None:
    """Cancel unfinished and failed jobs, and ask running ones to stop: by ID…, or all that match a FILTER.

    \b
    Examples:
      holdfast jobs cancel 43 --reason 'ordered twice'
      holdfast jobs cancel task:report state:queued --dry-run
    """
    apply("cancel", _of_group(which, group), **options)


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@verb_options
def pause(which: tuple[str, ...], **options: Any) -> None:
    """Pause queued jobs, and ask running ones to park: by ID…, or all that match a FILTER.

    \b
    Examples:
      holdfast jobs pause 44 --reason 'until the backup is done'
      holdfast jobs pause tag:import state:queued --yes
    """
    apply("pause", which, **options)
    filter = selected(which)
    alike = Filter(queues=filter.queues, tasks=filter.tasks, args=filter.args)
    if alike and replace(filter, states=()) == alike:
        talk(f"jobs enqueued later are not paused; to pause those as well: holdfast pause {named(text(alike))}")


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@verb_options
def resume(which: tuple[str, ...], **options: Any) -> None:
    """Resume paused jobs: by ID…, or all that match a FILTER.

    \b
    Examples:
      holdfast jobs resume 45
      holdfast jobs resume state:paused --yes
    """
    apply("resume", which, **options)


@jobs.command()
@click.argument("which", nargs=-1, required=True)
@verb_options
def delete(which: tuple[str, ...], **options: Any) -> None:
    """Delete finished jobs and their history: by ID…, or all that match a FILTER. Cancel others first.

    \b
    Examples:
      holdfast jobs delete 46
      holdfast jobs delete state:succeeded task:report --yes
    """
    apply("delete", which, parameters={"unfinished": False}, **options)


@jobs.command("set")
@click.argument("which", nargs=-1, required=True)
@verb_options
def set_(which: tuple[str, ...], **options: Any) -> None:
    """Change jobs that wait, by ID… or FILTER: queue=mail priority=5 delay=10m run_at=2030-01-31T12:00Z tags=a,b.

    \b
    Examples:
      holdfast jobs set 47 priority=5 delay=10m
      holdfast jobs set queue=slow 'state:queued queue:mail' --yes
    """
    settings = [word for word in which if re.match(r"\w+=", word)]
    if not settings:
        raise BadArguments(
            "what is to change? Say queue=mail, priority=5, delay=10m, run_at=2030-01-31T12:00Z, tags=a,b"
        )
    parameters = changes(**dict(_change(*word.split("=", 1)) for word in settings))
    if queue := parameters["queue"]:
        hint_if_unknown("queue", queue, known_names("queue", open_app(options["url"])))
    apply("change", [word for word in which if word not in settings], parameters=parameters, **options)


def _change(name: str, value: str) -> tuple[str, Any]:
    read: dict[str, Callable[[str], Any]] = {
        "queue": str,
        "priority": int,
        "delay": parse_duration,
        "run_at": datetime.fromisoformat,
        "tags": lambda text: [tag for tag in text.split(",") if tag],
    }
    if name not in read:
        raise BadArguments(f"a job has no {name!r} to change; there are {', '.join(read)}")
    try:
        return name, read[name](value)
    except ValueError:
        raise BadArguments(f"{name}={value} can't be read: write priority=5, delay=10m, tags=a,b") from None


def _duration(option: str, text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError:
        raise BadArguments(f"{option} {text} is no duration: write 90s, 10m or 1h") from None
