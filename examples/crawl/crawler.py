"""One attempt of a crawl: asks, reads, stores, until nothing is left or it is to stop. Each host has one asker, with
one request under way at a time; all of it runs on one event loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from examples.crawl import parse, robots, sitemaps, urls
from examples.crawl.fetch import Client, FetchFailed, Limits
from examples.crawl.frontier import Before, Frontier, Todo
from examples.crawl.hosts import Hosts, rules
from examples.crawl.urls import Address
from examples.safe_http import Reply, kind_of
from holdfast import Snooze

AGENT = parse.NAME  # the product token that robots.txt may name
MOST_HOSTS = 100  # that are asked at once
MOST_REDIRECTS = 10  # in a row
ROBOTS_REDIRECTS = 5
ROBOTS_LOOK = 3600.0  # seconds until an attempt looks again whether rules have to be read again
DOWN = {"UNREACHABLE", "TIMEOUT", "NOT_FOUND", "HTTP_502", "HTTP_503", "HTTP_504"}
FAILURES = 3  # in a row, after which a site seems to be down
LONGEST_HOLD = 30.0  # seconds between two requests to one that seems so
LOOK = 0.1  # seconds between two looks whether to stop
CHANCE = random.SystemRandom()


@dataclass(frozen=True)
class Config:
    delay: float  # seconds between two requests to a host, at least
    max_pages: int
    limits: Limits
    tries: int = 5  # of one address
    first_retry: float = 1.0  # seconds; doubled each time
    longest_retry: float = 300.0
    longest_wait: float = 60.0  # with nothing to do for longer than this, the process is not kept


class Stopping(Exception):
    """The attempt is to stop: take nothing new."""


class Crawler:
    """`should_stop`: asked often. `alive`: called while the loop turns, with a note on what is under way."""

    def __init__(
        self,
        frontier: Frontier,
        hosts: Hosts,
        config: Config,
        should_stop: Callable[[], bool],
        alive: Callable[[str], None],
    ) -> None:
        self._frontier = frontier
        self._hosts = hosts
        self._config = config
        self._should_stop = should_stop
        self._alive = alive
        self._robots: dict[str, tuple[robots.Robots, float]] = {}  # until when (monotonic)
        self._failures: Counter[str] = Counter()  # in a row, of a site that does not answer
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._later: dict[str, float] = {}  # hosts that want to be left alone for long: until when (monotonic)

    async def run(self) -> bool:
        """True: nothing is left. False: it was to stop. Raises Snooze if there is nothing to do for long."""
        with Client(self._config.limits) as self._client:
            await self._ask_all()
        return self._end()

    async def _ask_all(self) -> None:
        askers: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                if not self._stopping:
                    for host in self._ready(askers):
                        self._later.pop(host, None)
                        askers[host] = asyncio.create_task(self._ask(host))
                if not askers:
                    return
                self._alive(f"{len(askers)} hosts")
                await asyncio.wait(askers.values(), timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
                for host in [host for host, asker in askers.items() if asker.done()]:
                    askers.pop(host).result()
        finally:
            for asker in askers.values():
                asker.cancel()

    @property
    def _stopping(self) -> bool:
        return self._should_stop() or self._frontier.pages >= self._config.max_pages

    def _ready(self, askers: dict[str, asyncio.Task[None]]) -> list[str]:
        now = time.monotonic()
        ready = (h for h in sorted(self._frontier.waiting - askers.keys()) if self._later.get(h, now) <= now)
        return list(ready)[: MOST_HOSTS - len(askers)]

    def _end(self) -> bool:
        if self._should_stop():
            return False
        if self._frontier.pages >= self._config.max_pages:
            with self._frontier.transaction():
                self._frontier.leave_rest(f"the crawl has its {self._config.max_pages:,} pages")
            return True
        if self._frontier.waiting:
            raise Snooze(after=max(1.0, min(self._later.values()) - time.monotonic()))
        return True

    # -- one host ------------------------------------------------------------------------------------------------------

    async def _ask(self, host: str) -> None:
        """Ask one address of this host after the other, until none is left."""
        try:
            while not self._stopping:
                match self._frontier.next_of(host):
                    case None:
                        self._frontier.waiting.discard(host)
                        return
                    case Todo() as todo:
                        await self._handle(todo)
                    case wait:
                        await self._wait(host, wait)
        except Stopping:
            return

    async def _handle(self, todo: Todo) -> None:
        host = todo.address.origin
        try:
            found = await self._rules(host)
        except FetchFailed as why:
            with self._frontier.transaction():
                self._frontier.failed(todo, why, None)
                self._frontier.give_up(host, f"robots.txt can't be read: {why}")
            return
        if not found.allows(todo.address.target):
            with self._frontier.transaction():
                self._frontier.skip(todo, "robots.txt forbids it")
            return
        before = self._frontier.before(todo.address) if todo.kind == "page" else None
        async with self._turn(host, todo.address.site, found.delay):
            try:
                if todo.kind == "page":
                    answer = await self._client.page(todo.address, _may_be_html, before.headers if before else {})
                else:
                    answer = await self._client.sitemap(todo.address)
            except FetchFailed as why:
                with self._frontier.transaction():
                    self._frontier.failed(todo, why, self._again_after(todo, why))
                    self._hosts.free(todo.address.site, self._hold(todo.address.site, why))
                return
            self._failures[todo.address.site] = 0
            self._keep(todo, answer, before)

    def _keep(self, todo: Todo, answer: Reply, before: Before | None) -> None:
        """Write down what came of it."""
        page = _read(todo, answer)  # before the transaction: on SQLite others wait for its end
        with self._frontier.transaction():
            self._hosts.free(todo.address.site)
            if answer.leads_to is not None:
                self._redirect(todo, answer.leads_to)
            elif answer.status == 304 and before is not None:
                self._frontier.store_unchanged(todo, before)
            elif answer.status != 200 and todo.kind == "sitemap":
                self._frontier.skip(todo, f"there is no sitemap: the host answered {answer.status}")
            elif answer.status != 200:
                why = FetchFailed(f"HTTP_{answer.status}", f"the host answered {answer.status}", again=False)
                self._frontier.failed(todo, why, None)
            elif isinstance(page, parse.Page):
                self._frontier.store(todo, answer, page)
            elif isinstance(page, sitemaps.Sitemap):
                self._frontier.store_sitemap(todo, _addresses(page.pages), _addresses(page.sitemaps))
            else:
                self._frontier.skip(todo, page)

    def _redirect(self, todo: Todo, location: str) -> None:
        try:
            target = urls.parse(location, todo.address.url)
        except urls.NotForUs as error:
            self._frontier.failed(
                todo, FetchFailed("REDIRECT", f"it redirects to no address: {error}", again=False), None
            )
            return
        if target.asked == todo.address.asked:
            why = "to itself"
        elif todo.hops >= MOST_REDIRECTS:
            why = f"more than {MOST_REDIRECTS} times in a row"
        elif self._frontier.leads_back(todo, target, MOST_REDIRECTS):
            why = "in a circle"
        else:
            self._frontier.redirect(todo, target)
            return
        self._frontier.failed(todo, FetchFailed("REDIRECT", f"it redirects {why}", again=False), None)

    # -- politeness ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _turn(self, host: str, site: str, delay: float) -> AsyncIterator[None]:
        """Until it is our turn to ask this site for what the asker of `host` wants. Whoever leaves without having freed
        it was interrupted: whoever comes next sees that, and keeps the pause."""
        async with self._turns[site]:  # our own askers may want the same site: by http and https, or for a robots.txt
            if self._stopping:
                raise Stopping
            while (wait := self._hosts.take(site, max(delay, self._config.delay))) > 0:
                await self._wait(host, wait)
            yield

    async def _wait(self, host: str, seconds: float) -> None:
        """Raises Stopping once the attempt is to stop, or if this takes so long that the host is left for later."""
        until = time.monotonic() + seconds
        if seconds > self._config.longest_wait:
            self._later[host] = until
            raise Stopping
        while (left := until - time.monotonic()) > 0:
            if self._stopping:
                raise Stopping
            await asyncio.sleep(min(left, LOOK))

    def _hold(self, site: str, why: FetchFailed) -> float | None:
        """The seconds for which all of a site is left alone: it asked for that, or it seems to be down."""
        if why.busy and why.after is not None:
            return why.after
        self._failures[site] = self._failures[site] + 1 if why.code in DOWN else 0
        if self._failures[site] < FAILURES:
            return None
        return min(LONGEST_HOLD, self._growing(self._failures[site] - FAILURES))

    def _again_after(self, todo: Todo, why: FetchFailed) -> float | None:
        if not why.again or todo.tries + 1 >= self._config.tries:
            return None
        return max(self._growing(todo.tries), why.after or 0.0)

    def _growing(self, tries: int) -> float:
        longest = min(self._config.longest_retry, self._config.first_retry * 2.0**tries)
        return longest * CHANCE.uniform(0.5, 1.0)

    # -- its rules -----------------------------------------------------------------------------------------------------

    async def _rules(self, host: str) -> robots.Robots:
        known, until = self._robots.get(host, (None, 0.0))
        if known is not None and time.monotonic() < until:
            return known
        try:
            found = self._hosts.robots(host, AGENT) or await self._asked_rules(host)
        except FetchFailed:
            if known is None:
                raise
            found = known  # better old rules than none
        with self._frontier.transaction():
            self._frontier.add_sitemaps(_addresses(found.sitemaps, host) or _addresses(["/sitemap.xml"], host))
        self._robots[host] = found, time.monotonic() + ROBOTS_LOOK
        return found

    async def _asked_rules(self, host: str) -> robots.Robots:
        """Raises FetchFailed if the host can't be asked, or answers with errors, as often as it is tried."""
        for tries in range(self._config.tries):
            try:
                status, body = await self._robots_file(host)
                break
            except FetchFailed as why:
                if not why.again or tries + 1 == self._config.tries:
                    raise
                await self._wait(host, max(self._growing(tries), why.after or 0.0))
        self._hosts.keep_robots(host, status, body)
        return rules(status, body, AGENT)

    async def _robots_file(self, host: str) -> tuple[int, bytes]:
        address = urls.parse(f"{host}/robots.txt")
        for _ in range(1 + ROBOTS_REDIRECTS):
            async with self._turn(host, address.site, 0.0):
                try:
                    answer = await self._client.robots(address)
                except FetchFailed as why:
                    self._hosts.free(address.site, why.after if why.busy else None)
                    raise
                self._hosts.free(address.site)
            if answer.status >= 500:
                raise FetchFailed(f"HTTP_{answer.status}", f"the host answered {answer.status}", again=False)
            if answer.leads_to is None:
                return answer.status, answer.body
            try:
                address = urls.parse(answer.leads_to, address.url)
            except urls.NotForUs:
                break
        return 404, b""  # redirects without end mean that there is none


def _read(todo: Todo, answer: Reply) -> parse.Page | sitemaps.Sitemap | str:
    """What an answer says, or why it is skipped."""
    if todo.kind == "page" and not (
        answer.kind in parse.HTML or (not answer.kind and parse.looks_like_html(answer.body))
    ):
        return f"type: {answer.kind or 'none stated'}"
    if todo.kind == "sitemap":
        try:
            return sitemaps.read(answer.body)
        except sitemaps.Broken as error:
            return f"sitemap: {error}"
    try:
        page = parse.read(answer, todo.address.url)
    except parse.TooDeep as error:
        return str(error)
    if parse.header_asks_nofollow(answer.headers):
        return parse.Page(page.title, page.links, nofollow=True)
    return page


def _may_be_html(headers: httpx2.Headers) -> bool:
    return kind_of(headers) in {*parse.HTML, ""}


def _addresses(texts: list[str], base: str | None = None) -> list[Address]:
    found = []
    for text in texts:
        try:
            found.append(urls.parse(text, base))
        except urls.NotForUs:
            continue
    return found
