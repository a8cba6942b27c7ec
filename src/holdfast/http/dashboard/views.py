"""Loads each page once for all who look at it: a view that several want at the same time, or within a second, is read
from the database once. Who watches a view is sent it again when it has changed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from holdfast.errors import StoreError

FRESH = 1.0  # seconds for which what was read serves others, too
THREADS = 4  # that read, at most: looking must not keep the database busy
MOST = 200  # views that are kept
AWAY = 5.0  # seconds until the next try while the database is away

T = TypeVar("T")
Load = Callable[[], dict[str, Any]]
Key = tuple[Any, ...]


class Views:
    """The views of one event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="holdfast-dashboard")
        self._kept: dict[Key, tuple[float, asyncio.Future[dict[str, Any]]]] = {}
        self._watched: dict[Key, _Watched] = {}
        self._parts: dict[Hashable, tuple[float, Any]] = {}

    async def get(self, key: Key, load: Load, fresh: float | None = None) -> dict[str, Any]:
        """What this view shows now, read at most so many seconds ago."""
        fresh = FRESH if fresh is None else fresh
        kept = self._kept.get(key)
        if kept is None or (kept[1].done() and time.monotonic() - kept[0] > fresh):
            future = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(self._executor, load))
            future.add_done_callback(_look_at_error)
            kept = self._kept[key] = time.monotonic(), future
            while len(self._kept) > MOST:
                del self._kept[next(iter(self._kept))]
        return await asyncio.shield(kept[1])

    def seldom(self, key: Hashable, seconds: float, read: Callable[[], T]) -> T:
        """A part of views that is read again only after so many seconds. From any thread."""
        kept = self._parts.get(key)
        if kept is None or time.monotonic() - kept[0] > seconds:
            kept = self._parts[key] = time.monotonic(), read()
        found: T = kept[1]
        return found

    def forget(self) -> None:
        """Something was changed: what was read before is old."""
        self._kept.clear()
        for watched in self._watched.values():
            watched.hurry.set()

    async def watch(self, key: Key, load: Load, every: float) -> AsyncGenerator[dict[str, Any] | StoreError]:
        """What the view shows, every so many seconds; an error while the database is away. All who watch the same view
        are told of the same read. Raises what else goes wrong."""
        watched = self._watched.setdefault(key, _Watched())
        watched.viewers += 1
        if watched.task is None:
            watched.task = asyncio.create_task(self._repeat(key, load, every, watched), name="holdfast-view")
        try:
            seen = None
            while True:
                async with watched.told:
                    while watched.news is seen:
                        await watched.told.wait()
                    seen = watched.news
                if isinstance(seen, Exception) and not isinstance(seen, StoreError):
                    raise seen
                assert seen is not None
                yield seen
        finally:
            watched.viewers -= 1
            if not watched.viewers:
                watched.task.cancel()
                del self._watched[key]

    async def _repeat(self, key: Key, load: Load, every: float, watched: _Watched) -> None:
        while True:
            watched.hurry.clear()
            news: dict[str, Any] | Exception
            try:
                news = await self.get(key, load, fresh=every / 2)
            except Exception as error:  # noqa: BLE001 - whoever watches gets it
                news = error
            async with watched.told:
                watched.news = news
                watched.told.notify_all()
            with suppress(TimeoutError):
                async with asyncio.timeout(every if isinstance(news, dict) else AWAY):
                    await watched.hurry.wait()


class _Watched:
    """A view that somebody watches."""

    def __init__(self) -> None:
        self.viewers = 0
        self.task: asyncio.Task[None] | None = None
        self.news: dict[str, Any] | Exception | None = None
        self.told = asyncio.Condition()
        self.hurry = asyncio.Event()


def _look_at_error(future: asyncio.Future[dict[str, Any]]) -> None:
    """Whoever waited may have gone away; then nobody else asks what became of it."""
    if not future.cancelled():
        future.exception()
