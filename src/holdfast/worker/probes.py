"""`holdfast worker --http`: a small server in the worker's process that says how the worker is. It needs no package,
takes few connections at once, and asks the worker's loop for nothing: it reads what that has counted."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.health import health_of_one
from holdfast.model.hosts import host_name, is_address, is_loopback
from holdfast.model.metrics import metrics_of
from holdfast.redact import scrub
from holdfast.store.base import Store
from holdfast.store.metrics import measure
from holdfast.worker.mandate import Meters

AT_ONCE = 8  # connections; more are hung up on
PATIENCE = 5.0  # seconds that a client has for its request

Answer = tuple[int, str, bytes]  # status, media type, body
Page = Callable[[], Answer]


def json(document: Any, status: int = 200) -> Answer:
    return status, "application/json", msgspec.json.encode(document)


class Pages:
    """What a worker tells of itself."""

    def __init__(self, store: Store, meters: Meters) -> None:
        self._store = store
        self._meters = meters
        self.by_path: Mapping[str, Page] = {
            "/livez": self.live, "/readyz": self.ready, "/health": self.health, "/metrics": self.prometheus,
            "/v1/metrics": self.metrics,
        }  # fmt: skip

    def live(self) -> Answer:
        """Its loop goes round, whatever the database does."""
        if self._meters.desk_lives:
            return json({"status": "ok"})
        return json({"status": "stuck", "reason": "the worker's loop has not gone round for a while"}, 503)

    def ready(self) -> Answer:
        """The database answers, and its schema fits."""
        self._store.schema.check()
        return json({"status": "ok"})

    def health(self) -> Answer:
        found = health_of_one(self._meters.polling())
        return json(found, 200 if found.healthy else 503)

    def metrics(self) -> Answer:
        """Of the whole database."""
        return json(metrics_of(measure(self._store)))

    def prometheus(self) -> Answer:
        """The same as Prometheus reads it."""
        try:
            from holdfast.prometheus import MEDIA_TYPE, exposition
        except ImportError as missing:
            return json({"reason": f"{missing.name} is missing: pip install 'holdfast[prometheus]'"}, 501)
        return 200, MEDIA_TYPE, exposition(measure(self._store))


class Probes:
    """Listens on HOST:PORT from the moment it is made. `open`: also where others can reach it."""

    def __init__(self, address: str, *, open: bool = False) -> None:
        host, port = _parted(address)
        if not open and not is_loopback(host):
            raise BadSettings(
                f"others can reach {host}, and would read health and metrics without a key: say --http-open if they "
                "may",
                number="HF1117",
            )
        try:
            [(family, *_, place), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            self._server = _Server(family, place[:2], only_local=not open)
        except OSError as error:
            raise BadSettings(
                f"can't listen on {host}, port {port}: {error}; choose another", number="HF1118"
            ) from None
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self._server.server_address[1]}"

    @contextmanager
    def answering(self, pages: Pages) -> Iterator[None]:
        self._server.pages = pages
        threading.Thread(target=self._server.serve_forever, name="holdfast-probes", daemon=True).start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()


def _parted(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise BadSettings(f"--http is an address and a port, as in 127.0.0.1:8081, not {address!r:.80}")
    return host, int(port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    pages: Pages

    def __init__(self, family: socket.AddressFamily, place: Any, *, only_local: bool) -> None:
        self.address_family = family
        self.only_local = only_local
        self._room = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(place, _Request)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up, or spoke no HTTP: that is its own business."""


class _Request(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    server_version, sys_version = "holdfast", ""

    def do_GET(self) -> None:
        status, kind, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def _answer(self) -> Answer:
        name = host_name(self.headers.get("host", ""))
        if self.server.only_local and not (is_address(name) or name == "localhost"):
            # The owner of another site may let its name lead here: then its pages could read this.
            return json({"reason": "this server does not answer to that Host"}, 421)
        page = self.server.pages.by_path.get(self.path.partition("?")[0])
        if page is None:
            return json({"reason": f"there is {', '.join(self.server.pages.by_path)}"}, 404)
        try:
            return page()
        except HoldfastError as error:
            return json({"status": "unavailable", "reason": scrub(str(error))}, 503)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Probes come every few seconds: they are not logged."""
