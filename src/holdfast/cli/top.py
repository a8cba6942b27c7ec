"""`top`: what goes on, live."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from holdfast.app import Holdfast
from holdfast.cli.base import cli, open_app, output_option, queues_option, split, talk, to_json, url_option
from holdfast.errors import StoreError

if TYPE_CHECKING:
    from rich.console import Console, Group

    from holdfast.cli.frame import Document

AT_MOST = 0.1  # of the time the database is kept busy: where a look takes long, the next one comes later
KEYS = "q quit   s sort: {sort}   space {hold}   r look now"


@cli.command()
@click.option("--every", type=click.FloatRange(0.2), default=2.0, show_default=True, help="Seconds between two looks.")
@click.option("--once", is_flag=True, help="Look once, print it, and end. So it is, too, where there is no terminal.")
@queues_option
@output_option
@url_option
def top(every: float, once: bool, queues: str | None, output: str, url: str | None) -> None:
    """Watch what goes on: queues, workers, running jobs with their progress, recent failures, pauses.

    Keys: q quits, s sorts otherwise, space holds the picture, r looks now. -o jsonl prints a document every time,
    -o json one.

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
    """One look at everything, and how long it took."""

    def __init__(self, app: Holdfast, queues: list[str] | None) -> None:
        from holdfast.cli.frame import Pace

        self._app = app
        self._queues = queues
        self._pace = Pace()

    def __call__(self) -> Document:
        from holdfast.cli.frame import document
        from holdfast.store.overview import overview

        began = time.monotonic()
        seen = overview(self._app.store, self._queues)
        took = time.monotonic() - began
        return document(seen, self._pace, self._app.settings.shown_url) | {"took_seconds": round(took, 4)}


def print_documents(look: Look, every: float | None) -> None:
    """A document a line. While the database is away that is said once, and none is printed."""
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
            away, wait = False, pause_after(found, every)
        time.sleep(wait)


def pause_after(found: Document, every: float) -> float:
    return max(every, float(found["took_seconds"]) * (1 / AT_MOST - 1))


def show(look: Look, every: float, *, once: bool) -> None:
    from rich.console import Console

    from holdfast.cli.screen import View, draw

    if hasattr(sys.stdout, "reconfigure") and (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8"):
        sys.stdout.reconfigure(errors="replace")  # bars and dots, where the terminal has no such letters
    console = Console(highlight=False)
    if once or not console.is_terminal or console.is_dumb_terminal:
        on_screen = console.is_terminal
        wide = console if on_screen else Console(highlight=False, width=10_000)
        wide.print(draw(look(), View(bars=on_screen), wide.width))
        return
    Live(look, every, console).run()


class Live:
    """Looks every so often on a thread of its own, so that a database that is away stops no key; draws what it saw last
    whenever something changes: a look, a key, the size of the terminal."""

    def __init__(self, look: Callable[[], Document], every: float, console: Console) -> None:
        from holdfast.cli.screen import View
        from holdfast.cli.terminal import Terminal

        self._look = look
        self._every = every
        self._console = console
        self._terminal = Terminal()
        self._view = View()
        self._held = False
        self._again = threading.Event()
        self._seen: Document | None = None
        self._trouble: tuple[float, str] | None = None  # since when, and what
        self._broken: BaseException | None = None

    def run(self) -> None:
        threading.Thread(target=self._looking, name="holdfast-top", daemon=True).start()
        while self._shown():
            os.kill(os.getpid(), signal.SIGSTOP)  # Ctrl-Z: the terminal is as it was; go on when we are continued

    def _looking(self) -> None:
        while True:
            wait = self._every
            if not self._held:
                try:
                    self._seen = self._look()
                    self._trouble = None
                    wait = pause_after(self._seen, self._every)
                except StoreError as error:
                    self._trouble = (self._trouble or (time.monotonic(), ""))[0], str(error)
                except BaseException as error:  # noqa: BLE001 - told by the main thread
                    self._broken = error
                    self._terminal.wake()
                    return
            self._terminal.wake()
            self._again.wait(wait)
            self._again.clear()

    def _shown(self) -> bool:
        """Until it is quit. True: it is to be suspended only."""
        from rich.live import Live as Screen

        from holdfast.cli.terminal import QUIT, SUSPEND

        with self._terminal, Screen(console=self._console, screen=True, auto_refresh=False) as screen:
            while True:
                screen.update(self._drawn(), refresh=True)
                key = self._terminal.wait(1.0)
                if self._broken is not None:
                    raise self._broken
                if key in (QUIT, "Q"):
                    return False
                if key == SUSPEND:
                    return True
                self._press(key)

    def _press(self, key: str) -> None:
        from holdfast.cli.screen import SORTS

        if key == "s":
            self._view.sort = SORTS[(SORTS.index(self._view.sort) + 1) % len(SORTS)]
        elif key in (" ", "p"):
            self._held = not self._held
        if key == "r" or (key in (" ", "p") and not self._held):
            self._held = False
            self._again.set()

    def _drawn(self) -> Group:
        from holdfast.cli.screen import draw

        view, seen, trouble = self._view, self._seen, self._trouble
        view.keys = KEYS.format(sort=view.sort, hold="go on" if self._held else "hold")
        view.said = "held" if self._held else self._told(seen)
        view.trouble = "" if trouble is None else f"away for {time.monotonic() - trouble[0]:.0f} s: {trouble[1]}"
        if seen is None and trouble is None:
            view.said = "looking …"
        width, height = self._console.size
        return draw(seen, view, width, height)

    def _told(self, seen: Document | None) -> str:
        if seen is None:
            return ""
        wait = pause_after(seen, self._every)
        slow = "" if wait == self._every else f", the database takes {1000 * seen['took_seconds']:.0f} ms to answer"
        return f"every {wait:.2g} s{slow}"
