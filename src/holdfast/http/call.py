"""One request that was let in, as its handler gets it."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import JobNotFound
from holdfast.http import gate
from holdfast.http.gate import no_such_job
from holdfast.http.problems import HEADERS
from holdfast.http.watch import Watch
from holdfast.model.access import Access
from holdfast.model.job import JobRecord
from holdfast.model.token import Claims
from holdfast.tasks.offload import in_long_thread, in_thread

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.job import Job


P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """`access` or `claims`: it came in by a role, or by a job token. `query` and `body`: of the types that its route
    names. `runs_jobs`: this process runs jobs that clients wait for."""

    app: Holdfast
    watch: Watch
    request: Request
    access: Access | None
    claims: Claims | None
    query: Any
    body: Any
    runs_jobs: bool

    @property
    def by(self) -> str:
        """Who asks, for the audit."""
        if self.access is None:
            return "the holder of its token"
        return self.access.by or f"{self.access.role} over HTTP"

    @property
    def lasts(self) -> float:
        """Seconds for which a stream may go on until its client has to come in anew."""
        if self.claims is None:
            return gate.ANEW
        return math.inf if self.claims.expires_at is None else self.claims.expires_at - time.time()

    async def job(self) -> Job[Any]:
        """The job that the path names, if the token is for it."""
        job = await _found(self.app.ajob(self.request.path_params["id"]))
        self._check(job.record)
        return job

    async def awaited_job(self) -> JobRecord:
        """The same for a client that waits for it: many are read at once."""
        job = await _found(self.watch.arrivals.read(self.request.path_params["id"]))
        self._check(job)
        return job

    async def changed(self, known: JobRecord, seconds: float) -> JobRecord | None:
        """The job as soon as it looks different from this, or None, as long as the client is there."""
        return await self.watch.changed(known, seconds, leaving=self._leaving)

    async def _leaving(self) -> None:
        """Returns when the client has hung up."""
        while (await self.request.receive())["type"] != "http.disconnect":
            pass  # the rest of a body that nobody reads

    def _check(self, job: JobRecord) -> None:
        if self.claims is not None and self.claims.created_at != job.created_at:
            raise no_such_job()

    async def in_thread(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """A blocking call to the store."""
        return await in_thread(self.app, call, *args, **kwargs)

    async def in_long_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A blocking call that may take minutes."""
        return await in_long_thread(self.app, call, *args, **kwargs)


async def _found(reading: Awaitable[T]) -> T:
    try:
        return await reading
    except JobNotFound:
        raise no_such_job() from None


def answer(document: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    data = msgspec.json.encode(document)
    return Response(data, status, {**HEADERS, **(headers or {})}, media_type="application/json")
