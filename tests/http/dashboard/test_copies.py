"""What is copied from the page of a job does what it says: in Python, in SQL, on the command line, over HTTP, and as a
test that fails until the task is mended."""

from __future__ import annotations

import html
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Secret
from holdfast.settings import Settings
from tests.http.asking import Ask
from tests.http.dashboard.looking import Looking

HOSTILE: dict[str, Any] = {
    "text": 'it\'s "quoted" $HOME `id` \\n \\ %s {} \n\t; drop table x; -- </pre>\u202e 🌍',
    "large": 2**80 + 1,
    "nested": {"a b": [True, None, 1.5, "x'y"], "$(id)": {}},
}
APP = """
import os
from typing import Any
from holdfast import Holdfast

hf = Holdfast("{url}", schema="{schema}", pinned=True)

@hf.task(name="odd task's", max_attempts=1)
def odd(text: str, large: int, nested: dict[str, Any], flag: bool = False) -> int:
    if "MENDED" not in os.environ:
        raise ValueError("no such host\\nfor this")
    return large
"""


@pytest.fixture
def app(hf: Holdfast) -> Holdfast:
    @hf.task(name="odd task's", http=True, max_attempts=1)
    def odd(text: str, large: int, nested: dict[str, Any], flag: bool = False) -> int:
        raise ValueError("no such host\nfor this")

    return hf


@pytest.fixture
def copied(app: Holdfast) -> dict[str, str]:
    """What the page of a failed job offers, by its title."""
    job = app.tasks["odd task's"].using(queue="mail's", priority=-7, tags=["nightly"]).enqueue(**HOSTILE)
    app.drain()
    seen = Looking(app).at(f"/jobs/{job.id}")
    copies = re.findall(r'<pre id="copy-(\w+)"[^>]*>(.*?)</pre>', seen.html, re.DOTALL)
    return {id: html.unescape(text) for id, text in copies}


def newest(app: Holdfast) -> Any:
    [new] = app.jobs("state:queued")
    return new.record


def like_the_old_one(record: Any) -> None:
    assert json.loads(record.args) == HOSTILE
    assert (record.task, record.queue, record.priority) == ("odd task's", "mail's", -7)


def test_python(app: Holdfast, copied: dict[str, str]) -> None:
    exec(copied["python"], {"hf": app})
    like_the_old_one(newest(app))
    assert newest(app).tags == ("nightly",)


def test_sql(app: Holdfast, copied: dict[str, str], settings: Settings) -> None:
    if settings.url.startswith("sqlite"):
        with sqlite3.connect(settings.url.removeprefix("sqlite:///")) as connection:
            connection.execute(copied["sql"])
        connection.close()
    else:
        with psycopg.connect(settings.url, autocommit=True) as server:
            server.execute(copied["sql"].encode())
    like_the_old_one(newest(app))
    assert newest(app).max_attempts == 1


def with_app(settings: Settings, where: Path) -> dict[str, str]:
    (where / "app.py").write_text(APP.format(url=settings.url, schema=settings.schema))
    return {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}


def test_the_command_line(app: Holdfast, copied: dict[str, str], settings: Settings, tmp_path: Path) -> None:
    """By a real shell, which the quoting is for."""
    env = with_app(settings, tmp_path) | {"HOLDFAST_APP": "app:hf"}
    shim = f'holdfast() {{ {shlex.quote(sys.executable)} -m holdfast "$@"; }}\n'
    done = subprocess.run(
        ["bash", "-c", shim + copied["cli"]], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    like_the_old_one(newest(app))


def test_curl(app: Holdfast, copied: dict[str, str]) -> None:
    """As a real shell splits it."""
    split = "import json, sys; print(json.dumps(sys.argv[1:]))"
    shim = f'curl() {{ {shlex.quote(sys.executable)} -c {shlex.quote(split)} "$@"; }}\n'
    env = {**os.environ, "HOLDFAST_KEY": app.create_api_key("ops", "operator")}
    done = subprocess.run(["bash", "-c", shim + copied["curl"]], env=env, capture_output=True, text=True, check=True)
    verb, method, url, *rest = json.loads(done.stdout)
    options = list(zip(rest[::2], rest[1::2], strict=True))
    headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
    [body] = [value for name, value in options if name == "-d"]
    assert (verb, method) == ("-X", "POST")
    assert url.startswith("http://jobs.example/v1/tasks/")
    answer = Ask(app.asgi())("POST", url, headers=headers, content=body.encode())
    assert answer.status_code == 202, answer.text
    assert json.loads(newest(app).args) == HOSTILE


def test_curl_replays_a_job_whose_task_is_not_for_everybody(tasked: Holdfast) -> None:
    job = tasked.tasks["hidden"].enqueue()
    seen = Looking(tasked).at(f"/jobs/{job.id}")
    assert f"POST http://jobs.example/v1/jobs/{job.id}/replay" in seen.element("copy-curl")


def test_a_test_fails_as_the_job_did_until_the_task_is_mended(
    app: Holdfast, copied: dict[str, str], settings: Settings, tmp_path: Path
) -> None:
    env = with_app(settings, tmp_path)
    (tmp_path / "test_copied.py").write_text(copied["pytest"])

    def run(**more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_copied.py"]
        return subprocess.run(
            command, cwd=tmp_path, env=env | more, capture_output=True, text=True, check=False
        )  # fmt: skip

    broken, mended = run(), run(MENDED="1")
    assert (broken.returncode, mended.returncode) == (1, 0), broken.stdout + mended.stdout
    assert "ValueError: no such host" in broken.stdout
    assert "1 passed" in mended.stdout
    assert "# it was failed: ValueError: no such host\\nfor this" in copied["pytest"]


def test_secrets_are_hidden_in_all_of_them_and_the_page_says_so(tasked: Holdfast) -> None:
    @tasked.task
    def pay(card: Secret[str]) -> None: ...

    seen = Looking(tasked).at(f"/jobs/{pay.enqueue('4111-1111').id}")
    assert "4111" not in seen.html
    assert "Secrets are hidden: put them in yourself." in seen.text
