"""The live screen of `top`: looks on one thread, keys and drawing on another."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from rich.console import Console, Group
from rich.live import Live as Screen

from holdfast.cli.top.document import Document, wait_after
from holdfast.cli.top.screen import SORTS, View, draw
from holdfast.cli.top.terminal import QUIT, SUSPEND, Terminal
from holdfast.errors import StoreError

KEYS = "q quit   s sort: {sort}   space {freeze}   r refresh"


class Live:
    """Looks at the database on a thread of its own, so that keys work while the database is away. Draws the newest
    document whenever something changes: the document, the view, the size of the terminal."""

    def __init__(self, look: Callable[[], Document], every: float, console: Console) -> None:
        self._look = look
        self._every = every
        self._console = console
        self._terminal = Terminal()
        self._view = View()
        self._frozen = False
        self._again = threading.Event()
        self._seen: Document | None = None
        self._trouble: tuple[float, str] | None = None  # since when, and what
        self._broken: BaseException | None = None

    def run(self) -> None:
        threading.Thread(target=self._look_again_and_again, name="holdfast-top", daemon=True).start()
        while self._show_until_left():
            os.kill(os.getpid(), signal.SIGSTOP)  # Ctrl-Z: the terminal is restored; this returns on SIGCONT

    def _look_again_and_again(self) -> None:
        while True:
            wait = self._every
            if not self._frozen:
                try:
                    self._seen = self._look()
                    self._trouble = None
                    wait = wait_after(self._seen, self._every)
                except StoreError as error:
                    self._trouble = (self._trouble or (time.monotonic(), ""))[0], str(error)
                except BaseException as error:  # noqa: BLE001 - the main thread raises it
                    self._broken = error
                    self._terminal.wake()
                    return
            self._terminal.wake()
            self._again.wait(wait)
            self._again.clear()

    def _show_until_left(self) -> bool:
        """Returns True if the user suspended it, False to quit."""
        with self._terminal, Screen(console=self._console, screen=True, auto_refresh=False) as screen:
            while True:
                screen.update(self._draw(), refresh=True)
                key = self._terminal.wait(1.0)
                if self._broken is not None:
                    raise self._broken
                if key in (QUIT, "Q"):
                    return False
                if key == SUSPEND:
                    return True
                self._press(key)

    def _press(self, key: str) -> None:
        if key == "s":
            self._view.sort = SORTS[(SORTS.index(self._view.sort) + 1) % len(SORTS)]
        elif key in (" ", "p"):
            self._frozen = not self._frozen
        if key == "r" or (key in (" ", "p") and not self._frozen):
            self._frozen = False
            self._again.set()

    def _draw(self) -> Group:
        view, seen, trouble = self._view, self._seen, self._trouble
        view.keys = KEYS.format(sort=view.sort, freeze="unfreeze" if self._frozen else "freeze")
        view.status = "frozen" if self._frozen else self._pace_text(seen)
        view.trouble = "" if trouble is None else f"away for {time.monotonic() - trouble[0]:.0f} s: {trouble[1]}"
        if seen is None and trouble is None:
            view.status = "reading …"
        width, height = self._console.size
        return draw(seen, view, width, height)

    def _pace_text(self, seen: Document | None) -> str:
        if seen is None:
            return ""
        wait = wait_after(seen, self._every)
        slow = "" if wait == self._every else f", the database takes {1000 * seen['took_seconds']:.0f} ms to answer"
        return f"every {wait:.2g} s{slow}"
