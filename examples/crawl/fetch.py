"""One request, and what its answer means: done, gone, or to be tried again, and when. Redirects are not followed here:
what they lead to is an address like any other, with rules and a place in the queue of its own host."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Self

import httpx2

from examples.crawl import robots, sitemaps
from examples.crawl.urls import Address
from examples.safe_http import Fetcher, Refused, Reply, web_address

LARGEST_PAGE = 5_000_000  # bytes, unpacked
MOST_AT_ONCE = 32  # requests
LONGEST_RETRY_AFTER = 24 * 3600.0  # seconds
AGAIN = {408, 425, 429, 500, 502, 503, 504, 507, 508, 509, 520, 521, 522, 523, 524, 529}  # statuses that may pass
BUSY = {429, 503}  # what these ask holds for the whole host

Wanted = Callable[[httpx2.Headers], bool]


class FetchFailed(Exception):
    """No answer that is of use. `again`: it may be otherwise later. `after`: the seconds that the host asked for.
    `busy`: it asked that for all requests."""

    def __init__(
        self, code: str, message: str, *, again: bool, after: float | None = None, busy: bool = False
    ) -> None:  # fmt: skip
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.again = again
        self.after = after
        self.busy = busy


@dataclass(frozen=True)
class Limits:
    agent: str
    timeout: float = 20.0  # seconds for a request, whatever it waits for
    allow_private: bool = False  # for tests, whose sites are on this machine


class Client:
    """Asks hosts, each on a connection that stays open between requests."""

    def __init__(self, limits: Limits) -> None:
        common = {"allow_private": limits.allow_private, "longest": limits.timeout, "compressed": True}
        self._pages = Fetcher(limits.agent, largest=LARGEST_PAGE, **common)  # type: ignore[arg-type]
        self._sitemaps = Fetcher(limits.agent, largest=sitemaps.LARGEST, **common)  # type: ignore[arg-type]
        self._robots = Fetcher(limits.agent, largest=robots.LARGEST, cut=True, **common)  # type: ignore[arg-type]
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "fetch")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pages.close()
        self._sitemaps.close()
        self._robots.close()

    async def page(self, address: Address, wanted: Wanted, headers: dict[str, str]) -> Reply:
        """The answer, with its body if that is wanted by its headers; or FetchFailed."""
        return await self._get(self._pages, address, wanted, headers)

    async def sitemap(self, address: Address) -> Reply:
        return await self._get(self._sitemaps, address, lambda headers: True, {})

    async def robots(self, address: Address) -> Reply:
        """As much of it as counts."""
        return await self._get(self._robots, address, lambda headers: True, {})

    async def _get(self, fetcher: Fetcher, address: Address, wanted: Wanted, headers: dict[str, str]) -> Reply:
        get = partial(fetcher.get, web_address(address.asked), body=wanted, **headers)
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, get)
        except Refused as refused:
            raise FetchFailed(refused.code, refused.reason, again=not refused.permanent) from None
        if answer.status in AGAIN:
            raise FetchFailed(
                f"HTTP_{answer.status}", f"the host answered {answer.status}", again=True,
                after=retry_after(answer.headers.get("retry-after", ""), datetime.now(UTC)),
                busy=answer.status in BUSY,
            )  # fmt: skip
        return answer


def retry_after(value: str, now: datetime) -> float | None:
    """The seconds that a Retry-After header asks for: a number of them, or a date."""
    value = value.strip()
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            at = parsedate_to_datetime(value)
        except ValueError:
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
    if not math.isfinite(seconds):
        return None
    return min(max(0.0, seconds), LONGEST_RETRY_AFTER)
