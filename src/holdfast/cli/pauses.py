"""`pause`, `resume` and `pauses`: the kill switch for jobs with certain arguments, and all that is paused."""

from __future__ import annotations

from typing import Any

import click
from msgspec.structs import replace

from holdfast.cli.base import cli, open_app, output_option, print_data, print_table, talk, url_option
from holdfast.cli.queues import held, moment, paused, pausing, told, user
from holdfast.model.job import COUNTED, Pause
from holdfast.model.pause_filter import meant, text
from holdfast.model.text import named, plural, quoted

HOW = {"queue": "queues resume {}", "task": "tasks resume {}", "cron": "cron resume {}", "filter": "resume {}"}


@cli.command()
@click.argument("filter", nargs=-1, required=True)
@pausing
def pause(filter: tuple[str, ...], reason: str | None, until: str | None, by: str | None, url: str | None) -> None:
    """Start no more jobs that a FILTER means, those that will come included: args.NAME:, task:, queue:.

    What runs goes on: `holdfast jobs cancel 'state:running …'` asks it to stop.

    \b
    Examples:
      holdfast pause args.customer:42 --reason 'their API is down' --until 2h
      holdfast pause task:sync args.customer:42
    """
    app = open_app(url)
    jobs = meant(" ".join(filter))
    where = text(jobs)
    app.pause(where=where, by=by or user(), reason=reason, until=None if until is None else moment(until))
    aside = [f", {held(pause)} set aside" for pause in app.pauses() if (pause.kind, pause.name) == ("filter", where)]
    talk(f"{where} is paused{''.join(aside)}: holdfast resume {named(where)} lets it go")
    if running := len(app.store.jobs(replace(jobs, states=("running",)), limit=COUNTED)):
        ask = f"holdfast jobs cancel {quoted('state:running ' + where)}"
        talk(f"{running:,} {plural('job', running)} of it run{'s' * (running == 1)} and will end; to stop: {ask}")


@cli.command()
@click.argument("filter", nargs=-1, required=True)
@url_option
def resume(filter: tuple[str, ...], url: str | None) -> None:
    """End the pause of what a FILTER means; its jobs go on in their old order.

    \b
    Examples:
      holdfast resume args.customer:42
      holdfast resume task:sync args.customer:42
    """
    app = open_app(url)
    where = text(meant(" ".join(filter)))
    if app.resume(where=where):
        talk(f"{where} goes on")
        return
    there = [pause.name for pause in app.pauses() if pause.kind == "filter"]
    talk(f"{where} was not paused" + (f"; these are: {'; '.join(there)}" if there else ""))


@cli.command()
@output_option
@url_option
def pauses(output: str, url: str | None) -> None:
    """All that is paused: queues, tasks, crons, and jobs by their arguments; by whom, why and until when.

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
        ("paused", "", "jobs set aside", "by whom, why, until when", "to end it"),
        [
            (
                pause.kind, pause.name, "" if pause.jobs is None else held(pause).split()[0], told(paused(pause)),
                "holdfast " + HOW[pause.kind].format(named(pause.name)),
            )
            for pause in found
        ],
    )  # fmt: skip


def _data(pause: Pause) -> dict[str, Any]:
    jobs = {"jobs": pause.jobs and min(pause.jobs, COUNTED), "capped": (pause.jobs or 0) > COUNTED}
    return {"kind": pause.kind, "name": pause.name, **(paused(pause) or {}), **jobs}
