"""The dashboard without a browser: what it costs the database, and what it says when it can't look."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import Any

import httpx2
import pytest
from starlette.routing import Mount

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.http.dashboard import site, views
from holdfast.http.dashboard.page import Look, Page
from holdfast.http.dashboard.pages import PAGES, page_at
from holdfast.store.postgres import reading as postgres_reading
from holdfast.store.sqlite import reading as sqlite_reading
from tests.contract.test_reading import ENDLESS, run
from tests.http.asking import Ask
from tests.http.test_browser import served
from tests.waiting import wait_until

TICK = 0.2  # seconds
VIEWERS = 20
STATIC = [page for page in PAGES if "{" not in page.path]


@pytest.fixture
def asked(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that those who look run from now on."""
    run: list[str] = []
    db: Any = tasked._looking.store.db
    original = db.rows

    def rows(connection: Any, text: str, parameters: dict[str, Any]) -> Any:
        run.append(text)
        return original(connection, text, parameters)

    monkeypatch.setattr(db, "rows", rows)
    own: Any = tasked.store.db
    monkeypatch.setattr(own, "rows", lambda *_: pytest.fail("a look used the application's own connections"))
    return run


@dataclass
class Loads:
    """When each load of a page began, and how many statements had been run by then."""

    asked: list[str]
    begun: list[tuple[float, int]] = field(default_factory=list)

    def watched(self, page: Page) -> Page:
        def load(look: Look) -> dict[str, Any]:
            self.begun.append((time.monotonic(), len(self.asked)))
            return page.load(look)

        return replace(page, tick=TICK, load=load)


@pytest.fixture
def loads(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> Loads:
    """Pages are loaded often, and each load is noted."""
    noted = Loads(asked)

    def found(path: str) -> tuple[Page, dict[str, str]] | None:
        there = page_at(path)
        return there and (noted.watched(there[0]), there[1])

    monkeypatch.setattr(site, "page_at", found)
    return noted


@pytest.mark.parametrize("page", STATIC, ids=lambda page: page.name)
def test_many_who_open_a_page_at_once_cost_what_one_does(
    tasked: Holdfast, asked: list[str], page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "FRESH", 60.0)
    tasked.tasks["add"].enqueue(1)
    ask = Ask(tasked.asgi(open=page.role))
    assert ask.get(page.path).status_code == 200
    alone = len(asked)
    asked.clear()

    async def together() -> None:
        async with ask.client() as client:
            answers = await asyncio.gather(*(client.get(page.path) for _ in range(VIEWERS)))
        assert {answer.status_code for answer in answers} == {200}

    asyncio.run(together())  # in a loop of its own, which has read nothing yet
    assert len(asked) == alone > 0


def cost(url: str, path: str, viewers: int, loads: Loads) -> tuple[int, float]:
    """The statements and the seconds of three loads of a page that so many watch."""

    async def run() -> tuple[int, float]:
        stop = asyncio.Event()
        seen = asyncio.Semaphore(0)

        async def watch() -> None:
            async with client.stream("GET", f"{url}/live", params={"view": path}) as answer:
                assert answer.status_code == 200
                lines = answer.aiter_lines()
                while not (await anext(lines)).startswith("event: view"):
                    pass
                seen.release()
                await stop.wait()

        async with httpx2.AsyncClient(timeout=60, limits=httpx2.Limits(max_connections=None)) as client:
            viewing = [asyncio.create_task(watch()) for _ in range(viewers)]
            for _ in viewing:
                await seen.acquire()
            loads.begun.clear()
            await asyncio.to_thread(wait_until, lambda: len(loads.begun) >= 4)
            stop.set()
            await asyncio.gather(*viewing)
        (began, before), (ended, after) = loads.begun[0], loads.begun[3]
        return after - before, ended - began

    return asyncio.run(run())


@pytest.mark.parametrize("page", [page for page in STATIC if page.tick], ids=lambda page: page.name)
def test_many_who_watch_a_page_cost_what_one_does(tasked: Holdfast, loads: Loads, page: Page) -> None:
    tasked.tasks["add"].enqueue(1)
    with served([Mount("/", tasked.asgi(open="viewer"))]) as url:
        alone, _ = cost(url, page.path, 1, loads)
        together, seconds = cost(url, page.path, VIEWERS, loads)
    assert together == alone > 0
    assert seconds >= 3 * TICK * 0.99, "it is read no more often, either"


# -- what can't be read ------------------------------------------------------------------------------------------------


@pytest.fixture
def slow(tasked: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres_reading, sqlite_reading):
        monkeypatch.setattr(module, "PATIENCE", 0.2)
    monkeypatch.setattr(tasked._looking.store.reads, "now", lambda: run(tasked._looking.store, ENDLESS))


@pytest.mark.usefixtures("slow")
def test_a_look_that_takes_too_long_is_ended_and_says_so(tasked: Holdfast) -> None:
    answer = Ask(tasked.asgi(open="viewer")).get("/")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "reading this took longer than" in answer.text
    assert "HF3008" in answer.text


def test_who_watches_is_told_what_keeps_a_page_from_being_read(
    tasked: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And sees it again as soon as it can be read."""
    monkeypatch.setattr(views, "AWAY", 0.1)
    now = tasked._looking.store.reads.now
    answers = [StoreUnavailable("the database is away")]
    monkeypatch.setattr(tasked._looking.store.reads, "now", lambda: _raise(answers.pop()) if answers else now())
    with (
        served([Mount("/", tasked.asgi(open="viewer"))]) as url,
        httpx2.stream("GET", f"{url}/live", params={"view": "/queues"}, timeout=60) as answer,
    ):
        told: list[str] = []
        for line in answer.iter_lines():
            told.append(line)
            if line.startswith("event: view"):
                break
    assert told[:2] == ["event: away", "data: the database is away"]


def _raise(error: Exception) -> Any:
    raise error
