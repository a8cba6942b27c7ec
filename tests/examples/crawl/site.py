"""A web site on this machine, to be crawled: pages, or a folder of files; with faults, and a log of who asked when."""

from __future__ import annotations

import mimetypes
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

LONGEST_HANG = 30.0  # seconds


@dataclass(frozen=True)
class Reply:
    body: bytes | str = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    type: str = "text/html; charset=utf-8"
    slow: float = 0.0  # seconds before it
    cut: bool = False  # the connection ends in the middle of the body
    hang: bool = False  # it never comes


@dataclass(frozen=True)
class Asked:
    at: float  # monotonic
    path: str
    headers: dict[str, str]


Page = str | Reply | Callable[[Asked], Reply]


def page(*links: str, title: str = "A page", head: str = "") -> str:
    anchors = "".join(f'<li><a href="{link}">to {link}</a></li>' for link in links)
    return f"<!doctype html><html><head><title>{title}</title>{head}</head><body><ul>{anchors}</ul></body></html>"


class Site:
    """`pages` by path, with its query. What is not there is a 404. `latency`: seconds before each answer. `fault`: what
    a request gets instead of its page, if anything."""

    def __init__(
        self, pages: dict[str, Page] | None = None, *, folder: Path | None = None, latency: float = 0.0,
        fault: Callable[[Asked, int], Reply | None] | None = None, port: int = 0,
    ) -> None:  # fmt: skip
        self.pages = pages or {}
        self.folder = folder
        self.latency = latency
        self.fault = fault
        self.asked: list[Asked] = []
        self.times: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._over = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # head and body are two writes

            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *args: Any) -> None: ...

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *args: Any) -> None: ...  # clients are killed in the middle of requests

        self._server = Server(("127.0.0.1", port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="site", kwargs={"poll_interval": 0.05})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        asked = Asked(time.monotonic(), handler.path, {k.lower(): v for k, v in handler.headers.items()})
        with self._lock:
            self.asked.append(asked)
            self.times[handler.path] += 1
            number = self.times[handler.path]
        reply = (self.fault(asked, number) if self.fault is not None else None) or self._page(asked)
        if self._over.wait(self.latency + reply.slow) or (reply.hang and self._over.wait(LONGEST_HANG)):
            handler.close_connection = True
            return
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        handler.send_response(reply.status)
        handler.send_header("Content-Type", reply.type)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if reply.status != 304:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if reply.cut else body if reply.status != 304 else b"")
        if reply.cut:
            handler.wfile.flush()
            handler.close_connection = True

    def _page(self, asked: Asked) -> Reply:
        found = self.pages.get(asked.path)
        if found is None and self.folder is not None:
            return self._file(asked.path)
        if found is None:
            return Reply("not here", 404, type="text/plain")
        reply = found(asked) if callable(found) else found
        return Reply(reply) if isinstance(reply, str) else reply

    def _file(self, path: str) -> Reply:
        assert self.folder is not None
        file = self.folder / unquote(urlsplit(path).path).lstrip("/")
        if file.is_dir():
            file /= "index.html"
        if ".." in file.parts or not file.is_file():
            return Reply("not here", 404, type="text/plain")
        return Reply(file.read_bytes(), type=mimetypes.guess_type(file.name)[0] or "application/octet-stream")

    # -- what the log says ---------------------------------------------------------------------------------------------

    @property
    def paths(self) -> list[str]:
        return [asked.path for asked in list(self.asked)]

    def gaps(self) -> list[float]:
        """The seconds between two requests that followed each other."""
        times = sorted(asked.at for asked in list(self.asked))
        return [after - before for before, after in pairwise(times)]


def faults(seed: int, every: int = 10) -> Callable[[Asked, int], Reply | None]:
    """About one in so many addresses fails when it is first asked for: always the same ones, each in its own way."""
    kinds: Iterable[Reply] = (
        Reply("broken", 500, type="text/plain"), Reply(page(), cut=True), Reply(hang=True),
        Reply("busy", 503, {"Retry-After": "0"}, type="text/plain"),
    )  # fmt: skip
    several = list(kinds)

    def fault(asked: Asked, number: int) -> Reply | None:
        chance = zlib.crc32(f"{seed} {asked.path}".encode())
        return several[chance // every % len(several)] if number == 1 and chance % every == 0 else None

    return fault
