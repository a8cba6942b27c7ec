"""The application the benchmark's workers run."""

from __future__ import annotations

import asyncio
import os
import struct
import time
from functools import cache

from holdfast import Holdfast

PAD = "x" * 80
TIMES = "BENCH_TIMES"  # the environment's name for the file that `timed` writes to
RECORD = struct.Struct("qq")  # when enqueue was called, when the handler was done

hf = Holdfast()


@hf.task(http=True)
async def noop(pad: str) -> None:
    pass


@hf.task
async def batch(seconds: float) -> None:
    await asyncio.sleep(seconds)


@hf.task
async def timed(asked_ns: int) -> None:
    """Notes when it ran. CLOCK_MONOTONIC is one clock for all processes of a host; a line in a file costs the database
    nothing."""
    os.write(times(), RECORD.pack(asked_ns, time.monotonic_ns()))


@cache
def times() -> int:
    return os.open(os.environ[TIMES], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
