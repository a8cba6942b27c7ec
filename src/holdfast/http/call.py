"""One request that was let in, as its handler gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.errors import JobNotFound
from holdfast.http.gate import no_such_job
from holdfast.http.problems import HEADERS
from holdfast.http.watch import Watch
from holdfast.model.access import Access
from holdfast.model.token import Claims
from holdfast.tasks.offload import in_thread

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

    async def job(self) -> Job[Any]:
        """The job that the path names, if the token is for it."""
        try:
            job = await self.app.ajob(self.request.path_params["id"])
        except JobNotFound:
            raise no_such_job() from None
        if self.claims is not None and self.claims.created_at != job.record.created_at:
            raise no_such_job()
        return job

    async def in_thread(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        """A blocking call to the store."""
        return await in_thread(self.app, call, *args, **kwargs)

    async def alone(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A blocking call that may take minutes, on a thread of its own: the others are few, and all requests need
        them."""
        executor = ThreadPoolExecutor(1, thread_name_prefix="holdfast-http")
        try:
            return await asyncio.get_running_loop().run_in_executor(executor, partial(call, *args, **kwargs))
        finally:
            executor.shutdown(wait=False)


def answer(document: msgspec.Struct, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    data = msgspec.json.encode(document)
    return Response(data, status, {**HEADERS, **(headers or {})}, media_type="application/json")
