"""Holdfast, as it comes: the worker is a plain `holdfast worker`, whatever the tuning."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.peers.adapter import PAD, Adapter, recorder
from holdfast import Holdfast

hf = Holdfast()  # HOLDFAST_URL says where


@hf.task
async def noop(asked_ns: int, pad: str) -> None:
    recorder.started(asked_ns)


@hf.task
async def long(seconds: float) -> None:
    recorder.started_long()
    await asyncio.sleep(seconds)


class HoldfastAdapter(Adapter):
    blocking = True

    async def prepare(self) -> None:
        hf.migrate()

    @asynccontextmanager
    async def producing(self) -> AsyncIterator[None]:
        with hf:
            yield

    async def enqueue(self, asked_ns: int) -> None:
        noop.enqueue(asked_ns, PAD)

    async def enqueue_bulk(self, jobs: int) -> None:
        hf.enqueue_many(noop.bind(0, PAD) for _ in range(jobs))

    async def enqueue_long(self, seconds: float) -> None:
        long.enqueue(seconds)

    def work(self) -> None:
        os.execv(sys.executable, [sys.executable, "-m", "holdfast", "worker", "bench.peers.holdfast_peer:hf"])


adapter = HoldfastAdapter()
