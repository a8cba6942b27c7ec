"""Follows every internal link of a site, right to the last one, and says which are broken."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

import httpx2

from examples.crawl.robots import Robots
from examples.safe_http import Fetcher, Refused
from examples.site_audit.check import LONGEST_TEXT, Finding, Found, Outcome, cut, declare, outcome
from examples.site_audit.page import HTML, MOST_REDIRECTS, same_site
from examples.site_audit.reading import READER
from examples.site_audit.tier import Tier

AT_ONCE = 4  # requests; more would be rude
MOST_LINKS = 20_000
LONGEST_WALK = 1_800.0  # seconds
UNCLEAR = (401, 403, 407, 429)  # whoever asks with a login, or later, may get another answer
BROKEN = declare(
    "broken-links", "seo", 10, "No internal link is broken",
    "Visitors who meet a dead end leave, and search engines lose what lies behind it.",
)  # fmt: skip


@dataclass
class Link:
    """An address within the site."""

    url: str
    found_on: str
    pages: int = 1  # that have it
    problem: str | None = None
    unclear: bool = False  # whether it is broken


@dataclass
class Answer:
    url: str
    problem: str | None = None
    again: bool = False  # it may be there a moment later
    unclear: bool = False
    read: str | None = None  # the page it turned out to be
    unread: bool = False  # it is a page, but what it names is not known
    names: list[str] = field(default_factory=list)


class Walk:
    """Of one site. `steps()` does it; what it found by then can be seen at any time."""

    def __init__(
        self, fetcher: Fetcher, start: str, rules: Robots, *, most: int = MOST_LINKS,
        longest: float = LONGEST_WALK,
    ) -> None:  # fmt: skip
        self._fetcher = fetcher
        self._start = httpx2.URL(start)
        self._rules = rules
        self._most = most
        self._ends = time.monotonic() + longest
        self._frontier = deque([start])
        self._read: set[str] = set()
        self.links: dict[str, Link] = {start: Link(start, start)}
        self.pages = 0
        self.unread = 0  # pages that are too large, or that no parser gets through
        self.left = 0  # links that were not checked, for there are too many or the time is over
        self.forbidden = 0  # by robots.txt

    @property
    def broken(self) -> list[Link]:
        """The start is none: it was not a link that led there."""
        return [link for link in list(self.links.values())[1:] if link.problem and not link.unclear]

    def steps(self) -> Iterator[str]:
        """Yields each address that has been dealt with."""
        second_tries: list[str] = []
        with ThreadPoolExecutor(AT_ONCE, "links") as threads:
            try:
                for answer in self._answers(threads):
                    if answer.again:
                        second_tries.append(answer.url)
                    yield answer.url
                self._frontier.extend(second_tries)
                for answer in self._answers(threads):
                    yield answer.url
            finally:
                threads.shutdown(wait=True, cancel_futures=True)

    def _answers(self, threads: ThreadPoolExecutor) -> Iterator[Answer]:
        """Ask for all that is in the frontier, and for what that names."""
        asking: set[Future[Answer]] = set()
        while self._frontier or asking:
            while self._frontier and len(asking) < AT_ONCE:
                url = self._frontier.popleft()
                if time.monotonic() > self._ends:
                    self.left += 1
                elif not self._rules.allows(httpx2.URL(url).raw_path.decode()):
                    self.forbidden += 1
                else:
                    asking.add(threads.submit(self._ask, url))
            if asking:
                done, asking = wait(asking, return_when=FIRST_COMPLETED)
                for future in done:
                    self._note(future.result())
                    yield future.result()

    def _ask(self, url: str) -> Answer:
        """On a thread of its own."""
        try:
            reply = self._fetcher.follow(httpx2.URL(url), MOST_REDIRECTS, kinds=HTML)[-1]
            if reply.status >= 400:
                return Answer(
                    url, f"answers {reply.status}", reply.status >= 500 or reply.status == 429, reply.status in UNCLEAR
                )
            if reply.kind not in HTML or not same_site(reply.url, self._start):
                return Answer(url)
            if str(reply.url) in self._read:
                return Answer(url)
            return Answer(url, read=str(reply.url), names=READER.names(reply, self._start))
        except Refused as refused:
            if refused.code in ("TOO_LARGE", "KIND", "TOO_COMPLEX"):  # it is there
                return Answer(url, unread=True)
            problem = f"can't be had: {refused.reason}"
            return Answer(url, problem, again=not refused.permanent, unclear=refused.code == "PRIVATE")

    def _note(self, answer: Answer) -> None:
        link = self.links[answer.url]
        link.problem, link.unclear = answer.problem, answer.unclear
        self.unread += answer.unread
        if answer.read is None or answer.read in self._read:
            return
        self._read.add(answer.read)
        self.pages += 1
        for url in answer.names:
            if (known := self.links.get(url)) is not None:
                known.pages += 1
            elif len(self.links) >= self._most:
                self.left += 1
            else:
                self.links[url] = Link(url, answer.read)
                self._frontier.append(url)

    def tier(self) -> Tier:
        start = next(iter(self.links.values()))
        found = not_followed(start) if start.problem else outcome(BROKEN, self._found())
        return Tier([found], {
            "pages": self.pages, "links": len(self.links), "broken_links": len(self.broken),
            "unchecked_links": self.left + self.forbidden,
        })  # fmt: skip

    def _found(self) -> Iterator[Found]:
        if self.left:
            yield Found("info", f"{_many(self.left, 'link')} not checked: the site has too many, or is too slow.")
        if self.unread:
            yield Found("info", f"{_many(self.unread, 'page')} not read: too large, or not made to be read.")
        if self.forbidden:
            yield Found("info", f"{_many(self.forbidden, 'link')} not checked: robots.txt forbids it.")
        for link in sorted(self.broken, key=lambda link: (-link.pages, link.url)):
            others = f" and {_many(link.pages - 1, 'more page')}" if link.pages > 1 else ""
            yield Found("serious", f"This {link.problem}. It is linked from {link.found_on}{others}.", link.url)


def not_followed(start: Link) -> Outcome:
    text = cut(f"No link was followed: {start.url} {start.problem}.", LONGEST_TEXT)
    return Outcome(BROKEN.name, False, [Finding(BROKEN.name, BROKEN.category, "info", text, None)])


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
