"""`holdfast dev`: a worker that starts again when a file changes."""

from __future__ import annotations

import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.cli.shell import Shell, wait_until
from tests.factories import new_job

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])

APP = "from holdfast import Holdfast\nhf = Holdfast()\n\n@hf.task\ndef version() -> int:\n    return {}\n"


@contextmanager
def developing(shell: Shell, *arguments: str, signum: int = signal.SIGINT) -> Iterator[Path]:
    """`dev` in a process of its own; what it says goes to a file."""
    said = shell.directory / "said.log"
    with said.open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "dev", *arguments], cwd=shell.directory, env=shell.environment,
            stdout=log, stderr=log,
        )  # fmt: skip
        try:
            yield said
            process.send_signal(signum)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("how", [signal.SIGHUP, signal.SIGKILL])
@pytest.mark.usefixtures("a_terminal_to_lose")
def test_no_worker_outlives_it(shell: Shell, kept: Store, how: signal.Signals) -> None:
    """A terminal that is closed, a process that is killed: old code must not go on beside the next one."""
    (shell.directory / "app.py").write_text(APP.format(1))
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "dev", "app.py"], cwd=shell.directory, env=shell.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: len(kept.workers.all()) == 1)
        process.send_signal(how)
        process.wait(30)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: kept.workers.all() == [])


def result(store: Store) -> bytes | None:
    id = store.enqueue(new_job("version")).id
    wait_until(lambda: store.reads.get(id).finished, f"job {id}")
    return store.reads.get(id).result


def test_a_changed_file_is_what_runs_next_and_jobs_are_kept_where_a_worker_keeps_them(shell: Shell) -> None:
    del shell.environment["HOLDFAST_URL"]
    home = shell.directory / "project"
    home.mkdir()
    (home / "app.py").write_text(APP.format(1))
    with developing(shell, "project/app.py") as said:
        file = shell.directory / "holdfast.db"
        wait_until(lambda: file.exists() and "on sqlite:///holdfast.db" in said.read_text())
        store = open_store(Settings(url=f"sqlite:///{file}"))
        store.schema.migrate()
        assert result(store) == b"1"
        (home / "app.py").write_text(APP.format(22))
        wait_until(lambda: "app.py changed: starting again" in said.read_text())
        assert wait_until(lambda: result(store) == b"22")
        (home / "app.py").write_text("this is no Python\n")
        wait_until(lambda: "starts again when a file changes" in said.read_text())
        assert "SyntaxError" in said.read_text()
        (home / "app.py").write_text(APP.format(333))
        assert result(store) == b"333"
        assert len(store.workers.all()) == 1
    assert store.workers.all() == [], "it left in order"
    store.close()


def test_what_runs_when_the_file_changes_is_finished_first(shell: Shell, kept: Store) -> None:
    gate = shell.directory / "gate"
    (shell.directory / "app.py").write_text(
        "import pathlib, time\nfrom holdfast import Holdfast\nhf = Holdfast()\n\n@hf.task\ndef slow() -> str:\n"
        "    while not pathlib.Path('gate').exists():\n        time.sleep(0.01)\n    return 'done'\n"
    )
    with developing(shell, "app.py", signum=signal.SIGTERM) as said:
        id = kept.enqueue(new_job("slow")).id
        wait_until(lambda: kept.reads.get(id).state == "running")
        (shell.directory / "other.py").write_text("N = 2\n")
        wait_until(lambda: "stopping: running jobs get" in said.read_text())
        gate.touch()
        wait_until(lambda: kept.reads.get(id).finished)
        assert kept.reads.get(id).result == b'"done"'
        assert kept.reads.attempts(id) == []


def test_what_does_not_end_when_the_file_changes_is_given_back_uncharged(shell: Shell, kept: Store) -> None:
    slow = "import time\nfrom holdfast import Holdfast\nhf = Holdfast()\n\n@hf.task\ndef slow() -> int:\n    {}\n"
    (shell.directory / "app.py").write_text(slow.format("time.sleep(600)"))
    with developing(shell, "app.py"):
        id = kept.enqueue(new_job("slow")).id
        wait_until(lambda: kept.reads.get(id).state == "running")
        (shell.directory / "app.py").write_text(slow.format("return 2"))
        wait_until(lambda: kept.reads.get(id).finished)
        assert (kept.reads.get(id).result, kept.reads.get(id).attempt) == (b"2", 1)
        assert [attempt.outcome for attempt in kept.reads.attempts(id)] == ["released"]


def test_a_url_that_is_set_stays(shell: Shell, kept: Store) -> None:
    with developing(shell):  # app.py, unless named
        wait_until(kept.workers.all)
    assert not (shell.directory / "holdfast.db").exists()
    with sqlite3.connect(shell.directory / "jobs.db") as db:
        assert db.execute("select count(*) from holdfast_workers").fetchone() == (0,)
    db.close()


def test_a_file_that_is_not_there_is_said(shell: Shell) -> None:
    assert "HF1107 there is no file ap.py; found: app.py:hf" in shell("dev", "ap.py", code=2).stderr


def test_a_dashboard_is_beside_it_and_stays_at_its_address(shell: Shell, kept: Store) -> None:
    (shell.directory / "app.py").write_text(APP.format(1))
    with developing(shell, "app.py") as said:

        def told() -> list[str]:
            return re.findall(r"dashboard: (http://127\S+)", said.read_text())

        [url] = wait_until(told)
        wait_until(kept.workers.all)
        assert "Holdfast" in httpx2.get(url, trust_env=False).text
        (shell.directory / "app.py").write_text(APP.format(22))
        assert wait_until(lambda: told()[1:]) == [url]
        assert result(kept) == b"22"
        assert httpx2.get(f"{url}queues", trust_env=False).status_code == 200


def test_without_the_extra_it_works_as_before_and_says_how_to_get_it(shell: Shell, kept: Store) -> None:
    (shell.directory / "app.py").write_text(APP.format(1))
    (shell.directory / "uvicorn.py").write_text("raise ModuleNotFoundError('no uvicorn', name='uvicorn')\n")
    shell.environment["PYTHONPATH"] = str(shell.directory)
    with developing(shell, "app.py") as said:
        assert result(kept) == b"1"
        assert "without a dashboard" in said.read_text()
        assert "pip install 'holdfast[web]'" in said.read_text()
    assert "HF1105" in shell("dev", "app.py", "--port", "8123", code=2).stderr
