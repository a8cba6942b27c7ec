"""A command in a terminal of its own: keys to press, a size to change, and the screen as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pyte

from tests.cli.shell import Shell, wait_until


class Tty:
    def __init__(
        self, shell: Shell, arguments: tuple[str, ...], columns: int, lines: int, environment: Mapping[str, str]
    ) -> None:
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.raw = b""
        self._ours, self._theirs = pty.openpty()
        self._set_size(columns, lines)
        self.before = termios.tcgetattr(self._theirs)
        kept = {
            name: value for name, value in shell.environment.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments], cwd=shell.directory, stdin=self._theirs,
            stdout=self._theirs, stderr=self._theirs, env={**kept, "TERM": "xterm-256color", **environment},
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # closed
                return
            with self._lock:
                self.raw += data
                self._stream.feed(data)

    @property
    def lines(self) -> list[str]:
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def resize(self, columns: int, lines: int) -> None:
        with self._lock:
            self._screen.resize(lines, columns)
            self._screen.reset()
        self._set_size(columns, lines)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def shows(self, *texts: str) -> str:
        """Wait until all of these are on the screen."""
        with suppress(AssertionError):
            wait_until(lambda: all(text in self.text for text in texts))
        assert all(text in self.text for text in texts), self.text
        return self.text

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        os.close(self._theirs)
        os.close(self._ours)


@contextmanager
def terminal(
    shell: Shell, *arguments: str, columns: int = 120, lines: int = 40, environment: Mapping[str, str] | None = None
) -> Iterator[Tty]:
    tty = Tty(shell, arguments, columns, lines, environment or {})
    try:
        yield tty
    finally:
        tty.close()
