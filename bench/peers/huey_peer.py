"""Huey on SQLite, results off. It has no API for many jobs: bulk is a loop. One thread, its default: two are slower."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from huey import SqliteHuey

from bench.peers.adapter import PAD, URL, Adapter, recorder

# fsync=True is synchronous = FULL. Left out, SQLite's own default decides, which is FULL unless it was built otherwise.
huey = SqliteHuey("bench", filename=URL.removeprefix("sqlite:///"), results=False, fsync=True)


def run_noop(asked_ns: int, pad: str) -> None:
    recorder.started(asked_ns)


def run_long(seconds: float) -> None:
    recorder.started_long()
    time.sleep(seconds)


noop = huey.task()(run_noop)
long = huey.task()(run_long)


class HueyAdapter(Adapter):
    blocking = True

    async def prepare(self) -> None:
        """The tables were made when `huey` was."""

    @asynccontextmanager
    async def producing(self) -> AsyncIterator[None]:
        yield

    async def enqueue(self, asked_ns: int) -> None:
        noop(asked_ns, PAD)

    async def enqueue_bulk(self, jobs: int) -> None:
        for _ in range(jobs):
            noop(0, PAD)

    async def enqueue_long(self, seconds: float) -> None:
        long(seconds)

    def work(self) -> None:
        huey.create_consumer().run()


adapter = HueyAdapter()
