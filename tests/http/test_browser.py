"""The script for web pages, in a real browser, under a strict content security policy."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from holdfast import Holdfast, JobContext
from tests.http.asking import Ask
from tests.http.test_mounting import PAGE as DOCS
from tests.running import working
from tests.waiting import PATIENCE, wait_until

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs Chromium: `make test-browser` installs it")
QUIETLY = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; require-trusted-types-for 'script'"

PAGE = """<!doctype html><meta charset="utf-8"><title>Jobs</title><h1>Jobs</h1>
<script type="module" src="page.js"></script>"""

SCRIPT = """
import { pollJobStatus } from "/shop/jobs/v1/holdfast.js";

const report = { violations: [] };
document.addEventListener("securitypolicyviolation", (event) => report.violations.push(event.violatedDirective));

async function submit(task, args = {}) {
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(`jobs/v1/tasks/${task}/jobs`, { method: "POST", headers, body: JSON.stringify({ args }) });
  return answer.json();
}

/** Shows a job; resolves when it has ended. */
function shown(job, attributes = {}) {
  const element = document.createElement("holdfast-job");
  element.setAttribute("job-id", job.id);
  element.setAttribute("token", job.token);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  const seen = { updates: [] };
  const [bar, , text] = element.shadowRoot.childNodes;
  return new Promise((resolve) => {
    element.addEventListener("update", (event) => {
      const { state, progress } = event.detail;
      seen.updates.push({ state, value: bar.hasAttribute("value") ? bar.value : null, text: text.textContent });
      if (progress) fetch("go", { method: "POST" });
    });
    const ended = (event) => {
      const { type, detail } = event;
      Object.assign(seen, {
        type, result: detail instanceof Error ? detail.message : detail, code: detail?.code ?? null,
        attribute: element.getAttribute("state"), hidden: bar.hidden, label: bar.ariaLabel, tag: bar.localName,
        live: text.getAttribute("aria-live"), role: text.getAttribute("role"),
      });
      resolve(seen);
    };
    element.addEventListener("result", ended);
    element.addEventListener("failure", ended);
    document.body.append(element);
  });
}

async function polled(job, token, attempts, interval) {
  const seen = [];
  try {
    const last = await pollJobStatus(job.id, token, (update) => seen.push(update.state), attempts, interval);
    return { seen, result: last.result, state: last.state };
  } catch (error) {
    return { seen, name: error.name, message: error.message, code: error.code, status: error.status };
  }
}

try {
  report.events = await shown(await submit("crawl"), { label: "The crawl" });
  report.fallback = await shown(await submit("add", { a: 1 }), { api: "/shop/no-events/v1" });
  report.failed = await shown(await submit("fail", { message: "<b>no</b>" }));
  report.foreign = await shown({ id: "4711", token: "hfj_forged" });
  const job = await submit("add", { a: 1 });
  report.polled = await polled(job, job.token, 200, 100);
  report.forged = await polled(job, "hfj_forged", 200, 100);
  Object.assign(globalThis, { jobId: job.id, jobToken: job.token, show: (result) => (report.documented = result) });
  await import("./docs.js");
  report.submitted = await new Promise((resolve) => {
    globalThis.show = resolve;
    import("./submitting.js");
  });
  const late = await submit("later");
  report.late = await polled(late, late.token, 3, 10);

  const many = await Promise.all(Array.from({ length: 8 }, () => submit("later")));
  const ended = many.map((job) => shown(job));
  const elements = many.map((job) => document.querySelector(`holdfast-job[job-id="${job.id}"]`));
  const updated = () => Promise.all(elements.map((one) => new Promise((go) => one.addEventListener("update", go))));
  await updated();
  Object.defineProperty(document, "hidden", { value: true });
  document.dispatchEvent(new Event("visibilitychange"));
  await updated();
  await fetch("resume", { method: "POST" });
  report.many = (await Promise.all(ended)).map((seen) => seen.type);
} catch (error) {
  report.error = String(error.stack ?? error);
}
await fetch("report", { method: "POST", body: JSON.stringify(report) });
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(f"sqlite:///{tmp_path}/jobs.db", synchronous="off") as app:

        @app.task(http=True)
        def add(a: int, b: int = 2) -> int:
            return a + b

        @app.task(http=True)
        def audit(url: str) -> dict[str, int]:
            return {"score": len(url)}

        @app.task(http=True, max_attempts=1)
        def fail(message: str) -> None:
            raise ValueError(message)

        yield app


def without_events(asgi: Any) -> Any:
    """What a proxy makes of it that does not let event streams pass."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        blocked = scope["path"].endswith("/events")
        await (Response(status_code=502) if blocked else asgi)(scope, receive, send)

    return proxy


def documented(number: int) -> str:
    """The examples of the documentation."""
    codes = re.findall(r"```js\n(.*?)```", DOCS.read_text(), re.DOTALL)
    return (
        str(codes[number]).replace('"/jobs/', '"/shop/jobs/').replace("console.log(event.detail)", "show(event.detail)")
    )


def noting(asgi: Any, asked: list[str]) -> Any:
    async def call(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"].rpartition("/v1/")[2])
        await asgi(scope, receive, send)

    return call


@contextmanager
def served(routes: list[Any]) -> Iterator[str]:
    config = uvicorn.Config(
        Starlette(routes=routes), port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        [socket, *_] = server.servers[0].sockets
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)


@contextmanager
def browsing(url: str, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    assert BROWSER is not None
    with (home / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [BROWSER, *QUIETLY, "--remote-debugging-port=0", f"--user-data-dir={home}/profile", url],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait(PATIENCE)


@needs_browser
def test_a_page_follows_jobs(shop: Holdfast, tmp_path: Path) -> None:
    go = threading.Event()
    reports: list[dict[str, Any]] = []

    @shop.task(http=True)
    def crawl(ctx: JobContext) -> str:
        ctx.progress(1, total=4, note="page 1 of 4")
        assert go.wait(PATIENCE)
        return "crawled"

    @shop.task(http=True)
    def later() -> None:
        assert go.wait(PATIENCE)

    shop.pause_task("later")

    def page(body: str, kind: str) -> Callable[[Request], Response]:
        return lambda request: Response(body, media_type=kind, headers={"Content-Security-Policy": POLICY})

    async def told(request: Request) -> Response:
        if request.url.path.endswith("/go"):
            go.set()
        elif request.url.path.endswith("/resume"):
            await shop.aresume_task("later")
        else:
            reports.append(json.loads(await request.body()))
        return Response(status_code=204)

    asgi = shop.asgi(open="submitter")
    asked: list[str] = []
    routes = [
        Mount("/shop/jobs", noting(asgi, asked)), Mount("/shop/no-events", without_events(asgi)),
        Route("/shop/", page(PAGE, "text/html")), Route("/shop/page.js", page(SCRIPT, "text/javascript")),
        Route("/shop/submitting.js", page(documented(0), "text/javascript")),
        Route("/shop/docs.js", page(documented(1), "text/javascript")),
        Route("/shop/go", told, methods=["POST"]), Route("/shop/report", told, methods=["POST"]),
        Route("/shop/resume", told, methods=["POST"]),
    ]  # fmt: skip
    with working(shop), served(routes) as url, browsing(f"{url}/shop/", tmp_path) as browser:
        wait_until(lambda: reports or browser.poll() is not None, "the page to report", timeout=3 * PATIENCE)
    assert reports, (tmp_path / "browser.log").read_text()
    [report] = reports
    assert report.get("error") is None
    assert report["violations"] == []

    events = report["events"]
    assert (events["type"], events["result"], events["attribute"]) == ("result", "crawled", "succeeded")
    assert {"state": "running", "value": 0.25, "text": "Running… page 1 of 4"} in events["updates"]
    assert events["updates"][-1] == {"state": "succeeded", "value": 1, "text": "Done"}
    assert (events["tag"], events["label"]) == ("progress", "The crawl"), "its role is progressbar"
    assert (events["live"], events["role"]) == ("polite", "status")

    assert "jobs/1/events" in asked
    assert "jobs/1" not in asked, "events arrive, so it does not poll"
    assert "jobs/2/events" not in asked
    assert (report["fallback"]["type"], report["fallback"]["result"]) == ("result", 3)

    failed = report["failed"]
    assert (failed["type"], failed["code"], failed["hidden"]) == ("failure", "ValueError", True)
    assert failed["updates"][-1]["text"] == "Failed. <b>no</b>"

    assert (report["foreign"]["type"], report["foreign"]["code"]) == ("failure", "HF1301")

    assert (report["polled"]["state"], report["polled"]["result"]) == ("succeeded", 3)
    assert report["polled"]["seen"][-1] == "succeeded"
    assert report["documented"] == 3
    assert report["submitted"] == {"score": 19}
    assert (report["forged"]["code"], report["forged"]["status"], report["forged"]["seen"]) == ("HF1301", 404, [])
    assert (report["late"]["name"], len(report["late"]["seen"])) == ("TimeoutError", 3)

    assert report["many"] == ["result"] * 8
    many = [job.id for job in shop.jobs("task:later", limit=8)]
    assert sum(f"jobs/{id}/events" in asked for id in many) == 3, "the browser has connections left"
    assert all(f"jobs/{id}" in asked for id in many), "the others poll, and all do where nobody looks"


def test_the_script_is_served_to_everybody(shop: Holdfast) -> None:
    given = Ask(shop.asgi()).get("/v1/holdfast.js")
    assert (given.status_code, given.headers["content-type"]) == (200, "text/javascript; charset=utf-8")
    assert given.headers["cache-control"] == "max-age=300"
    assert "export async function pollJobStatus(" in given.text
