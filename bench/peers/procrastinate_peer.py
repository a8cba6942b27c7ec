"""Procrastinate with psycopg."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import procrastinate

from bench.peers.adapter import CHUNK, PAD, PRODUCERS, TUNING, URL, Adapter, recorder

CONCURRENCY = {"default": 1, "throughput": 20, "latency": 20}[TUNING]

logging.getLogger("procrastinate").setLevel(logging.WARNING)
app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=URL, min_size=PRODUCERS, max_size=CONCURRENCY + PRODUCERS)
)


async def run_noop(asked_ns: int, pad: str) -> None:
    recorder.started(asked_ns)


async def run_long(seconds: float) -> None:
    recorder.started_long()
    await asyncio.sleep(seconds)


noop = app.task(run_noop, name="noop")
long = app.task(run_long, name="long")


class ProcrastinateAdapter(Adapter):
    async def prepare(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    @asynccontextmanager
    async def producing(self) -> AsyncIterator[None]:
        async with app.open_async():
            yield

    async def enqueue(self, asked_ns: int) -> None:
        await noop.defer_async(asked_ns=asked_ns, pad=PAD)

    async def enqueue_bulk(self, jobs: int) -> None:
        for done in range(0, jobs, CHUNK):
            await noop.batch_defer_async(*({"asked_ns": 0, "pad": PAD} for _ in range(min(CHUNK, jobs - done))))

    async def enqueue_long(self, seconds: float) -> None:
        await long.defer_async(seconds=seconds)

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY)


adapter = ProcrastinateAdapter()
