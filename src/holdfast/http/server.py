"""`holdfast serve`: the HTTP API in this process."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast import events
from holdfast.errors import BadSettings, RequestRefused
from holdfast.http.api import api
from holdfast.http.dashboard.page import Offer
from holdfast.http.gate import Gate
from holdfast.http.problems import answer_to
from holdfast.model.access import Role
from holdfast.model.hosts import is_loopback

if TYPE_CHECKING:
    from holdfast.app import Holdfast

Open = Role | Literal["nobody"]  # who comes without a key

HEADERS_TIMEOUT = 15.0  # seconds in which a client has to send the headers of a request
KEEP_ALIVE = (
    75  # seconds that a connection stays open between two requests: longer than a proxy keeps one (60 is usual), so
)
# that it does not send a request into one that we are closing
PATIENCE = 3  # seconds that requests under way have when the server stops
WAITING = 2048  # connections that wait to be accepted
FILES = 65_536  # that the server wants to have open at once
KEPT_FREE = 256  # of these, for the database and others
TOLD_EVERY = 60.0  # seconds


class Server(uvicorn.Server):
    """Listens from the moment it is made; whoever runs it has the signals."""

    def __init__(
        self, app: Holdfast, host: str, port: int | socket.socket, *, open: Open | None = None,
        hosts: Collection[str] = (), runs_jobs: bool = True, most: Role = "admin", offers: Sequence[Offer] = (),
    ) -> None:  # fmt: skip
        """`port`: or a socket that listens. `open`: the role of requests without a key; None: on a loopback address
        those of this machine may do everything, and nobody else anything. `most`: what everybody is at most. `offers`:
        further buttons on the pages of the dashboard."""
        loopback = is_loopback(host)
        if not loopback and open in (None, "nobody") and not app.api_keys():
            raise BadSettings(
                f"others can reach {host}, and nothing says who may come in: create a key with `holdfast keys create "
                "NAME --role operator`, or let everyone in with --open submitter",
                number="HF1117",
            )
        names = {name.lower() for name in (*hosts, "localhost", socket.gethostname())}
        role: Role | bool = False if open is None or open == "nobody" else open
        gate = Gate(app, open=role, local=loopback and open is None, hosts=names, most=most)
        self.socket = port if isinstance(port, socket.socket) else listening(host, port)
        self._room = Room()
        protocol: Any = partial(PunctualProtocol, room=self._room)
        super().__init__(
            uvicorn.Config(
                unambiguous(api(app, gate, runs_jobs=runs_jobs, offers=offers)), lifespan="off",
                http=protocol, ws="none", log_config=None, access_log=False,
                proxy_headers=False, server_header=False, timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=PATIENCE,
                log_level="error",  # a client must not be able to fill the log
            )
        )  # fmt: skip

    @property
    def url(self) -> str:
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run_until_stopped(self) -> None:
        self.run(sockets=[self.socket])

    def stop(self) -> None:
        self.handle_exit(signal.SIGTERM, None)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_trouble)
        await super().serve(sockets)

    def _on_trouble(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio tries again by itself when a connection can't be accepted, but logs each of thousands of tries."""
        if str(context.get("message", "")).startswith("socket.accept()"):
            self._room.tell()
        else:
            loop.default_exception_handler(context)


class Room:
    """How many connections there may be. Each is a file for the system, and the database needs some, too."""

    def __init__(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
        if soft != resource.RLIM_INFINITY and soft < most:  # 1024 is common, and few for clients that wait
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                soft = most
        self.connections = most if soft == resource.RLIM_INFINITY else soft
        self.connections -= min(KEPT_FREE, self.connections // 2)
        self._told = -TOLD_EVERY  # monotonic

    def tell(self) -> None:
        if time.monotonic() - self._told >= TOLD_EVERY:
            self._told = time.monotonic()
            events.emit("http_full", connections=self.connections)


def unambiguous(application: ASGIApp) -> ASGIApp:
    """Refuse requests that state their length in two ways: a proxy in front may believe the other one, and take what we
    read as a request of its own for a part of this one."""

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        stated = {name for name, _ in scope.get("headers", ())} & {b"content-length", b"transfer-encoding"}
        if len(stated) == 2:
            refused = RequestRefused(
                "the headers Content-Length and Transfer-Encoding exclude each other", status=400, number="HF1503"
            )
            answer = answer_to(refused)
            answer.headers["Connection"] = "close"
            await answer(scope, receive, send)
        else:
            await application(scope, receive, send)

    return checked


class PunctualProtocol(H11Protocol):
    """Hangs up on clients that take long to send the headers of a request, and on those for which there is no room."""

    _late: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, room: Room, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room = room

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._room.connections:
            self._room.tell()
            transport.abort()
            return
        self._late = self.loop.call_later(HEADERS_TIMEOUT, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        refused = self.conn.our_state is h11.DONE  # before its body was there, so this is the rest of it
        if self.conn.their_state is not h11.IDLE and not refused:
            self._on_time()
        elif self._late is None:
            self._late = self.loop.call_later(HEADERS_TIMEOUT, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """What came can't be read. If it is within a request whose answer has begun, it can't have one of its own; and
        one that was still to come can't follow this one."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_time()
        super().connection_lost(exc)

    def _on_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def listening(host: str, port: int) -> socket.socket:
    try:
        [(family, *_), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listening = socket.create_server((host, port), family=family, backlog=WAITING)
    except OSError as error:
        raise BadSettings(f"can't listen on {host}, port {port}: {error}; choose another", number="HF1118") from None
    # Connections inherit it. asyncio does not set it on sockets that were made like this one, and then the second part
    # of an answer waits up to 40 ms for the client to acknowledge the first.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(OSError):
        listening.set_inheritable(False)
    return listening
