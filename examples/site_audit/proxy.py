"""What a browser reaches the web through: it connects to public addresses only, and passes on no more than a page may
have. Chromium looks up no name itself, so no page can lead it to a neighbour."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from selectors import EVENT_READ, DefaultSelector
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any

import httpcore2

from examples.safe_http import Refused, SafeNetwork, web_address

LARGEST_HEAD = 64_000  # bytes of a request's head
MOST_BYTES = 50_000_000  # of a page and all that it loads


class Proxy(ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *, allow_private: bool, seconds: float) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.network = SafeNetwork(allow_private)
        self.ends = time.monotonic() + seconds
        self.bytes_left = MOST_BYTES
        self.refused: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def proxy(*, allow_private: bool, seconds: float) -> Iterator[Proxy]:
    """For so many seconds. Then it passes on nothing any more."""
    with Proxy(allow_private=allow_private, seconds=seconds) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


class _Passing(BaseRequestHandler):
    server: Proxy
    request: socket.socket

    def handle(self) -> None:
        with suppress(OSError):  # either side may leave at any time
            head, rest = self._head()
            if head:
                self._answer(head.decode("latin-1").split("\r\n"), rest)

    def _answer(self, head: list[str], rest: bytes) -> None:
        method, target, *_ = [*head[0].split(" "), "", ""]
        try:
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                there = self._connect(host.strip("[]"), int(port))
                self.request.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                url = web_address(target)
                there = self._connect(url.host, url.port or 80)
                rest = _asked_plainly(method, url.raw_path.decode(), head[1:]) + rest
        except (Refused, ValueError, httpcore2.NetworkError, httpcore2.TimeoutException) as error:
            self.server.refused.append(f"{target:.200}: {error}")
            self.request.sendall(b"HTTP/1.1 502 Refused\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        with there:
            there.sendall(rest)
            self._pass_on(there)

    def _head(self) -> tuple[bytes, bytes]:
        """A request's head, and what came along with it."""
        data = b""
        while b"\r\n\r\n" not in data:
            self.request.settimeout(max(0.1, self.server.ends - time.monotonic()))
            more = self.request.recv(65_536)
            if not more or len(data) > LARGEST_HEAD:
                return b"", b""
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    def _connect(self, host: str, port: int) -> socket.socket:
        self.server.network.deadline = self.server.ends
        found: socket.socket = self.server.network.connect_tcp(host, port).get_extra_info("socket")
        return found

    def _pass_on(self, there: socket.socket) -> None:
        """Both ways, until one side ends or the page has had enough."""
        ways = {self.request: there, there: self.request}
        with DefaultSelector() as ready:
            for way in ways:
                ready.register(way, EVENT_READ)
            while (left := self.server.ends - time.monotonic()) > 0 and self.server.bytes_left > 0:
                for key, _ in ready.select(left):
                    side: Any = key.fileobj
                    if not (data := side.recv(65_536)):
                        return
                    self.server.bytes_left -= len(data)
                    ways[side].settimeout(left)
                    ways[side].sendall(data)


def _asked_plainly(method: str, target: str, headers: list[str]) -> bytes:
    """As the server itself wants to be asked, once for each connection."""
    kept = [line for line in headers if not line.lower().startswith(("proxy-", "connection:", "keep-alive:"))]
    return "\r\n".join([f"{method} {target} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1")
