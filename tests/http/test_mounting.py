"""Under any path, in any ASGI application, without a lifespan."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import BadSettings, Holdfast, State
from tests.http.asking import Ask, bearer
from tests.http.test_server import answer_to, begun
from tests.waiting import PATIENCE, wait_until

PAGE = Path(__file__).parents[2] / "docs" / "http.md"


def starlette(asgi: Any) -> Any:
    return Starlette(routes=[Mount("/a", routes=[Mount("/b", asgi)])])


def fastapi(asgi: Any) -> Any:
    app, inner = FastAPI(), FastAPI()
    inner.mount("/b", asgi)
    app.mount("/a", inner)
    return app


def behind_a_proxy(asgi: Any) -> Any:
    """It takes the prefix away and says nothing about it."""

    async def proxy(scope: dict[str, Any], receive: Any, send: Any) -> None:
        path = scope["path"].removeprefix("/a/b")
        await asgi({**scope, "path": path, "raw_path": path.encode()}, receive, send)

    return proxy


@pytest.mark.parametrize("mounted", [starlette, fastapi, behind_a_proxy])
def test_it_works_under_any_path(tasked: Holdfast, mounted: Any) -> None:
    ask = Ask(mounted(tasked.asgi(open="submitter")))
    made = ask.post("/a/b/v1/tasks/add/jobs", json={"args": {"a": 1}})
    assert made.status_code == 202
    where = made.url.join(made.headers["location"])
    assert where.path == f"/a/b/v1/jobs/{made.json()['id']}"
    tasked.drain()
    shown = ask.get(str(where), headers=bearer(made.json()["token"]))
    assert (shown.status_code, shown.json()["result"]) == (200, 3)
    events = ask.get(f"{where}/events?token={made.json()['token']}")
    assert events.text.count("event: status") == 1
    assert ask.get("/a/b/v1/nothing").json()["code"] == "HF1510"


def test_the_example_of_the_page(tasked: Holdfast) -> None:
    [code] = re.findall(r"```python\n# web.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    app, web = ModuleType("app"), ModuleType("web")
    app.hf = tasked  # type: ignore[attr-defined]
    with mock.patch.dict(sys.modules, {"app": app}):
        exec(compile(code, "web.py", "exec"), vars(web))
    ask = Ask(web.web)
    place = "/jobs/v1/tasks/add/jobs"
    assert ask.post(place, json={"args": {"a": 1}}).status_code == 401
    assert ask.post(place, json={"args": {"a": 1}}, headers={"X-User": "ann"}).status_code == 202


APP = """
import time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast()

@hf.task(http=True, max_attempts=1)
def slow() -> str:
    Path("begun").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    return "done"

api = hf.asgi(open="submitter")
"""


@pytest.mark.parametrize("place", ["app:api", "web:web"])
def test_a_web_server_that_stops_lets_jobs_finish_that_run_in_it(tmp_path: Path, place: str) -> None:
    """uvicorn kills itself in the end, by the signal that stopped it: nothing runs at exit."""
    [code] = re.findall(r"```python\n# web.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "web.py").write_text(code)
    (tmp_path / "app.py").write_text(APP)
    url = f"sqlite:///{tmp_path}/jobs.db"
    log = tmp_path / "said.log"
    with log.open("wb") as said, subprocess.Popen(
        [sys.executable, "-m", "uvicorn", place, "--port", "0"], cwd=tmp_path, stdout=said, stderr=said,
        env={**os.environ, "HOLDFAST_URL": url},
    ) as server:  # fmt: skip
        try:
            wait_until(lambda: "running on" in log.read_text() or server.poll() is not None)
            [port] = re.findall(r"running on http://127\.0\.0\.1:(\d+)", log.read_text())
            url_of, root = f"http://127.0.0.1:{port}", "/jobs" if place == "web:web" else ""
            path = f"{url_of}{root}/v1/tasks/slow/jobs?wait=0.1"
            made = httpx2.post(path, json={}, headers={"X-User": "ann"}, timeout=PATIENCE, trust_env=False)
            assert made.status_code == 202, log.read_text()
            wait_until((tmp_path / "begun").exists)
            waiting = begun(url_of, f"GET {root}/v1/jobs/1?wait=60", **bearer(made.json()["token"]))
            live = httpx2.get(f"{url_of}{root}/livez", timeout=PATIENCE, trust_env=False)
            assert live.status_code == 200, "connections are accepted in order: it waits by now"
            server.terminate()
            status, shown = answer_to(waiting)
            assert (status, '"state":"running"' in shown) == (200, True), "it is not waited for"
            wait_until(lambda: "Shutting down" in log.read_text())
            (tmp_path / "go").touch()
            assert server.wait(PATIENCE) == -signal.SIGTERM, log.read_text()
        finally:
            (tmp_path / "go").touch()
            server.kill()
    with Holdfast(url) as outside:
        job = outside.job(made.json()["id"]).record
        assert (job.state, job.result, job.attempt, job.crashes) == (State.SUCCEEDED, b'"done"', 1, 0)
        assert outside.workers() == []


DJANGO = """
import asyncio
from types import ModuleType
import django, httpx2
from django.conf import settings
from django.http import HttpResponse
from django.urls import path
import sys

settings.configure(ROOT_URLCONF="urls", ALLOWED_HOSTS=["shop.example"], SECRET_KEY="x")
django.setup()
urls = sys.modules["urls"] = ModuleType("urls")
urls.urlpatterns = [path("hello", lambda request: HttpResponse("hi"))]
import asgi, app

async def main():
    transport = httpx2.ASGITransport(asgi.application)
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop.example") as client:
        job = await app.hf.tasks["audit"].aenqueue("x")
        token = {"Authorization": f"Bearer {await job.atoken()}"}
        shown = await client.get(f"/jobs/v1/jobs/{job.id}", headers=token)
        closed = await client.get("/jobs/v1/jobs")
        print((await client.get("/hello")).text, shown.status_code, closed.status_code)

asyncio.run(main())
"""


def test_the_example_for_django(tmp_path: Path) -> None:
    for name in ("app.py", "asgi.py"):
        [code] = re.findall(rf"```python\n# {name}\n(.*?)```", PAGE.read_text(), re.DOTALL)
        (tmp_path / name).write_text(code)
    (tmp_path / "main.py").write_text(DJANGO)
    done = subprocess.run([sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["hi", "200", "401"], done.stderr


def test_the_page_lists_every_route() -> None:
    from holdfast.http.routes import ROUTES

    listed = re.findall(r"^\| `(\w+) (\S+)` \| (\w+) \| (\w*) ?\|", PAGE.read_text(), re.MULTILINE)
    assert listed == [(route.method, route.path, route.role or "everyone", route.scope or "") for route in ROUTES]


def test_a_missing_extra_is_named(hf: Holdfast) -> None:
    gone = {name: None for name in [*sys.modules, "starlette"] if name.startswith(("starlette", "holdfast.http."))}
    with mock.patch.dict(sys.modules, gone), pytest.raises(BadSettings, match=r"pip install 'holdfast\[web\]'"):
        hf.asgi()


@pytest.mark.parametrize("wrong", ["yes", [], ["cancel", "retry"], None, {"cancel": 1, "delete": 2}, 1])
def test_what_http_may_be(hf: Holdfast, wrong: Any) -> None:
    with pytest.raises(BadSettings, match="http"):
        hf.task(http=wrong)(lambda_of())


def lambda_of() -> Any:
    def work() -> None: ...

    return work


def test_a_name_that_is_no_part_of_a_path_is_refused(hf: Holdfast) -> None:
    with pytest.raises(BadSettings, match="slash"):
        hf.task(http=True, name="mail/send")(lambda_of())


def test_any_other_name_can_be_part_of_a_path(hf: Holdfast) -> None:
    hf.task(http=True, name="mail: schöne Grüße?")(lambda_of())
    ask = Ask(hf.asgi(open="submitter"))
    assert ask.post("/v1/tasks/mail%3A%20sch%C3%B6ne%20Gr%C3%BC%C3%9Fe%3F/jobs", json={}).status_code == 202
