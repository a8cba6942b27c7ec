"""`jobs retry|cancel|pause|resume|delete|set`: change one job by its id, or all that match a filter. `jobs replay`: a
new job like one of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
from msgspec.structs import replace

from holdfast.cli.base import (
    DURATION,
    database_option,
    find_app,
    open_app,
    output_option,
    print_data,
    say,
    talk,
    url_option,
    who_options,
)
from holdfast.cli.enqueue import read
from holdfast.cli.job_selection import apply, selected
from holdfast.cli.jobs import jobs
from holdfast.cli.pauses import hint_if_unknown
from holdfast.cli.queues import known_names
from holdfast.durations import parse_duration
from holdfast.errors import BadArguments
from holdfast.model.filter import Filter, text
from holdfast.model.text import named
from holdfast.operations import share
from holdfast.tasks.options import MOST, changes, queue_of

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


limit_option = click.option("--limit", type=click.IntRange(1, MOST), help="Only so many, the oldest.")
group_option = click.option("--group", metavar="ID", help="Only failed jobs of this group of errors.")


def _of_group(which: tuple[str, ...], group: str | None) -> tuple[str, ...]:
    """The words of a filter, narrowed to a group of errors."""
    if group is None:
        return which
    return (*which, f"group:{group}", *["state:failed"] * (not any(word.startswith("state:") for word in which)))


@jobs.command()
@click.argument("which", nargs=-1)
@group_option
@limit_option
@click.option("--spread", type=DURATION, help="Due evenly over this time (10m), instead of all at once.")
@click.option("--queue", metavar="NAME", help="Into this queue, instead of the one it was in.")
@verb_options
def retry(
    which: tuple[str, ...],
    group: str | None,
    limit: int | None,
    spread: float | None,
    queue: str | None,
    **options: Any,
) -> None:
    """Run failed or cancelled jobs again, attempts counted from 0: by ID…, or all that match a FILTER.

    \b
    Examples:
      holdfast jobs retry state:failed queue:mail since:1h --yes
      holdfast jobs retry --group 3f2a9c11ab --limit 10 --spread 10m --dry-run
    """
    some = share("retry", limit, spread)
    parameters = {}
    if queue is not None:
        parameters["queue"] = queue_of("--queue", queue)
        hint_if_unknown("queue", queue, known_names("queue", open_app(options["url"])))
    apply("retry", _of_group(which, group), some=some, parameters=parameters, **options)


@jobs.command()
@click.argument("which", nargs=-1)
@group_option
@limit_option
@verb_options
def cancel(which: tuple[str, ...], group: str | None, limit: int | None, **options: Any) -> None:
    """Cancel unfinished and failed jobs, and ask running ones to stop: by ID…, or all that match a FILTER.

    \b
    Examples:
      holdfast jobs cancel 43 --reason 'ordered twice'
      holdfast jobs cancel task:report state:queued --dry-run
    """
    apply("cancel", _of_group(which, group), some=share("cancel", limit), **options)


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


@jobs.command()
@click.argument("id")
@click.argument("arguments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--app", help="The application: module:name or file.py. Default: the setting `app`.")
@click.option("--json", "document", metavar="OBJECT", help="Arguments as a JSON object.")
@output_option
@url_option
@who_options
def replay(
    id: str, arguments: tuple[str, ...], app: str | None, document: str | None, output: str, url: str | None,
    **who: str | None,
) -> None:  # fmt: skip
    """Enqueue a new job like the job ID, with some of its arguments changed, and print the new job's id.

    \b
    Examples:
      holdfast jobs replay 47
      holdfast jobs replay 47 url=https://example.org --reason 'a typo'
    """
    application = find_app(app, url=url)
    edited = read(application.find_task(application.job(id).task), arguments, document)
    made = application.replay(id, edited, **who)
    if output == "table":
        say(made.id)
    else:
        print_data([{"id": made.id}], output, one=True)


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
