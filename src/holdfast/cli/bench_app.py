"""The application whose jobs `holdfast bench` measures."""

from __future__ import annotations

import time

from holdfast import Holdfast

hf = Holdfast()


@hf.task
async def noop(pad: str) -> None:
    pass


@hf.task
async def started_at() -> int:
    """Returns when it ran. CLOCK_MONOTONIC is one clock for all processes of a host."""
    return time.monotonic_ns()
