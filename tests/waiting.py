"""Await a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 20.0  # seconds; only a failing test waits that long


def wait_until(condition: Callable[[], T], what: str = "", *, timeout: float = PATIENCE) -> T:
    """Returns the first truthy answer of `condition`."""
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        if waited > timeout:
            raise AssertionError(f"waited {timeout:g} s in vain{': ' * bool(what)}{what}")
        time.sleep(pause(waited))
    return answer


def pause(waited: float) -> float:
    """Until the next look. What takes long is looked at less often: many conditions read a database, which has better
    things to do beside other tests."""
    return min(max(waited / 10, 0.005), 0.05)
