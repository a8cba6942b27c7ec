"""`workers`: the workers of this database, and asking them to stop."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from holdfast.cli.base import (
    ago,
    cli,
    database_option,
    open_app,
    output_option,
    print_data,
    print_table,
    say,
    talk,
    who_options,
)
from holdfast.errors import BadSettings
from holdfast.model.text import plural


@cli.group(invoke_without_command=True)
@output_option
@database_option
@click.pass_context
def workers(context: click.Context, output: str, url: str | None) -> None:
    """List the workers of this database: what they serve, how busy they are, whether they are up.

    \b
    Examples:
      holdfast workers -o json
      holdfast workers stop --all
    """
    if context.invoked_subcommand is not None:
        context.obj = url  # given before the subcommand
        return
    found = open_app(url).workers()
    rows = [worker.as_dict() | {"tasks": sorted(worker.tasks)} for worker in found]
    if output != "table":
        print_data(rows, output)
        return
    print_table(
        ("worker", "state", "host", "pid", "running", "slots", "queues", "tasks", "started", "seen"),
        [
            (
                row["id"], state(row), row["host"], row["pid"], busy(row["running"], row["slots"]), row["slots"],
                ", ".join(row["queues"] or ["all"]), ", ".join(row["tasks"]),
                ago(datetime.fromisoformat(row["started_at"])), ago(datetime.fromisoformat(row["seen_at"])),
            )
            for row in rows
        ],
    )  # fmt: skip


def state(row: dict[str, Any]) -> str:
    return "up, unhealthy" if row["state"] == "up" and not row["healthy"] else str(row["state"])


def busy(running: int, slots: int) -> str:
    """How many jobs a worker runs. What it has beyond its slots it has claimed ahead."""
    return str(running) if running <= slots else f"{slots} + {running - slots} claimed ahead"


@workers.command()
@click.argument("names", nargs=-1, metavar="[WORKER]...")
@click.option("--all", "everyone", is_flag=True, help="All workers of this database.")
@who_options
@database_option
@click.pass_context
def stop(
    context: click.Context, /, names: tuple[str, ...], everyone: bool, url: str | None, **who: str | None
) -> None:  # fmt: skip
    """Ask a WORKER, by its id or its name, to stop in good order, wherever it runs.

    It claims no more jobs, lets running ones finish within its grace, and gives back the rest: as after SIGTERM.

    \b
    Examples:
      holdfast workers stop web1-812 web1-813
      holdfast workers stop --all
    """
    if bool(names) == everyone:
        raise BadSettings("name the workers to stop, or say --all (holdfast workers lists them)")
    app = open_app(url or context.obj)
    known = {worker.id: worker for worker in app.workers()}
    ids = [id for name in (known if everyone else names) for id in app.stop_worker(name, **who)]
    for id in ids:
        worker = known.get(id)
        if worker is not None and worker.state in ("silent", "frozen"):
            talk(f"{id} is {worker.state}, last seen {ago(worker.seen_at)}: it will stop if it comes back")
        else:
            say(id)
    talk(f"asked {len(ids)} {plural('worker', len(ids))} to stop")
