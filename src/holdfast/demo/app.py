"""The application of the demo: a task of each kind."""

from __future__ import annotations

import asyncio
import time

from holdfast import Fail, Holdfast, JobContext

hf = Holdfast()


@hf.task
async def greet(name: str) -> str:
    """Short and asynchronous."""
    await asyncio.sleep(0.1)
    return f"Hello, {name}!"


@hf.task(queue="images")
def shrink(width: int) -> int:
    """Short and synchronous: runs on a thread."""
    time.sleep(0.05)
    return width // 2


@hf.task(retry=0.2)
async def flaky(ctx: JobContext, failures: int) -> str:
    """Fails at first, and is retried."""
    if ctx.attempt <= failures:
        raise ConnectionError("the other side hung up")
    return f"worked on attempt {ctx.attempt}"


@hf.task(queue="money")
def charge(ctx: JobContext, cents: int) -> None:
    """Writes its effect and its success in one commit: exactly once, whatever happens."""
    with ctx.transaction() as tx:
        tx.conn.execute("insert into charges (job, cents) values (?, ?)", (ctx.job.id, cents))
        tx.set_result({"charged": cents})


@hf.task
async def crunch(ctx: JobContext, steps: int) -> int:
    """Long, with checkpoints: continues where an earlier attempt stopped."""
    done = ctx.saved or 0
    while done < steps:
        await asyncio.sleep(0.25)
        done += 1
        await ctx.acheckpoint(done, pending=steps - done, done=done)
    return done


@hf.task(max_attempts=5)
async def doomed(number: int) -> None:
    """Can't succeed, and says so, so that it is not retried."""
    raise Fail(f"document {number} does not exist", code="NO_SUCH_DOCUMENT")
