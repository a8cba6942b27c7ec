"""The application of the demo with a dashboard: the tasks of the other one, and some to look at."""

from __future__ import annotations

import asyncio
import time

from holdfast import JobContext
from holdfast.demo.app import greet, hf, shrink

__all__ = ["digest", "greet", "hf", "import_feed", "newsletter", "render_film", "shrink"]

OUTAGE = 60  # seconds for which a feed can't be reached


@hf.task(queue="films", timeout=600)
async def render_film(ctx: JobContext, title: str, scenes: int) -> str:
    """Long, with progress: kill the worker, and it goes on where it was."""
    done = ctx.saved or 0
    ctx.progress(done, total=scenes, note=f"scene {done + 1} of {scenes}")
    while done < scenes:
        await asyncio.sleep(0.5)
        done += 1
        await ctx.acheckpoint(done, pending=scenes - done, done=done)
        ctx.progress(done, total=scenes, note=f"scene {done} of {scenes}")
    return f"{title}.mp4"


@hf.task(queue="imports", max_attempts=1)
def import_feed(shop: int, offered_at: float) -> int:
    """Fails while the shop is down. Retry its group of errors a minute later: then it works."""
    time.sleep(0.05)
    prices = read_prices(shop, offered_at)
    return sum(prices)


def read_prices(shop: int, offered_at: float) -> list[int]:
    if time.time() - offered_at < OUTAGE:
        raise ConnectionError(f"shop-{shop}.example refused the connection")
    return [shop, 2 * shop]


@hf.task(queue="mail", cron="* * * * *")
async def digest(ctx: JobContext) -> str:
    """By a schedule, each minute."""
    await asyncio.sleep(0.2)
    return f"the digest of {ctx.job.tick or 'now'}"


@hf.task(queue="newsletter")
async def newsletter(edition: int) -> None:
    """In a queue that is paused."""
    await asyncio.sleep(0.1)
