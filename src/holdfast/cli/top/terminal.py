"""A terminal for a live view: one wait for keys (without Enter), resizes and signals. The terminal is restored when the
view ends, however it ends."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from contextlib import suppress
from types import TracebackType
from typing import Any

SUSPEND = "suspend"
QUIT = "q"
_ARROWS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)  # what arrow and function keys send


class Terminal:
    """While entered, it reads keys one by one and does not echo them."""

    def __init__(self) -> None:
        self._in = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
        self._wakes, self._wake = os.pipe()
        for end in (self._wakes, self._wake):
            os.set_blocking(end, False)
        self._suspend = False
        self._pressed = ""  # keys read but not returned yet

    def __enter__(self) -> Terminal:
        import termios
        import tty

        self._suspend = False
        self._before: Any = None
        if self._in is not None:
            self._before = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)
        # Any signal writes a byte to the pipe, which ends the wait.
        self._old_wake = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._old = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, lambda *_: None),
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._to_suspend),
            signal.SIGTERM: signal.signal(signal.SIGTERM, _end),
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import termios

        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_wake)
        if self._in is not None:
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _to_suspend(self, *_: object) -> None:
        self._suspend = True

    def wake(self) -> None:
        """End the wait. May be called from any thread."""
        with suppress(BlockingIOError):  # the pipe is full: the wait ends anyway
            os.write(self._wake, b"\0")

    def wait(self, seconds: float) -> str:
        """Returns a key, or SUSPEND, or nothing after so many seconds or when woken."""
        if not self._pressed:
            self._read(seconds)
        if self._suspend:
            return SUSPEND
        key, self._pressed = self._pressed[:1], self._pressed[1:]
        return key

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._wakes] if self._in is None else [self._in, self._wakes], [], [], seconds)
        if self._wakes in ready:
            os.read(self._wakes, 4096)
        if self._in is not None and self._in in ready:
            pressed = os.read(self._in, 1024).decode(errors="replace")
            self._pressed = _ARROWS.sub("", pressed) if pressed else QUIT  # end of file: the terminal is gone


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
