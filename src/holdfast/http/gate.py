"""Decides who may come in: by job token, API key, the application's own `authorize`, or because the server is open."""

from __future__ import annotations

import inspect
import time
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from holdfast.errors import BadSettings, JobNotFound, RequestRefused
from holdfast.model import access, token
from holdfast.model.access import ROLES, Access, Authorize, Role, Scope, suffices
from holdfast.model.hosts import host_name, is_address, is_loopback
from holdfast.model.token import Claims
from holdfast.tasks.offload import in_thread

if TYPE_CHECKING:
    from holdfast.app import Holdfast

COOKIE = "holdfast_key"  # the API key of somebody who signed in to the dashboard
SAFE = frozenset(["GET"])  # methods that change nothing
# A proxy passes requests of others on: then a loopback address says nothing about who asks. How its headers begin:
FORWARDED = (
    "forwarded", "x-forwarded-", "x-original-", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-envoy-",
    "cf-connecting-ip", "true-client-ip", "fastly-client-ip", "cdn-loop", "via",
)  # fmt: skip
ANEW = 900.0  # seconds after which who listens to events by a role has to come in anew: their key may be revoked by now
OF_PROXIES = "1.0"  # the version of HTTP that nginx speaks unless told otherwise, and no browser


class Gate:
    """`local`: whoever is on this machine may do everything; for a server on a loopback address. `hosts`: the names
    that the server answers to, beside addresses; None: any. `most`: what everybody is at most."""

    def __init__(
        self,
        app: Holdfast,
        authorize: Authorize | None = None,
        *,
        open: bool | Role = False,
        local: bool = False,
        hosts: Collection[str] | None = None,
        most: Role = "admin",
    ) -> None:
        if open not in (True, False, *ROLES):
            raise BadSettings(f"open is True, False or a role ({', '.join(ROLES)}), not {open!r:.80}")
        if authorize is not None and not callable(authorize):
            raise BadSettings(f"authorize is a function that takes a request, not {authorize!r:.80}")
        self._app = app
        self._authorize = authorize
        self._open: Role | None = ("admin" if open is True else open) or None
        self._local = local
        self._hosts = hosts
        self._most = most

    async def admit(
        self, request: Request, role: Role | None, scope: Scope | None, *, token_in_query: bool = False
    ) -> tuple[Access | None, Claims | None]:
        """Let a request in that has this role (None: everyone), or a job token with this scope (None: tokens don't
        help). Returns its access, or what its token grants."""
        self._check_host(request)
        if role is None:
            return None, None
        given = _bearer(request)
        if token_in_query and not given:
            given = request.query_params.get("token", "")
            if given.startswith(access.PREFIX):
                raise RequestRefused(
                    "an address ends up in logs, and an API key opens more than one job: revoke this one, and send "
                    "another in the Authorization header (Bearer)",
                    status=401, number="HF1501",
                )  # fmt: skip
        if given.startswith(token.PREFIX):
            return None, await self._by_token(given, request, scope)
        if given.startswith(access.PREFIX):
            found: Access | None = await self._by_key(given)
        else:
            found = await self._ambient(request)
        if found is None:
            raise RequestRefused(
                "this needs an API key, or the token of the job, in the Authorization header (Bearer)",
                status=401, number="HF1501",
            )  # fmt: skip
        if suffices(found.role, self._most):
            found = Access(self._most, found.by)
        if not suffices(found.role, role):
            raise RequestRefused(f"this needs the role {role}; you are {found.role}", status=403, number="HF1502")
        return found, None

    async def sign_in(self, request: Request, key: str) -> None:
        """Let somebody in who has this API key and wants a cookie for it, from our own page."""
        self.check_origin(request)
        await self._by_key(key)

    def check_origin(self, request: Request) -> None:
        """For what everybody may do, but only from our own pages."""
        self._check_host(request)
        if not _same_origin(request):
            raise RequestRefused("another site may not sign you in or out", status=403, number="HF1507")

    async def _by_token(self, given: str, request: Request, scope: Scope | None) -> Claims:
        if scope is None:
            raise RequestRefused(
                "a job token shows one job and no more; this needs an API key", status=403, number="HF1502"
            )
        secret = await in_thread(self._app, lambda: self._app.store.credentials.signing_secret())
        claims = token.verified(secret, given, time.time())
        if claims is None or claims.id != request.path_params["id"]:
            raise no_such_job()
        if scope == "control" and claims.scope != "control":
            raise RequestRefused("this token only shows the job; it can't change it", status=403, number="HF1502")
        return claims

    async def _by_key(self, given: str) -> Access:
        key = await in_thread(self._app, lambda: self._app.store.credentials.key(given))
        if key is None:
            raise RequestRefused("this API key is wrong, or was revoked", status=401, number="HF1501")
        return Access(key.role, by=f"API key {key.name}")

    async def _ambient(self, request: Request) -> Access | None:
        """What a browser has without saying so: a session, its address. Another site could make it send a request, so
        those that change something must come from our own pages. (Browsers keep sessions from other sites; they can't
        know that the address is one, so it opens nothing to them at all.) No browser sends a bearer token by itself:
        one that the application's rule knows may come from anywhere."""
        foreign = request.method not in SAFE and not _same_origin(request)
        if self._authorize is not None and (not foreign or _bearer(request)):
            found = await self._asked(request)
            if found is not None:
                return found
        if foreign:
            raise RequestRefused("a request from another site may not change anything", status=403, number="HF1507")
        if (given := request.cookies.get(COOKIE, "")).startswith(access.PREFIX):
            with suppress(RequestRefused):  # it was revoked: who comes without it may have another way in
                return await self._by_key(given)
        if self._local and _is_local(request):
            if not (_same_origin(request) or request.headers.get("sec-fetch-mode") == "navigate"):
                raise RequestRefused(
                    "a page of another site may not ask for this; it can only lead somebody here",
                    status=403, number="HF1507",
                )  # fmt: skip
            return Access("admin", by="somebody on this machine")
        return None if self._open is None else Access(self._open, by="anyone")

    async def _asked(self, request: Request) -> Access | None:
        authorize = self._authorize
        assert authorize is not None
        if inspect.iscoroutinefunction(authorize):
            found = await authorize(request)
        else:
            found = await run_in_threadpool(authorize, request)
            if inspect.isawaitable(found):
                found = await found
        if found is not None and not (isinstance(found, Access) and found.role in ROLES):
            raise BadSettings(f"authorize returned {type(found).__name__}; it returns Access(role, by=…) or None")
        return found

    def _check_host(self, request: Request) -> None:
        """The owner of another site may let its name lead here: then the requests of its pages bring that name."""
        name = host_name(request.headers.get("host", ""))
        if self._hosts is not None and name not in self._hosts and not is_address(name):
            raise RequestRefused(
                "this server does not answer to that Host; start it with --allow-host to add a name",
                status=421, number="HF1508",
            )  # fmt: skip


def no_such_job() -> JobNotFound:
    """The same whether there is no such job or the token is not for it."""
    return JobNotFound("there is no such job, or the token is not for it")


def _is_local(request: Request) -> bool:
    proxied = any(name.startswith(FORWARDED) for name in request.headers) or request.scope["http_version"] == OF_PROXIES
    return request.client is not None and is_loopback(request.client.host) and not proxied


def _bearer(request: Request) -> str:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def _same_origin(request: Request) -> bool:
    """Programs send neither header; browsers send the first, and old ones the second."""
    fetched = request.headers.get("sec-fetch-site")
    if fetched is not None:
        return fetched in ("same-origin", "none")
    origin = request.headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:  # not a URL
        return False
