"""`holdfast worker app.py` as people start it: a directory with an application of the test's own, default settings
beside the database, and the log in a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from tests.crash.fleet import PATIENCE, wait_until

_numbers = count()


class Command(subprocess.Popen[bytes]):
    """A worker process, and what it wrote."""

    def __init__(self, home: Path, settings: Settings, *options: str, **environment: Any) -> None:
        self._path = home / f"worker-{next(_numbers)}.log"
        ours = {"url": settings.url, "schema": settings.schema, "synchronous": settings.synchronous, **environment}
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        with self._path.open("wb") as output:
            super().__init__(
                [sys.executable, "-m", "holdfast", "worker", "app.py", *options], cwd=home, stdin=subprocess.DEVNULL,
                env={**clean, **{f"HOLDFAST_{name.upper()}": str(value) for name, value in ours.items()}},
                stdout=output, stderr=output,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._path.read_text(errors="replace")

    def await_log(self, text: str, timeout: float = PATIENCE) -> None:
        def seen() -> bool:
            if self.poll() is not None and text not in self.log:
                pytest.fail(f"the worker ended with {self.returncode}:\n{self.log}")
            return text in self.log

        wait_until(seen, timeout, lambda: f"{text!r} in\n{self.log[-3000:]}")

    def await_end(self, timeout: float = PATIENCE) -> None:
        try:
            self.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the worker did not end within {timeout:g} s:\n{self.log[-3000:]}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> float:
        """Seconds from the signal to the end."""
        began = time.monotonic()
        self.send_signal(number)
        self.await_end()
        return time.monotonic() - began


class Commands:
    """Starts workers, and ends them with the test."""

    def __init__(self, home: Path, settings: Settings) -> None:
        self.home = home
        self.settings = settings
        self.store = open_store(settings)
        self.store.schema.migrate()
        self._started: list[Command] = []

    def app(self, text: str) -> None:
        (self.home / "app.py").write_text(text)

    def start(self, *options: str, **settings: Any) -> Command:
        worker = Command(self.home, self.settings, *options, **settings)
        self._started.append(worker)
        return worker

    def start_and_wait(self, *options: str, **settings: Any) -> Command:
        """Until it has registered: then it takes jobs."""
        worker = self.start(*options, **settings)

        def registered() -> bool:
            if worker.poll() is not None:
                pytest.fail(f"the worker ended with {worker.returncode}:\n{worker.log}")
            return worker.pid in {known.pid for known in self.store.workers.all()}

        wait_until(registered, what=lambda: f"the worker registers\n{worker.log}")
        return worker

    def close(self) -> None:
        for worker in self._started:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
        self.store.close()
