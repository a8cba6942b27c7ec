from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.settings import Settings
from tests.cli.shell import Shell
from tests.crash.commands import Commands
from tests.crash.fleet import Fleet, a_fleet

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def fleet(settings: Settings, tmp_path: Path) -> Iterator[Fleet]:
    """Workers with default leases."""
    with a_fleet(settings, tmp_path) as fleet:
        yield fleet


@pytest.fixture
def hasty_fleet(settings: Settings, tmp_path: Path) -> Iterator[Fleet]:
    """Workers with short leases."""
    with a_fleet(replace(settings, lease=2.0, heartbeat=0.5), tmp_path) as fleet:
        yield fleet


@pytest.fixture
def commands(settings: Settings, tmp_path: Path) -> Iterator[Commands]:
    """`holdfast worker app.py`, with an application of the test's own."""
    commands = Commands(tmp_path, settings)
    yield commands
    commands.close()


@pytest.fixture
def worker(shell: Shell) -> Iterator[Start]:
    """Starts `holdfast worker app.py` with these options, of the application that the test's shell has."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        started.append(shell.start("worker", "app.py", *options))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()
