"""`holdfast serve`: the HTTP API in this process."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from holdfast.errors import BadSettings
from holdfast.http.api import api
from holdfast.http.gate import Gate
from holdfast.model.access import Role
from holdfast.model.hosts import is_loopback

if TYPE_CHECKING:
    from holdfast.app import Holdfast

Open = Role | Literal["nobody"]  # who comes without a key

HEADERS_TIMEOUT = 15.0  # seconds in which a client has to send the headers of a request
PATIENCE = 3  # seconds that requests under way have when the server stops
WAITING = 2048  # connections that wait to be accepted


class Server(uvicorn.Server):
    """Listens from the moment it is made; whoever runs it has the signals."""

    def __init__(
        self, app: Holdfast, host: str, port: int, *, open: Open | None = None, hosts: Collection[str] = (),
        runs_jobs: bool = True,
    ) -> None:  # fmt: skip
        """`open`: the role of requests without a key. None: on a loopback address those of this machine may do
        everything, and nobody else anything."""
        loopback = is_loopback(host)
        if not loopback and open in (None, "nobody") and not app.api_keys():
            raise BadSettings(
                f"others can reach {host}, and nothing says who may come in: create a key with `holdfast keys create "
                "NAME --role operator`, or let everyone in with --open submitter",
                number="HF1117",
            )
        names = {name.lower() for name in (*hosts, "localhost", socket.gethostname())}
        role: Role | bool = False if open is None or open == "nobody" else open
        gate = Gate(app, open=role, local=loopback and open is None, hosts=names)
        self.socket = _listening(host, port)
        super().__init__(
            uvicorn.Config(
                api(app, gate, runs_jobs=runs_jobs), lifespan="off",
                http=PunctualProtocol, ws="none", log_config=None, access_log=False,
                proxy_headers=False, server_header=False, timeout_graceful_shutdown=PATIENCE,
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


class PunctualProtocol(H11Protocol):
    """Hangs up on clients that take long to send the headers of a request."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEADERS_TIMEOUT, transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._on_time()
        elif self._late is None:
            self._late = self.loop.call_later(HEADERS_TIMEOUT, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_time()
        super().connection_lost(exc)

    def _on_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def _listening(host: str, port: int) -> socket.socket:
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
