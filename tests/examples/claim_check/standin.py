"""Stands in for the model: a server on this machine that speaks both wire shapes.

A marker in the material chooses what goes wrong, such as `[[500-once]]`: see FAULTS. A marker may have a name after a
space, `[[500-once A]]`: what happens once, happens once for each. Calls are counted, those that fail too."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

REPORT = """BUNKD_V1
SUMMARY: Sold as a cure for everything, tested for nothing.
EVIDENCE_BULLETS:
- No study of it was found
- The maker names no ingredient
SUBSCORES:
HE: 8.5
AT: 7
MO: 9.5
PV: 6
KEY_CLAIMS:
- Works overnight | unsupported | nobody has measured it
- Made in the EU | supported | the register says so
RED_FLAGS:
- A countdown that starts again
CITATIONS:
- https://example.org/test | A test | It did nothing
"""
SCORE = 8.0
MODEL = "stand-in"
SOURCES = [
    {"title": "The same test", "url": "https://EXAMPLE.org/test?utm_source=model", "snippet": "Nothing at all"},
    {"title": "A register", "url": "https://example.net/register", "snippet": "An entry"},
]
FAULTS = {
    "ok": "a report",
    "429": "429 with Retry-After: 1, once",
    "500-once": "500, then a report",
    "500-always": "500",
    "slow": "a report after so many seconds: [[slow 5]]",
    "invalid-once": "no report, until the strict message",
    "invalid-always": "no report",
    "truncated": "the connection breaks in the middle of a reply",
    "not-json": "200 and HTML",
    "sources": "a report, and search_results or annotations",
    "only-sources": "a report without CITATIONS; search_results or annotations have them",
    "cut": "a report that the server cut at its length limit",
    "status": "any status: [[status 401]]",
    "large": "a reply of two megabytes",
    "dribble": "a byte every tenth of a second, for ever",
}
MARKER = re.compile(rf"\[\[(?P<fault>{'|'.join(FAULTS)})(?: (?P<argument>[^\]]*))?\]\]")


class StandIn:
    """Serves at `url` while it is entered."""

    def __init__(self, port: int = 0) -> None:
        self._server = _Server(self, port)
        self._lock = threading.Lock()
        self._seen: Counter[str] = Counter()
        self.closed = threading.Event()
        self.requests: list[dict[str, Any]] = []  # bodies, oldest first
        self.headers: list[dict[str, str]] = []
        self.statuses: list[int] = []  # of the next answers
        self.replies: list[Any] = []  # the next answers, as JSON
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    @property
    def calls(self) -> int:
        return len(self.requests)

    def received(self, headers: dict[str, str], body: dict[str, Any]) -> tuple[str, str, int]:
        """The fault that the material asks for, its argument, and how often this marker has come, now included."""
        found = MARKER.search(_question(body))
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            marker = found[0] if found else ""
            self._seen[marker] += 1
            return (found["fault"], found["argument"] or "", self._seen[marker]) if found else ("ok", "", 1)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()


def _question(body: dict[str, Any]) -> str:
    """The text of the last message."""
    content = (body.get("messages") or body["input"])[-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, standin: StandIn, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.standin = standin

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # whoever asked has left
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def standin(self) -> StandIn:
        assert isinstance(self.server, _Server)
        return self.server.standin

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        standin = self.standin
        fault, argument, times = standin.received(dict(self.headers), body)
        shape = {"/v1/chat/completions": _chat, "/v1/responses": _responses}.get(self.path)
        if shape is None:
            self.answer(404, b"no such endpoint")
        elif standin.statuses and (status := standin.statuses.pop(0)) != 200:
            self.answer(status, b"as the test says")
        elif standin.replies:
            self.answer(200, json.dumps(standin.replies.pop(0)).encode())
        elif fault == "429" and times == 1:
            self.answer(429, b'{"error": "too many requests"}', {"Retry-After": "1"})
        elif (fault == "500-once" and times == 1) or fault == "500-always":
            self.answer(500, b"out of order")
        elif fault == "status":
            self.answer(int(argument), f'{{"error": "refused", "seen": "{self.headers["Authorization"]}"}}'.encode())
        elif fault == "not-json":
            self.answer(200, b"<html>Welcome to the proxy</html>")
        elif fault == "large":
            self.answer(200, json.dumps(shape(REPORT + "x" * 2_000_000)).encode())
        elif fault == "truncated":
            self.answer(200, json.dumps(shape(REPORT)).encode(), part=0.5)
        elif fault == "dribble":
            self.dribble()
        else:
            if fault == "slow":
                standin.closed.wait(float(argument))
            self.answer(200, json.dumps(self.reply(shape, fault, _question(body))).encode())

    def reply(self, shape: Any, fault: str, question: str) -> dict[str, Any]:
        strict = question.startswith("STRICT FORMAT")
        if fault == "invalid-always" or (fault == "invalid-once" and not strict):
            return dict(shape("Sure, here is the report you asked for.\n\n" + REPORT))
        if fault == "sources":
            return dict(shape(REPORT, sources=True))
        if fault == "only-sources":
            return dict(shape(REPORT[: REPORT.index("CITATIONS")], sources=True))
        if fault == "cut":
            return dict(shape(REPORT[: REPORT.index("RED_FLAGS")], cut=True))
        return dict(shape(REPORT))

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, part: float = 1) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: int(len(body) * part)])
        self.close_connection = self.close_connection or part < 1

    def dribble(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()
        self.close_connection = True
        standin = self.standin
        while not standin.closed.wait(0.1):
            self.wfile.write(b" ")

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read the counts, and not a log."""


def _chat(text: str, sources: bool = False, cut: bool = False) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "length" if cut else "stop",
    }
    found = {"citations": [source["url"] for source in SOURCES], "search_results": SOURCES} if sources else {}
    return {"id": "1", "object": "chat.completion", "model": MODEL, "choices": [choice], **found}


def _responses(text: str, sources: bool = False, cut: bool = False) -> dict[str, Any]:
    annotations = [{"type": "url_citation", **source} for source in SOURCES] if sources else []
    part = {"type": "output_text", "text": text, "annotations": annotations}
    message = {"id": "2", "type": "message", "role": "assistant", "content": [part]}
    status = "incomplete" if cut else "completed"
    return {
        "id": "1",
        "object": "response",
        "model": MODEL,
        "status": status,
        "output": [{"type": "reasoning"}, message],
    }


if __name__ == "__main__":
    with StandIn(8765) as standin:
        print(f"CLAIM_CHECK_MODEL_URL={standin.url}", flush=True)
        while True:
            time.sleep(3600)
