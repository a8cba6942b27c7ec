"""Asks the API as a client does, without a socket between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import httpx2
import pytest

from holdfast import Holdfast

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


class Ask:
    """`ask.post("/v1/…", json=…)`. Each request has an event loop of its own."""

    def __init__(self, asgi: Asgi, *, client: str = "192.0.2.7", **headers: str) -> None:
        self._asgi = asgi
        self._client = client
        self._headers = headers

    def client(self) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(self._asgi, client=(self._client, 4711), raise_app_exceptions=False)
        return httpx2.AsyncClient(
            transport=transport, base_url="http://jobs.example", headers=self._headers, timeout=60.0
        )

    def __call__(self, method: str, path: str, **options: Any) -> httpx2.Response:
        async def once() -> httpx2.Response:
            async with asyncio.timeout(60), self.client() as client:  # a stream may have no end
                return await client.request(method, path, **options)

        return asyncio.run(once())

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return self("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx2.Response:
        return self("POST", path, **options)

    def submit(self, task: str, *, headers: dict[str, str] | None = None, **body: Any) -> httpx2.Response:
        return self.post(f"/v1/tasks/{task}/jobs", json=body, headers=headers)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@contextmanager
def statements(app: Holdfast) -> Iterator[list[str]]:
    """The names of all statements that are run meanwhile."""
    run: list[str] = []
    db = app.store.db

    def noting(verb: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*names: str, **parameters: Any) -> Any:
            run.append(names[0] if names else verb)
            return original(*names, **parameters)

        return call

    # PostgreSQL reads as it writes.
    ways = ["write", "transaction"] if app.settings.url.startswith("postgres") else ["read", "write", "transaction"]
    with ExitStack() as stack:
        for way in ways:
            stack.enter_context(mock.patch.object(db, way, noting(way, getattr(db, way))))
        yield run


@pytest.fixture
def tasked(hf: Holdfast) -> Holdfast:
    """An application with tasks that can be reached, and one that can't."""

    @hf.task(http=True)
    def add(a: int, b: int = 2) -> int:
        return a + b

    @hf.task(http=["cancel", "pause", "resume"], max_attempts=1)
    def fail(message: str) -> None:
        raise ValueError(message)

    @hf.task
    def hidden() -> None: ...

    return hf


@pytest.fixture
def ask(tasked: Holdfast) -> Ask:
    """Everyone may submit; jobs are seen by their tokens."""
    return Ask(tasked.asgi(open="submitter"))
