"""`cron`: look at crons, make and remove schedules, pause them, run one now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.base import (
    ago,
    cli,
    database_option,
    find_app,
    open_app,
    output_option,
    print_data,
    print_table,
    say,
    url_option,
    who_options,
)  # fmt: skip
from holdfast.cli.enqueue import read
from holdfast.cli.pauses import add_pause_commands
from holdfast.errors import BadSettings, UnknownTask
from holdfast.model.cron import CATCH_UP, CronRecord
from holdfast.model.record import shown


@cli.group()
def cron() -> None:
    """Look at crons, make and remove schedules, pause them, run one now.

    \b
    Examples:
      holdfast cron list
      holdfast cron add audit-example audit url=https://example.org --cron '0 3 * * *'
    """


@cron.command("list")
@click.option(
    "--next", "count", type=click.IntRange(1, 100), default=1, show_default=True, help="How many coming ticks to show."
)
@output_option
@database_option
def list_crons(count: int, output: str, url: str | None) -> None:
    """List crons with their next and their last tick, each in the cron's own time zone.

    \b
    Examples:
      holdfast cron list --next 5
      holdfast cron list -o json
    """
    app = open_app(url)
    found = app.crons()
    if output != "table":
        print_data([cron_data(app, one, count) for one in found], output)
        return
    print_table(
        ("cron", "task", "expression", "zone", "next", "last", "state"),
        [
            (
                one.name, one.task, one.expression, one.timezone,
                [f"{local(tick, one)} ({ago(tick)})" for tick in coming(one, count)],
                "never" if one.last_at is None else f"{local(one.last_at, one)} ({ago(one.last_at)})", shown_state(one),
            )
            for one in found
        ],
    )  # fmt: skip


@cron.command("add")
@click.argument("name")
@click.argument("task")
@click.argument("arguments", metavar="[KEY=VALUE]...", nargs=-1)
@click.option("--cron", "expression", required=True, help="When: '*/5 * * * *' or '30 6 * * MON-FRI'.")
@click.option("--timezone", default="UTC", show_default=True, help="The time zone of the expression.")
@click.option(
    "--catch-up", type=click.Choice(CATCH_UP), default="latest", show_default=True, help="Which missed ticks to run."
)
@click.option("--app", help="The application: module:name or file.py. Default: the setting `app`.")
@click.option("--json", "document", metavar="OBJECT", help="Arguments as a JSON object.")
@click.option("--queue", help="Another queue than the task's.")
@click.option("--priority", type=int, help="-100 to 100, larger is sooner.")
@output_option
@url_option
@who_options
def add_cron(
    name: str, task: str, arguments: tuple[str, ...], expression: str, timezone: str, catch_up: Any, app: str | None,
    document: str | None, queue: str | None, priority: int | None, output: str, url: str | None, **who: str | None,
) -> None:  # fmt: skip
    """Make the schedule NAME, or change it: at every tick a job of TASK is enqueued, with these arguments.

    \b
    Examples:
      holdfast cron add audit-example audit url=https://example.org --cron '0 3 * * *'
      holdfast cron add report-7 report user_id=7 --cron '30 6 * * MON' --timezone Europe/Berlin
    """
    application = find_app(app, url=url)
    found = application.find_task(task)
    options: dict[str, Any] = {"queue": queue, "priority": priority}
    given = {option: value for option, value in options.items() if value is not None}
    bound = found.using(**given).bind(**read(found, arguments, document))
    made = application.schedule(name, bound, cron=expression, timezone=timezone, catch_up=catch_up, **who)
    if output == "table":
        say(f"{made.name}: next at {local(made.next_at, made)} {made.timezone}")
    else:
        print_data([cron_data(application, made, 1)], output, one=True)


@cron.command("remove")
@click.argument("name")
@who_options
@database_option
def remove_cron(name: str, url: str | None, **who: str | None) -> None:
    """Remove the schedule NAME. Jobs that it has enqueued stay. A cron in the code is removed there.

    \b
    Examples:
      holdfast cron remove audit-example
      holdfast cron remove report-7
    """
    app = open_app(url)
    if not app.unschedule(name, **who):
        declared = any(one.name == name for one in app.crons())
        raise UnknownTask(
            f"the cron {name!r} is declared by its task: remove it from the code, or pause it"
            if declared
            else f"there is no schedule {name!r} in {app.settings.shown_url}: holdfast cron list shows all"
        )
    say(f"{name}: removed")


add_pause_commands(
    cron,
    "cron",
    """Skip the ticks of a CRON until it is resumed. They are not made up for.

    \b
    Examples:
      holdfast cron pause nightly_report --reason "the provider is down"
      holdfast cron pause nightly_report --until 2h
    """,
    """End the pause of a CRON: it continues with its next tick.

    \b
    Examples:
      holdfast cron resume nightly_report
      holdfast cron resume weekly_digest
    """,
)


@cron.command("run")
@click.argument("name")
@output_option
@database_option
@who_options
def run_cron(name: str, output: str, url: str | None, reason: str | None, by: str | None) -> None:
    """Enqueue a job of a cron now, whatever its schedule, and print the job's id.

    \b
    Examples:
      holdfast cron run nightly_report
      holdfast cron run nightly_report -o json
    """
    job = open_app(url).run_cron(name, reason=reason, by=by)
    if output == "table":
        say(job.id)
    else:
        print_data([{"id": job.id}], output, one=True)


def local(tick: datetime, one: CronRecord) -> str:
    return tick.astimezone(one.schedule.zone if readable(one) else UTC).strftime("%Y-%m-%d %H:%M:%S")


def coming(one: CronRecord, count: int) -> list[datetime]:
    return one.upcoming(count) if readable(one) else [one.next_at]


def readable(one: CronRecord) -> bool:
    """Can its schedule be read? Another host may have declared it in a time zone that is unknown here."""
    try:
        return bool(one.schedule)
    except BadSettings:
        return False


def shown_state(one: CronRecord) -> str:
    words = []
    if one.paused:
        by = f" by {one.paused_by}" if one.paused_by else ""
        since = f" since {one.paused_at:%Y-%m-%d %H:%M} UTC" if one.paused_at else ""
        until = f" until {one.paused_until:%Y-%m-%d %H:%M} UTC" if one.paused_until else ""
        words.append(f"paused{by}{since}{until}" + (f": {one.paused_reason}" if one.paused_reason else ""))
    if not one.workers:
        words.append("no worker declares it" if one.declared else "no worker has its task")
    if not readable(one):
        words.append(f"the time zone {one.timezone} is unknown here")
    return "; ".join(words) or "active"


def cron_data(app: Holdfast, one: CronRecord, count: int) -> dict[str, Any]:
    return {
        "name": one.name,
        "task": one.task,
        "declared": one.declared,
        "args": None if one.stored_args is None else shown(one.stored_args, app._secrets(one.task)),
        "expression": one.expression,
        "timezone": one.timezone,
        "catch_up": one.catch_up,
        "queue": one.queue,
        "priority": one.priority,
        "max_attempts": one.max_attempts,
        "tags": list(one.tags),
        "next": [tick.isoformat() for tick in coming(one, count)],
        "last_at": one.last_at and one.last_at.isoformat(),
        "paused": one.paused,
        "paused_by": one.paused_by if one.paused else None,
        "paused_reason": one.paused_reason if one.paused else None,
        "paused_at": one.paused_at.isoformat() if one.paused and one.paused_at else None,
        "paused_until": one.paused_until.isoformat() if one.paused and one.paused_until else None,
        "workers": one.workers,
    }
