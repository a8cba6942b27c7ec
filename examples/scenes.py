"""What the scenes of the examples share: real processes on a stage, and what was not as it should be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

PATIENCE = 120.0  # seconds for one act

console = Console(highlight=False)


def say(text: str) -> None:
    console.print(text, soft_wrap=True)


class Stage:
    def __init__(self, module: str, home: Path) -> None:
        self._module = module
        self._home = home
        self._wrong: list[str] = []

    @contextmanager
    def running(self, *command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
        """`python -m MODULE COMMAND`, until the end of the block."""
        with (
            (self._home / f"{command[0]}.log").open("ab") as log,
            subprocess.Popen(  # noqa: S603 - our own
                [sys.executable, "-m", self._module, *command], env={**os.environ, **environment},
                stdout=subprocess.PIPE, stderr=log,
            ) as process,
        ):  # fmt: skip
            try:
                yield process
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                except subprocess.TimeoutExpired:
                    process.kill()
                    raise

    def address(self, server: subprocess.Popen[bytes]) -> str:
        """Where this server listens: the first line that it prints."""
        assert server.stdout is not None
        if not (line := server.stdout.readline().decode().strip()):
            raise RuntimeError(f"the web server ended with status {server.wait(PATIENCE)}\n{self._logs()}")
        return line

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE:g} s for {what}\n{self._logs()}")
            time.sleep(0.05)
        return found

    def _logs(self) -> str:
        """The end of what the processes logged: it says why, where we only see that."""
        return "\n".join(path.read_text()[-2000:] for path in self._home.glob("*.log"))

    def expect(self, true: bool, otherwise: str) -> None:
        if not true:
            self._wrong.append(otherwise)

    def verdict(self) -> int:
        """0, if all went as it should; says what did not."""
        for line in self._wrong:
            say(f"[red]Not as it should be:[/] {line}")
        return 1 if self._wrong else 0
