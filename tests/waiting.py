"""Await a condition instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 20.0  # seconds; only a failing test waits that long


def wait_until(condition: Callable[[], T], what: str = "", *, timeout: float = PATIENCE) -> T:
    """Returns the first truthy answer of `condition`."""
    deadline = time.monotonic() + timeout
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain{': ' * bool(what)}{what}")
        time.sleep(0.005)
    return answer
