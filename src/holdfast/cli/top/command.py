"""The command `top`: a live screen on a terminal, else one look or a stream of JSON documents."""

from __future__ import annotations

import sys
import time

import click

from holdfast.app import Holdfast
from holdfast.cli.base import (
    DurationType,
    cli,
    database_option,
    open_app,
    output_option,
    queues_option,
    split,
    talk,
    to_json,
)
from holdfast.cli.top.document import Document, JobRates, document, wait_after
from holdfast.errors import StoreError
from holdfast.store.overview import overview


@cli.command()
@click.option("--every", type=DurationType(0.2), default=2.0, show_default="2s", help="Time between two looks.")
@click.option("--once", is_flag=True, help="Look once, print it, and end. The default where there is no terminal.")
@queues_option
@output_option
@database_option
def top(every: float, once: bool, queues: str | None, output: str, url: str | None) -> None:
    """Watch queues, workers, running jobs with their progress, recent failures and pauses.

    Keys: q quits, s changes the order, space freezes the screen, r refreshes it. -o jsonl prints a document at every
    look, -o json only one.

    \b
    Examples:
      holdfast top --queues mail,default --every 5
      holdfast top --once
    """
    look = Look(open_app(url), split(queues))
    if output == "json":
        click.echo(to_json(look()))
    elif output == "jsonl":
        print_documents(look, None if once else every)
    else:
        show(look, every, once=once)


class Look:
    """Reads the database once when called, and notes how long that took."""

    def __init__(self, app: Holdfast, queues: list[str] | None) -> None:
        self._app = app
        self._queues = queues
        self._rates = JobRates()

    def __call__(self) -> Document:
        began = time.monotonic()
        seen = overview(self._app.store, self._queues)
        took = time.monotonic() - began
        return document(seen, self._rates, self._app.settings.shown_url) | {"took_seconds": round(took, 4)}


def print_documents(look: Look, every: float | None) -> None:
    """Print a document a line. While the database is away, say so once and print none."""
    away = False
    while True:
        try:
            found = look()
        except StoreError as error:
            if every is None:
                raise
            if not away:
                talk(f"{error}; trying again")
            away, wait = True, every
        else:
            click.echo(to_json(found))
            if every is None:
                return
            away, wait = False, wait_after(found, every)
        time.sleep(wait)


def show(look: Look, every: float, *, once: bool) -> None:
    from rich.console import Console

    from holdfast.cli.top.live import Live
    from holdfast.cli.top.screen import View, draw

    if hasattr(sys.stdout, "reconfigure") and (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="replace")  # the terminal may not have the characters of bars and dots
    console = Console(highlight=False)
    if once or not console.is_terminal or console.is_dumb_terminal:
        on_screen = console.is_terminal
        wide = console if on_screen else Console(highlight=False, width=10_000)
        wide.print(draw(look(), View(bars=on_screen), wide.width))
        return
    Live(look, every, console).run()
