"""Answers requests for pages: whole ones, and the parts of them that change, as server-sent events. A form is answered
by the page it came from, which says what became of it: so everything works without a script, too, but nothing moves."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit
from weakref import WeakKeyDictionary

import msgspec
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.errors import BadArguments, HoldfastError, RequestRefused, StoreError
from holdfast.http import bodies, gate
from holdfast.http.dashboard import render
from holdfast.http.dashboard.page import Action, Doing, Done, Fragment, Look, Offer, Page
from holdfast.http.dashboard.pages import ACTIONS, FRAGMENTS, PAGES, page_at
from holdfast.http.dashboard.views import Views
from holdfast.http.gate import COOKIE, Gate
from holdfast.http.problems import HEADERS, detail_of, status_of
from holdfast.model.access import Access
from holdfast.tasks.offload import in_long_thread

if TYPE_CHECKING:
    from holdfast.app import Holdfast

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {**HEADERS, "Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}
KEPT = "public, max-age=31536000, immutable"  # an asset's address changes with its content
SAID = "holdfast_said"  # a cookie that carries what became of a form to the page that is shown next
PING, UNREAD = 15, 30.0  # seconds, as of other event streams
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}


class Site:
    """The pages of one application, for those that the gate lets in."""

    def __init__(self, app: Holdfast, gate: Gate, offers: Sequence[Offer] = ()) -> None:
        self._app = app
        self._gate = gate
        self._offers = offers
        self._views: WeakKeyDictionary[asyncio.AbstractEventLoop, Views] = WeakKeyDictionary()

    def routes(self) -> list[Route]:
        return [
            *(Route(piece.path, self._answering(self._fragment, piece)) for piece in FRAGMENTS),
            *(Route(page.path, self._answering(self._page, page)) for page in PAGES),
            *(
                Route(action.path, self._answering(self._act, action), methods=["POST"])
                for action in (*ACTIONS, *self._offers)
            ),
            Route("/live", self._answering(self._live, None)),
            Route("/sign-in", self._answering(self._sign_in, None), methods=["POST"]),
            Route("/sign-out", self._answering(self._sign_out, None), methods=["POST"]),
            Route("/assets/{name:path}", _asset),
        ]

    def _answering(
        self, answer: Callable[[Request, Any], Awaitable[Response]], what: Page | Action | None
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                return await answer(request, what)
            except ClientDisconnect:
                return Response(status_code=499)
            except HoldfastError as error:
                return self._problem(request, error)

        return endpoint

    # -- pages -------------------------------------------------------------------------------------------------------

    async def _page(self, request: Request, page: Page) -> Response:
        access = await self._admitted(request, page)
        view = await self._view(page, request.path_params, dict(request.query_params))
        here = _here(request)
        html = render.page(
            page.name, view, base=_base(request), access=access, said=_said(request),
            live=f"live{render.query(view=here)}" if page.tick else None, here=here,
            signed_in=COOKIE in request.cookies, origin=_origin(request), offers=self._offers,
        )  # fmt: skip
        answer = Response(html, headers=PAGE_HEADERS, media_type="text/html")
        if SAID in request.cookies:
            answer.delete_cookie(SAID, path=_root(request))
        return answer

    async def _fragment(self, request: Request, piece: Fragment) -> Response:
        try:
            access = await self._admitted(request, piece)
            key, load = self._loading(piece, request.path_params, dict(request.query_params))
            view = await (in_long_thread(self._app, load) if piece.asks else self._of_loop().get(key, load))
            html, status = render.fragment(piece.name, view, access=access), 200
        except HoldfastError as error:
            html, status = render.refusal(detail_of(error)), status_of(error)
        return Response(html, status, PAGE_HEADERS, media_type="text/html")

    async def _live(self, request: Request, _: None) -> Response:
        """A page's changing part: at once if it looks different from what the client has, then whenever it changes."""
        parts = urlsplit(request.query_params.get("view", ""))
        found = page_at(parts.path)
        if found is None:
            raise RequestRefused("there is no such page", status=404, number="HF1510")
        page, path = found
        access = await self._admitted(request, page)
        query = dict(parse_qsl(parts.query))
        key, load = self._loading(page, path, query)
        base = "../" * (parts.path.count("/") - 1)
        seen = request.headers.get("last-event-id", request.query_params.get("seen", ""))

        async def changes() -> AsyncIterator[ServerSentEvent]:
            last, until = seen, time.monotonic() + gate.ANEW
            try:
                async with aclosing(self._of_loop().watch(key, load, page.tick)) as told:
                    async for news in told:
                        if time.monotonic() > until:
                            return
                        if isinstance(news, StoreError):
                            yield ServerSentEvent(detail_of(news), event="away", sep="\n")
                            continue
                        html = render.part(page.name, news, base=base, access=access)
                        if (digest := render.digest(html)) != last:
                            last = digest
                            yield ServerSentEvent(html, event="view", id=digest, sep="\n")
            except HoldfastError as error:  # as when the job that the page shows was deleted
                yield ServerSentEvent(detail_of(error), event="gone", sep="\n")

        return EventSourceResponse(changes(), ping=PING, send_timeout=UNREAD, headers=HEADERS)

    async def _view(self, page: Page, path: dict[str, str], query: dict[str, str]) -> dict[str, Any]:
        key, load = self._loading(page, path, query)
        return await self._of_loop().get(key, load)

    def _loading(
        self, page: Page, path: dict[str, str], query: dict[str, str]
    ) -> tuple[tuple[Any, ...], Callable[[], dict[str, Any]]]:  # fmt: skip
        """What a view is known by, and what reads it."""
        known = {name: value for name, value in query.items() if name in page.query.__struct_fields__}
        try:
            given = msgspec.convert(known, page.query, strict=False)
        except msgspec.ValidationError as error:
            raise BadArguments(f"the address: {error}") from None
        # What asks a worker writes down the question; all else only reads.
        asks = isinstance(page, Fragment) and page.asks
        look = Look(self._app if asks else self._app._looking, path, given, self._of_loop().seldom)

        def load() -> dict[str, Any]:
            return {"now": look.app.store.reads.now(), **page.load(look)}

        return (page.name, *sorted(path.items()), *msgspec.structs.astuple(given)), load

    def _of_loop(self) -> Views:
        return self._views.setdefault(asyncio.get_running_loop(), Views())

    # -- forms -------------------------------------------------------------------------------------------------------

    async def _act(self, request: Request, action: Action) -> Response:
        access, _ = await self._gate.admit(request, action.role, None)
        assert access is not None
        fields = await _form(request)
        back = fields.get("back", [""])[0]
        form = {name: values[-1] for name, values in fields.items()}
        doing = Doing(self._app, access.by or f"{access.role} in the dashboard", request.path_params, form, fields)
        try:
            done = await action.act(doing)
        except HoldfastError as error:
            if status_of(error) == HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            done = Done(detail_of(error), wrong=True)
        self._of_loop().forget()
        to = _of_ours(done.to if done.to is not None else back)
        if done.kept is not None:
            return await self._again(request, access, done, to)
        answer = RedirectResponse(_base(request) + (to[1:] or "."), status_code=303, headers=HEADERS)
        if not done.said:
            return answer
        said = base64.urlsafe_b64encode(json.dumps([done.said[:1000], done.wrong]).encode()).decode()
        answer.set_cookie(SAID, said, path=_root(request), httponly=True, samesite="strict", max_age=60)
        return answer

    async def _again(self, request: Request, access: Access, done: Done, to: str) -> Response:
        """The page with the form, and what was typed there."""
        found = page_at(to)
        assert found is not None
        page, path = found
        view = {**await self._view(page, path, {}), **(done.kept or {})}
        html = render.page(
            page.name,
            view,
            base=_base(request),
            access=access,
            said=None,
            live=None,
            here=to,
            signed_in=COOKIE in request.cookies,
            origin=_origin(request),
            offers=self._offers,
        )
        return Response(html, HTTPStatus.UNPROCESSABLE_ENTITY, PAGE_HEADERS, media_type="text/html")

    # -- who ---------------------------------------------------------------------------------------------------------

    async def _admitted(self, request: Request, page: Page) -> Access:
        access, _ = await self._gate.admit(request, page.role, None)
        assert access is not None
        return access

    async def _sign_in(self, request: Request, _: None) -> Response:
        """Browsers can't send an API key with a page, so a cookie does it for them."""
        fields = await _form(request)
        key = fields.get("key", [""])[0].strip()
        await self._gate.sign_in(request, key)
        to = _of_ours(fields.get("back", ["/"])[0])
        answer = RedirectResponse(to[1:] or ".", status_code=303, headers=HEADERS)
        # (A proxy that speaks TLS says nothing that we could trust; the browser does.)
        secure = request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")
        answer.set_cookie(COOKIE, key, path=_root(request), httponly=True, samesite="strict", secure=secure)
        return answer

    async def _sign_out(self, request: Request, _: None) -> Response:
        self._gate.check_origin(request)
        answer = RedirectResponse(".", status_code=303, headers=HEADERS)
        answer.delete_cookie(COOKIE, path=_root(request))
        return answer

    def _problem(self, request: Request, error: HoldfastError) -> Response:
        status = status_of(error)
        here = _here(request) if request.method == "GET" else "/"
        html = render.problem(
            detail_of(error), error.number, HTTPStatus(status).phrase, base=_base(request), here=here,
            sign_in=status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
        )  # fmt: skip
        return Response(html, status, PAGE_HEADERS, media_type="text/html")


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    found = render.STATIC / name
    if name not in render.assets():
        return Response(status_code=404, headers=HEADERS)
    kept = {**HEADERS, "Cache-Control": KEPT if "v" in request.query_params else "no-cache"}
    return Response(found.read_bytes(), headers=kept, media_type=TYPES[found.suffix[1:]])


async def _form(request: Request) -> dict[str, list[str]]:
    """The fields of a form, each with its values."""
    data = await bodies.received(request, "application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(data.decode(), keep_blank_values=True, strict_parsing=bool(data), max_num_fields=2000)
    except ValueError:
        raise RequestRefused("the form can't be read", number="HF1503") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields


def _said(request: Request) -> tuple[str, bool] | None:
    """What became of the form that led here, and whether it went wrong."""
    try:
        text, wrong = json.loads(base64.urlsafe_b64decode(request.cookies.get(SAID, "")))
        return str(text), bool(wrong)
    except (ValueError, TypeError):
        return None


def _path(request: Request) -> str:
    """The path of a request, from our root, wherever we are mounted."""
    root, path = request.scope.get("root_path", ""), request.scope["path"]
    return path[len(root) :] if root and path.startswith(root) else path or "/"


def _of_ours(place: str) -> str:
    """This place, if it is a page here: a form must not lead to another site."""
    try:
        path = urlsplit(place).path
    except ValueError:
        return "/"
    return place if place.startswith("/") and not place.startswith("//") and page_at(path) is not None else "/"


def _here(request: Request) -> str:
    query = request.url.query
    return (_path(request) or "/") + (f"?{query}" if query else "")


def _origin(request: Request) -> str:
    """Where we are, for commands that are copied."""
    return str(request.base_url).rstrip("/")


def _base(request: Request) -> str:
    """What leads from this request to our root: relative, so that it holds under any prefix."""
    return "../" * (_path(request).count("/") - 1)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", "")) or "/"
