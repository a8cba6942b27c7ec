"""The page, in a real browser: what a person reads from the click to the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from examples.claim_check.web import web
from holdfast import Holdfast
from tests.examples.claim_check.stage import stage
from tests.examples.claim_check.standin import SCORE, StandIn
from tests.http.test_browser import browsing, needs_browser, served
from tests.running import working
from tests.waiting import PATIENCE, wait_until

SCRIPT = """
import { analyzeProduct, configure, pollJobStatus } from "/static/client.js";

const report = { violations: [] };
const tell = (name, what) => fetch(`/stage/tell/${name}`, { method: "POST", body: JSON.stringify(what ?? null) });

try {
  await loaded();
  page().addEventListener("securitypolicyviolation", (event) => report.violations.push(event.violatedDirective));
  hurry(2000, 20);
  report.empty = shown();

  // One that waits at first, and is resumed once that is read; then the model takes its time.
  const ran = read(() => submit("text", "Works overnight. [[slow 1]]"));
  await until(() => $("state").textContent === "Waiting in queue...");
  report.locked = page().querySelector("button").disabled;
  report.followed = JSON.parse(sessionStorage.getItem("claim-check"));
  await tell("resume");
  report.done = await ran;
  report.unlocked = !page().querySelector("button").disabled;
  report.links = [...page().querySelectorAll("#result a")].map((a) => a.href);
  report.focused = page().activeElement.id;

  report.cached = await read(() => submit("text", "works  OVERNIGHT. [[slow 1]]"));
  report.failed = await read(() => submit("text", "Never a report [[invalid-always]]"));
  report.refused = await read(() => submit("url", "javascript:alert(1)"));

  // The tab is reloaded while it follows a job.
  await tell("pause");
  submit("text", "Reloaded");
  await until(() => $("state").textContent === "Waiting in queue...");
  frame.contentWindow.before = true;
  frame.contentWindow.location.reload();
  await until(() => !frame.contentWindow.before);
  await loaded();
  await until(() => $("state").textContent === "Waiting in queue...");
  await tell("resume");
  await until(() => shown() !== "progress");
  report.reloaded = { shown: shown(), kept: sessionStorage.getItem("claim-check") };

  // It takes longer than the page waits.
  await tell("pause");
  hurry(3, 10);
  report.late = await read(() => submit("text", "Late"));
  await tell("resume");

  // A server that wants a login, which expires under way.
  const logins = [];
  let token = null;
  configure({ base: new URL("/guarded/functions/v1/", location).href, login: {
    token: () => token,
    signIn: async () => { logins.push("sign in"); token = "expired"; },
    renew: async () => { logins.push("renew"); token = "fresh"; },
  } });
  const job = await analyzeProduct({ text: "Behind a login" });
  const updates = [];
  const last = await pollJobStatus(job.job_id, job.job_token, (one) => updates.push(one.status), 2000, 20);
  report.login = { logins: [...logins], last: last.status, told: updates.at(-1) };
  const renew = async () => logins.push("renew in vain");
  configure({ login: { token: () => "never", signIn: async () => {}, renew } });
  report.shut = await analyzeProduct({ text: "No" }).catch((error) => [error.status, error.message]);
  report.inVain = logins.filter((one) => one === "renew in vain").length;
  configure({ base: new URL("/functions/v1/", location).href, login: null });
  const refusal = (error) => [error.status, error.message];
  report.wrong = await pollJobStatus(job.job_id, job.job_id, null, 5, 10).catch(refusal);
  await tell("away", 3);
  const flaky = [];
  const again = await pollJobStatus(job.job_id, job.job_token, (one) => flaky.push(one.status), 10, 10);
  report.away = [again.status, flaky.length];
} catch (error) {
  report.error = String(error.stack ?? error);
}
await tell("report", report);
"""


@needs_browser
@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_person_reads_how_it_goes_and_what_comes_of_it(hf: Holdfast, standin: StandIn, tmp_path: Path) -> None:
    reports: list[dict[str, Any]] = []
    away = [0]

    def told(name: str, what: Any) -> Any:
        match name:
            case "report":
                reports.append(what)
            case "away":
                away[0] = what
            case "pause":
                hf.pause_task("analysis_jobs")
            case "resume":
                hf.resume_task("analysis_jobs")

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        let_in = Request(scope).headers.get("authorization") == "Bearer fresh"
        app = web if let_in else JSONResponse({"error": "the login has expired"}, 401)
        await app(scope, receive, send)

    async def flaky(scope: Any, receive: Any, send: Any) -> None:
        """Busy, as often as was told."""
        status = scope["path"].endswith("/job_status")
        if status and away[0] > 0:
            away[0] -= 1
            await Response("busy", 503)(scope, receive, send)
        else:
            await web(scope, receive, send)

    routes: list[Any] = [Mount("/guarded", guarded), Mount("/functions", _under("/functions", flaky))]
    hf.pause_task("analysis_jobs")
    hf.reconfigure(poll_base=0.1, poll_max=0.1)
    with (
        working(hf), served([Mount("/", stage(SCRIPT, told, routes))]) as url,
        browsing(f"{url}/stage/", tmp_path) as browser,
    ):  # fmt: skip
        wait_until(lambda: reports or browser.poll() is not None, "the page to report", timeout=4 * PATIENCE)
    assert reports, (tmp_path / "browser.log").read_text()
    [report] = reports
    assert report.get("error") is None
    assert report["violations"] == []
    assert report["empty"] is None

    assert report["locked"]
    assert report["unlocked"]
    assert len(report["followed"]) == 2, "the job and its token, as long as it is followed"
    done = report["done"]
    assert done["states"] == ["Sending...", "Waiting in queue...", "Processing analysis..."]
    assert (done["shown"], done["kept"], report["focused"]) == ("result", None, "result")
    for text in (f"{SCORE:.1f}", "Sold as a cure for everything", "Works overnight", "nobody has measured it",
                 "A countdown that starts again", "Marketing overclaim", "A test", "Judged by stand-in"):  # fmt: skip
        assert text in done["text"], done["text"]
    assert "earlier" not in done["text"]
    assert report["links"] == ["https://example.org/test"]

    cached = report["cached"]
    assert cached["states"] == ["Sending..."], "straight to the result"
    assert (cached["shown"], cached["kept"]) == ("result", None)
    assert "from an earlier check" in cached["text"]

    failed = report["failed"]
    assert (failed["shown"], failed["kept"]) == ("error", None)
    assert "SCHEMA_VALIDATION_FAILED" in failed["text"]
    assert "not a web address" in report["refused"]["text"]
    assert report["reloaded"] == {"shown": "result", "kept": None}
    assert (report["late"]["shown"], report["late"]["kept"]) == ("error", None)
    assert "longer than usual" in report["late"]["text"]

    assert report["login"] == {"logins": ["sign in", "renew"], "last": "done", "told": "done"}
    assert report["shut"] == [401, "the login has expired"]
    assert report["inVain"] == 1
    assert report["wrong"] == [404, "there is no job with this id and token"]
    assert report["away"] == ["done", 1]
    # Equal ones cost one call, the refused address none, the bad report two; "Late" may be under way.
    assert 5 <= standin.calls <= 6


def _under(prefix: str, app: Any) -> Any:
    """The application as if it were mounted at the root."""

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "root_path": scope["root_path"].removesuffix(prefix)}, receive, send)

    return call
