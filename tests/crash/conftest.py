from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.settings import Settings
from tests.crash.commands import Commands
from tests.crash.fleet import Fleet, a_fleet


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
