"""Clients of the HTTP API: submit jobs, follow them, cancel them."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar

from holdfast.durations import Duration
from holdfast.errors import BadSettings, HoldfastError, ServerUnavailable
from holdfast.http import requests
from holdfast.http.documents import JobStatus, Submitted
from holdfast.http.requests import Answer, Request

try:
    import httpx2
except ImportError as missing:
    raise BadSettings(
        f"the client needs a package that is missing ({missing.name}): pip install 'holdfast[client]'", number="HF1105"
    ) from None

T = TypeVar("T")

TIMEOUT = 30.0  # seconds for an answer, beside what the server waits on purpose
INTERVAL = 20.0  # seconds that one request waits for a change


class Client:
    """Talks to the API at this URL: `Client("https://example.org/jobs", key="hfk_…")`. `key` is an API key; whoever
    has a job's token needs none. Jobs are named by what `submit` returned, or by id and token. What the server refuses
    is raised as the error that Python has for it; ServerUnavailable: no answer came."""

    def __init__(self, url: str, *, key: str | None = None, timeout: float = TIMEOUT) -> None:
        self.url = requests.checked_url(url)
        self._timeout = timeout
        self._http = httpx2.Client(headers=_headers(key))

    def submit(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
        wait: Duration | None = None,
    ) -> Submitted:
        """Enqueue a job of this task, with its arguments by name. `wait`: run it now, and wait for it that long; look
        at `state`. With an `idempotency_key` it is safe to submit again after an error."""
        options = {"priority": priority, "delay": delay, "key": key, "correlation_id": correlation_id}
        return self._ask(requests.submission(task, args, options, idempotency_key, wait), Submitted)

    def status(self, job: str | Submitted, token: str | None = None) -> JobStatus:
        """The job as it is now."""
        return self._ask(requests.status(job, token), JobStatus)

    def wait(
        self,
        job: str | Submitted,
        token: str | None = None,
        *,
        timeout: Duration | None = None,
        interval: Duration = INTERVAL,
        on_update: Callable[[JobStatus], object] | None = None,
    ) -> Any:
        """Wait until the job has finished; returns its result, raises JobFailed or WaitTimeout. `on_update` gets its
        status at once and whenever it changes. One request waits for a change for `interval` at most. While the server
        is away, or busy, it is asked again after the time it names."""
        steps = requests.following(job, token, interval, timeout)
        answer: Answer | HoldfastError | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(step, Request):
                answer = self._tried(step)
            elif isinstance(step, float):
                time.sleep(step)
            elif on_update is not None:
                on_update(step)

    def cancel(self, job: str | Submitted, token: str | None = None, *, reason: str | None = None) -> JobStatus:
        """Cancel it. While it runs this is a request."""
        return self._ask(requests.verb("cancel", job, token, reason), JobStatus)

    def pause(self, job: str | Submitted, token: str | None = None, *, reason: str | None = None) -> JobStatus:
        """Pause it until `resume`. While it runs this is a request."""
        return self._ask(requests.verb("pause", job, token, reason), JobStatus)

    def resume(self, job: str | Submitted, token: str | None = None, *, reason: str | None = None) -> JobStatus:
        """Let it go on."""
        return self._ask(requests.verb("resume", job, token, reason), JobStatus)

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

    def _ask(self, request: Request, kind: type[T]) -> T:
        return requests.read(self._send(request), kind)

    def _tried(self, request: Request) -> Answer | HoldfastError:
        try:
            return self._send(request)
        except ServerUnavailable as error:
            return error

    def _send(self, request: Request) -> Answer:
        try:
            return _answer(self._http.request(**_options(self.url, request, self._timeout)))
        except httpx2.TransportError as error:
            raise _unreachable(self.url, error) from None


class AsyncClient:
    """`Client` for coroutines: the same methods, awaited. `on_update` may be a coroutine function."""

    def __init__(self, url: str, *, key: str | None = None, timeout: float = TIMEOUT) -> None:
        self.url = requests.checked_url(url)
        self._timeout = timeout
        self._http = httpx2.AsyncClient(headers=_headers(key))

    async def submit(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        priority: int | None = None,
        delay: Duration | None = None,
        key: str | None = None,
        correlation_id: str | None = None,
        idempotency_key: str | None = None,
        wait: Duration | None = None,
    ) -> Submitted:
        options = {"priority": priority, "delay": delay, "key": key, "correlation_id": correlation_id}
        return await self._ask(requests.submission(task, args, options, idempotency_key, wait), Submitted)

    async def status(self, job: str | Submitted, token: str | None = None) -> JobStatus:
        return await self._ask(requests.status(job, token), JobStatus)

    async def wait(
        self,
        job: str | Submitted,
        token: str | None = None,
        *,
        timeout: Duration | None = None,  # noqa: ASYNC109 - the same as of `Client`
        interval: Duration = INTERVAL,
        on_update: Callable[[JobStatus], object | Awaitable[object]] | None = None,
    ) -> Any:
        steps = requests.following(job, token, interval, timeout)
        answer: Answer | HoldfastError | None = None
        while True:
            try:
                step = steps.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(step, Request):
                answer = await self._tried(step)
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif on_update is not None and inspect.isawaitable(told := on_update(step)):
                await told

    async def cancel(self, job: str | Submitted, token: str | None = None, *, reason: str | None = None) -> JobStatus:
        return await self._ask(requests.verb("cancel", job, token, reason), JobStatus)

    async def pause(self, job: str | Submitted, token: str | None = None, *, reason: str | None = None) -> JobStatus:
        return await self._ask(requests.verb("pause", job, token, reason), JobStatus)

    async def resume(self, job: str | Submitted, token: str | None = None, *, reason: str | None = None) -> JobStatus:
        return await self._ask(requests.verb("resume", job, token, reason), JobStatus)

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient {self.url}>"

    async def _ask(self, request: Request, kind: type[T]) -> T:
        return requests.read(await self._send(request), kind)

    async def _tried(self, request: Request) -> Answer | HoldfastError:
        try:
            return await self._send(request)
        except ServerUnavailable as error:
            return error

    async def _send(self, request: Request) -> Answer:
        try:
            return _answer(await self._http.request(**_options(self.url, request, self._timeout)))
        except httpx2.TransportError as error:
            raise _unreachable(self.url, error) from None


def _headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def _options(url: str, request: Request, timeout: float) -> dict[str, Any]:
    """What httpx2 is called with."""
    options: dict[str, Any] = {
        "method": request.method, "url": url + request.path, "params": dict(request.query),
        "headers": dict(request.headers), "timeout": timeout + request.waits,
    }  # fmt: skip
    if request.body is not None:
        options["headers"]["Content-Type"] = "application/json"
        options["content"] = requests.encoded(request.body)
    return options


def _answer(response: httpx2.Response) -> Answer:
    return Answer(response.status_code, response.headers, response.content)


def _unreachable(url: str, error: Exception) -> ServerUnavailable:
    return ServerUnavailable(f"no answer came from {url}: {error or type(error).__name__}. Is the server up?")
