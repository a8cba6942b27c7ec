"""Websites on this machine, over real HTTP: what is audited in tests and in the scene."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

GOOD_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "max-age=31536000, immutable",
}
GOOD = """<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>Bread from a good oven</title>
<meta name="description" content="A bakery that bakes slowly, with flour from the mill next door, six days a week.">
<link rel="canonical" href="{path}"></head><body><h1>Bread</h1><h2>Rye</h2>{body}</body></html>"""
BAD = """<html><head><title>Hi</title><script src="slow.js"></script></head><body><h1>A</h1><h1>B</h1><h4>C</h4>
<img src="none.png"><a href="gone.html">here</a><input name="mail"><p id="x"></p><p id="x"></p>{body}</body></html>"""

Answer = tuple[int, dict[str, str], bytes]


class Sites(ThreadingHTTPServer):
    """Answers at `url` with what is in `pages`, and notes what was asked for."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answering)
        self.pages: dict[str, Answer | Callable[[Any], None]] = {}
        self.requests: list[str] = []
        self.held = threading.Event()  # pages that `hold` answer once this is set
        self.url = f"http://127.0.0.1:{self.server_port}"

    def page(self, path: str, body: str | bytes, status: int = 200, headers: dict[str, str] | None = None) -> str:
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (status, {"Content-Type": "text/html; charset=utf-8", **(headers or {})}, data)
        return self.url + path

    def good(self, path: str, body: str = "") -> str:
        return self.page(path, GOOD.format(path=path, body=body), headers=GOOD_HEADERS)

    def bad(self, path: str, body: str = "") -> str:
        return self.page(path, BAD.format(body=body))

    def redirect(self, path: str, location: str) -> str:
        return self.page(path, b"", 302, {"Location": location})

    def hold(self, path: str) -> str:
        """A page that comes when `held` is set."""

        def answer(request: Any) -> None:
            assert self.held.wait(60)
            request.reply(200, {"Content-Type": "text/html"}, b"<p>late</p>")

        self.pages[path] = answer
        return self.url + path

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # whoever asked has left
            super().handle_error(request, client_address)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.held.set()
        self.shutdown()
        self.server_close()


class _Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one packet for head and body

    def do_GET(self) -> None:
        assert isinstance(self.server, Sites)
        self.server.requests.append(self.path)
        answer = self.server.pages.get(self.path, (404, {"Content-Type": "text/html"}, b"<p>It is not here.</p>"))
        if callable(answer):
            answer(self)
        else:
            self.reply(*answer)

    def reply(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            for line in value.split("\n"):
                self.send_header(name, line)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read the requests, and not a log."""


def walked_offline(sites: Sites, start: str) -> set[str]:
    """The broken internal links that can be reached from a path, found in the pages as they lie there: with a regular
    expression in place of a parser, and without HTTP."""
    broken: set[str] = set()
    seen = {start}
    waiting = [start]
    while waiting:
        path = waiting.pop()
        answer = sites.pages.get(path)
        if isinstance(answer, tuple) and answer[0] == 302:
            answer = sites.pages.get(answer[1]["Location"])
        if not isinstance(answer, tuple) or answer[0] >= 400:
            broken.add(path)
            continue
        found = re.findall(r'(?:href|src)="(/[^"]*)"', answer[2].decode("latin-1"))
        for link in found:
            if link not in seen:
                seen.add(link)
                waiting.append(link)
    return broken
