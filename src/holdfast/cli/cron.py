"""`cron`: look at crons, pause them, run one now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from holdfast.cli.base import ago, cli, open_app, output_option, print_data, print_table, say, url_option, who_options
from holdfast.cli.pauses import add_pause_commands
from holdfast.errors import BadSettings
from holdfast.model.cron import CronRecord


@cli.group()
def cron() -> None:
    """Look at crons, pause them, run one now.

    \b
    Examples:
      holdfast cron list
      holdfast cron run nightly_report
    """


@cron.command("list")
@click.option(
    "--next", "count", type=click.IntRange(1, 100), default=1, show_default=True, help="How many coming ticks to show."
)
@output_option
@url_option
def list_crons(count: int, output: str, url: str | None) -> None:
    """List crons with their next and their last tick, each in the cron's own time zone.

    \b
    Examples:
      holdfast cron list --next 5
      holdfast cron list -o json
    """
    found = open_app(url).crons()
    if output != "table":
        print_data([cron_data(one, count) for one in found], output)
        return
    print_table(
        ("cron", "expression", "zone", "next", "last", "state"),
        [
            (
                one.name, one.expression, one.timezone,
                [f"{local(tick, one)} ({ago(tick)})" for tick in coming(one, count)],
                "never" if one.last_at is None else f"{local(one.last_at, one)} ({ago(one.last_at)})", shown_state(one),
            )
            for one in found
        ],
    )  # fmt: skip


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
@url_option
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
        words.append("no worker declares it")
    if not readable(one):
        words.append(f"the time zone {one.timezone} is unknown here")
    return "; ".join(words) or "active"


def cron_data(one: CronRecord, count: int) -> dict[str, Any]:
    return {
        "name": one.name,
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
