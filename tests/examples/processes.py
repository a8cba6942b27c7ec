"""Applications of `examples/` on databases of their own, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from tests.servers import in_database, new_schema, shared_postgres
from tests.waiting import PATIENCE, wait_until

REPOSITORY = Path(__file__).parents[2]
STARTING = 60.0  # seconds until a process is up, beside others that start: only a failing test waits that long
_numbers = count()


@contextmanager
def fresh_database(engine: str, folder: Path) -> Iterator[str]:
    """The URL of one that is empty."""
    if engine == "sqlite":
        yield f"sqlite:///{folder}/application.db"
        return
    name = new_schema()
    with psycopg.connect(shared_postgres(), autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        yield in_database(shared_postgres(), name)
        connection.execute(f"drop database {name} with (force)".encode())


class Process(subprocess.Popen[bytes]):
    """`python -m examples.… COMMAND`, and what it wrote."""

    def __init__(self, module: str, home: Path, *command: str, **environment: str) -> None:
        self._log = home / f"{command[0]}-{next(_numbers)}.log"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with self._log.open("wb") as output:
            super().__init__(
                [sys.executable, "-m", module, *command], cwd=REPOSITORY, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, env={**clean, **environment},
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def said(self, prefix: str) -> str:
        """The first line that begins so."""

        def found() -> str | None:
            assert self.poll() is None, self.log
            return next((line for line in self.log.splitlines() if line.startswith(prefix)), None)

        return str(wait_until(found, f"{prefix!r} in {self._log.name}", timeout=STARTING))


Start = Callable[..., Process]


@contextmanager
def starting(module: str, home: Path, url: str, given: Mapping[str, str]) -> Iterator[Start]:
    """Starts processes of an application; they end with the block."""
    started: list[Process] = []

    def start(*command: str, **environment: str) -> Process:
        common = {"HOLDFAST_URL": url, "HOLDFAST_SYNCHRONOUS": "off", "HOLDFAST_GRACE": "2"}
        started.append(Process(module, home, *command, **{**common, **given, **environment}))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for process in started:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"it did not stop:\n{process.log}") from None
