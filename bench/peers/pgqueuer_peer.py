"""PgQueuer with asyncpg, its worker under uvloop, as its own command line runs it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from bench.peers.adapter import CHUNK, PAD, PRODUCERS, TUNING, URL, Adapter, recorder

BATCH = {"default": 10, "throughput": 1_000, "latency": 100}[TUNING]


def payload(asked_ns: int) -> bytes:
    return json.dumps({"asked_ns": asked_ns, "pad": PAD}).encode()


async def noop(job: Any) -> None:
    recorder.started(json.loads(job.payload)["asked_ns"])


async def long(job: Any) -> None:
    recorder.started_long()
    await asyncio.sleep(float(job.payload))


class PgQueuerAdapter(Adapter):
    async def prepare(self) -> None:
        connection = await asyncpg.connect(URL)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    @asynccontextmanager
    async def producing(self) -> AsyncIterator[None]:
        async with asyncpg.create_pool(URL, min_size=PRODUCERS, max_size=PRODUCERS) as pool:
            self.queries = Queries(AsyncpgPoolDriver(pool))
            yield

    async def enqueue(self, asked_ns: int) -> None:
        await self.queries.enqueue("noop", payload(asked_ns))

    async def enqueue_bulk(self, jobs: int) -> None:
        for done in range(0, jobs, CHUNK):
            count = min(CHUNK, jobs - done)
            await self.queries.enqueue(["noop"] * count, [payload(0) for _ in range(count)], [0] * count)

    async def enqueue_long(self, seconds: float) -> None:
        await self.queries.enqueue("long", str(seconds).encode())

    def work(self) -> None:
        uvloop.run(self._work())

    async def _work(self) -> None:
        queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))
        queuer.entrypoint("noop")(noop)
        queuer.entrypoint("long")(long)
        await queuer.run(batch_size=BATCH)


adapter = PgQueuerAdapter()
