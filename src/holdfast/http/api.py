"""The ASGI application: lets a request in, reads its body, calls the handler, and turns errors into answers. It needs
no lifespan, so it can be mounted anywhere; served by itself, it closes the application in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute

from holdfast import events
from holdfast.errors import HoldfastError, RequestRefused
from holdfast.http import bodies
from holdfast.http.call import Call
from holdfast.http.dashboard.page import Offer
from holdfast.http.dashboard.site import Site
from holdfast.http.gate import Gate
from holdfast.http.problems import HEADERS, answer_to, status_of
from holdfast.http.routes import ROUTES, Route
from holdfast.http.watch import Watch, stopping

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SCRIPT = Path(__file__).with_name("holdfast.js")
PROBES = frozenset(["/health", "/livez", "/readyz"])
GONE = Response(status_code=499)  # nobody reads it
STOPS = RequestRefused(
    "the server stops before this has ended: send it again, or look what became of it, when the server is back",
    status=503, number="HF1514",
)  # fmt: skip


def api(app: Holdfast, gate: Gate, *, runs_jobs: bool, offers: Sequence[Offer] = ()) -> Starlette:
    """This application's jobs over HTTP, for those that the gate lets in. `runs_jobs`: this process runs jobs that
    clients wait for. `offers`: further buttons on the pages of the dashboard."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    answering = Answering(app, gate, runs_jobs)
    site = Site(app, gate, offers)
    made = [StarletteRoute(path, answering.by(routes), methods=list(routes)) for path, routes in by_path.items()]
    made.append(StarletteRoute("/v1/holdfast.js", _script))
    made += site.routes()
    for one in made:  # a HEAD of a stream of events would never end; those who ask whether we are up send it
        one.methods = {method for method in one.methods or () if method != "HEAD" or one.path in PROBES}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(app.close)

    handlers = {HTTPException: _refused, Exception: _failed}
    application = Starlette(routes=made, exception_handlers=handlers, lifespan=lifespan)
    application.router.redirect_slashes = False  # to a place made from the Host header, before anybody has checked it
    return application


class Answering:
    """Answers requests, each by the route of its path and method."""

    def __init__(self, app: Holdfast, gate: Gate, runs_jobs: bool) -> None:
        self._app = app
        self._gate = gate
        self._runs_jobs = runs_jobs
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, Watch] = WeakKeyDictionary()
        self._away = False  # the database, when it was last asked

    def by(self, routes: dict[str, Route]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                answer = await self._answer(routes[request.method if request.method != "HEAD" else "GET"], request)
            except ClientDisconnect:
                return GONE
            except asyncio.CancelledError:
                if not stopping():
                    raise
                return answer_to(STOPS)
            except HoldfastError as error:
                self._log(error)
                return answer_to(error)
            self._away = False
            return answer

        return endpoint

    async def _answer(self, route: Route, request: Request) -> Response:
        access, claims = await self._gate.admit(
            request, route.role, route.scope, token_in_query=route.token_in_query
        )  # fmt: skip
        query = bodies.query(request, route.query)
        body = None if route.takes is None or route.lines else await bodies.read(request, route.takes)
        watch = self._watches.setdefault(asyncio.get_running_loop(), Watch(self._app))
        return await route.handler(Call(self._app, watch, request, access, claims, query, body, self._runs_jobs))

    def _log(self, error: HoldfastError) -> None:
        """What the server can't help, once for each outage: every client gets the same answer meanwhile."""
        status = status_of(error)
        if status == 500 or (status == 503 and not self._away):
            events.emit("http_failed", error=str(error))
        self._away = self._away or status == 503


async def _script(request: Request) -> Response:
    """For web pages that follow jobs. It is the same for everybody, so it needs no role."""
    kept = {**HEADERS, "Cache-Control": "max-age=300"}
    return Response(SCRIPT.read_bytes(), headers=kept, media_type="text/javascript")


async def _refused(request: Request, error: Exception) -> Response:
    """There is no such route; or the application's own rule says so."""
    assert isinstance(error, HTTPException)
    detail, number = f"there is no such route here: {request.method} {request.url.path:.200}", "HF1510"
    if error.status_code not in (404, 405):
        detail, number = error.detail, "HF1501" if error.status_code == 401 else "HF1502"
    answer = answer_to(RequestRefused(detail, status=error.status_code, number=number))
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    return answer_to(HoldfastError("an error of ours"))
