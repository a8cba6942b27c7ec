"""One command of one contender, in its own environment: needs the standard library and the contender, no more.

    python -m bench.peers.adapter MODULE COMMAND ARGUMENT…

    prepare               make its tables in an empty database
    one JOBS              enqueue one at a time, each awaited
    bulk JOBS             enqueue through its own API for many
    paced JOBS            one job every 100 to 200 ms
    steady RATE SECONDS   so many jobs a second, from four producers
    long SECONDS          one job that takes that long
    work                  run a worker until it is stopped

What was measured goes to stdout as JSON. graphile_peer.mjs does the same in its language.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from bench.peers.tally import Recorder

URL = os.environ.get("BENCH_URL", "")
TUNING = os.environ.get("BENCH_TUNING", "default")
"""What the settings are for: default (as it comes), throughput, latency."""
PAD = "x" * 70  # makes the arguments about 100 bytes of JSON
CHUNK = 1_000  # jobs in one call, for those whose API for many takes a list
PRODUCERS = 4
WARM_UP = 5

recorder = Recorder(Path(os.environ.get("BENCH_RUN", ".")))


class Adapter(ABC):
    """What a contender must be able to do. A blocking one gets a thread for each producer, others a coroutine."""

    blocking = False

    @abstractmethod
    async def prepare(self) -> None: ...

    @abstractmethod
    def producing(self) -> AbstractAsyncContextManager[object]:
        """Open what enqueueing needs."""

    @abstractmethod
    async def enqueue(self, asked_ns: int) -> None: ...

    @abstractmethod
    async def enqueue_bulk(self, jobs: int) -> None: ...

    @abstractmethod
    async def enqueue_long(self, seconds: float) -> None: ...

    @abstractmethod
    def work(self) -> None: ...

    # -- the commands ----------------------------------------------------------------------------------------------

    async def one(self, jobs: int) -> dict[str, float]:
        await self._warm_up()
        began = time.perf_counter()
        for _ in range(jobs):
            await self.enqueue(0)
        return {"jobs": jobs + WARM_UP, "rate": jobs / (time.perf_counter() - began)}

    async def bulk(self, jobs: int) -> dict[str, float]:
        began = time.perf_counter()
        await self.enqueue_bulk(jobs)
        return {"jobs": jobs, "rate": jobs / (time.perf_counter() - began)}

    async def paced(self, jobs: int) -> dict[str, float]:
        await self._warm_up()
        pause = random.Random(3)  # uneven, so as to be in step with nobody's polling
        for _ in range(jobs):
            await asyncio.sleep(pause.uniform(0.1, 0.2))
            await self.enqueue(time.monotonic_ns())
        return {"jobs": jobs + WARM_UP}

    async def steady(self, rate: float, seconds: float) -> dict[str, float]:
        await self._warm_up()
        began = time.monotonic()
        producers = [self._producer(began + k / rate, PRODUCERS / rate, began + seconds) for k in range(PRODUCERS)]
        if self.blocking:
            sent = await asyncio.gather(*(asyncio.to_thread(asyncio.run, producer) for producer in producers))
        else:
            sent = await asyncio.gather(*producers)
        return {"jobs": sum(sent) + WARM_UP, "rate": sum(sent) / (time.monotonic() - began)}

    async def _producer(self, due: float, step: float, until: float) -> int:
        sent = 0
        while due < until:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self.enqueue(time.monotonic_ns())
            sent += 1
            due += step
        return sent

    async def long(self, seconds: float) -> dict[str, float]:
        await self.enqueue_long(seconds)
        return {"jobs": 1}

    async def _warm_up(self) -> None:
        for _ in range(WARM_UP):
            await self.enqueue(0)

    async def produce(self, command: str, arguments: list[str]) -> dict[str, float]:
        commands: dict[str, Callable[..., Awaitable[dict[str, float]]]] = {
            "one": self.one, "bulk": self.bulk, "paced": self.paced, "steady": self.steady, "long": self.long,
        }  # fmt: skip
        async with self.producing():
            return await commands[command](*(int(argument) for argument in arguments))


def main(module: str, command: str, *arguments: str) -> None:
    adapter: Adapter = importlib.import_module(f"bench.peers.{module}").adapter
    if command == "work":
        adapter.work()
    elif command == "prepare":
        asyncio.run(adapter.prepare())
    else:
        print(json.dumps(asyncio.run(adapter.produce(command, list(arguments)))))


if __name__ == "__main__":
    main(*sys.argv[1:])
