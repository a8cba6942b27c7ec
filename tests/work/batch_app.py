"""An application of short tasks: the tests hand its attempts to a runner process by the batch."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from holdfast import Holdfast, Snooze

# Never opened, but other files beside it might be.
hf = Holdfast(f"sqlite:///{tempfile.gettempdir()}/never-opened-{os.getpid()}.db", concurrency=4, threads=2)


@hf.task
async def echo(n: int) -> int | None:
    """Every third has no result, every seventh wants to be run later."""
    if n % 7 == 6:
        raise Snooze(60.0)
    return None if n % 3 == 0 else n


@hf.task
def echo_on_thread(n: int) -> int:
    return n


@hf.task
async def block_until_told(path: str) -> None:
    """Nothing else on the loop goes on meanwhile."""
    while not Path(path).exists():  # noqa: ASYNC240 - whoever tells is in another process
        time.sleep(0.01)  # noqa: ASYNC251 - that is the point


@hf.task
async def until_told(path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - whoever tells is in another process
        await asyncio.sleep(0.01)
