"""An application of short tasks: the tests hand its attempts to a runner process by the batch."""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import tempfile
import time
from pathlib import Path

from holdfast import Holdfast, Snooze

if "BATCH_APP_HOME" not in os.environ:  # else the process that imported this first has made it
    os.environ["BATCH_APP_HOME"] = tempfile.mkdtemp(prefix="holdfast-batches-")
    atexit.register(shutil.rmtree, os.environ["BATCH_APP_HOME"], ignore_errors=True)

hf = Holdfast(f"sqlite:///{os.environ['BATCH_APP_HOME']}/jobs.db", concurrency=4, threads=2)


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
