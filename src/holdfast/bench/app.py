"""The application the benchmark's worker runs."""

from __future__ import annotations

import time

from holdfast import Holdfast

hf = Holdfast()


@hf.task
async def noop(pad: str) -> None:
    pass


@hf.task
async def pickup(asked_ns: int) -> int:
    """How long from the call of enqueue to here. CLOCK_MONOTONIC is one clock for all processes of a host."""
    return time.monotonic_ns() - asked_ns
