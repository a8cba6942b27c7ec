"""The command line, run as a user runs it: in a process of its own."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli import cli
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.cli.shell import Shell
from tests.factories import a_queued_job, new_job


def test_drain_runs_what_is_due_and_prints_how_many(shell: Shell, kept: Store) -> None:
    for n in range(3):
        kept.enqueue(new_job("double", json.dumps({"n": n}).encode()))
    assert shell("drain", "app:hf").stdout == "3 jobs done (3 attempts)\n"
    kept.enqueue(new_job("refuse", b'{"n":1}'))
    assert shell("drain", "app:hf").stdout == "1 job done, 1 of them failed (1 attempt)\n"
    assert json.loads(shell("drain", "app.py", "-o", "json").stdout) == {"jobs": 0, "failed": 0, "attempts": 0}
    assert [job.result for job in kept.reads.jobs(state="succeeded")] == [b"4", b"2", b"0"]


@pytest.mark.parametrize(
    "args", [b'{"x":1e999}', b'{"x":"\\ud800"}', b'{"x":%s%s}' % (b"[" * 900, b"]" * 900)], ids=["inf", "half", "deep"]
)
def test_arguments_that_cannot_be_shown_keep_no_others_from_it(shell: Shell, kept: Store, args: bytes) -> None:
    for given in (args, b'{"x":2}'):
        a_queued_job(kept, args=given)
    shown = json.loads(shell("jobs", "list", "-o", "json").stdout)
    assert shown[0]["args"] == {"x": 2}
    assert "bytes that can't be shown" in shown[1]["args"]
    assert "bytes that can't be shown" in shell("jobs", "show", "1").stdout


def test_jobs_are_listed_and_shown_in_every_format(shell: Shell, kept: Store) -> None:
    kept.enqueue(new_job("double", b'{"n":21}', tags=("x",)))
    kept.enqueue(new_job("refuse", b'{"n":1}', queue="other"))
    shell("drain", "app:hf")
    table = shell("jobs", "list").stdout.splitlines()
    assert table[0].split() == ["id", "state", "task", "queue", "attempt", "due", "failed", "error"]
    assert [line.split()[:4] for line in table[1:]] == [
        ["2", "failed", "refuse", "other"],
        ["1", "succeeded", "double", "default"],
    ]
    assert re.search(r"\d(?:m?s) ago  +NO: no\s*$", table[1])
    assert table[2].rstrip().endswith("ago")
    [failed] = json.loads(shell("jobs", "list", "--state", "failed", "-o", "json").stdout)
    assert (failed["id"], failed["error_code"], failed["args"]) == ("2", "NO", {"n": 1})
    lines = shell("jobs", "list", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["2", "1"]
    assert json.loads(shell("jobs", "list", "--before", "2", "-o", "jsonl").stdout)["result"] == 42
    shown: dict[str, Any] = json.loads(shell("jobs", "show", "2", "-o", "json").stdout)
    assert shown["state"] == "failed"
    assert [attempt["outcome"] for attempt in shown["attempts"]] == ["errored"]
    words = shell("jobs", "show", "2").stdout
    assert "errored by" in words
    assert "NO: no" in words


def test_the_worker_runs_until_it_is_told_to_stop(shell: Shell, kept: Store) -> None:
    worker = shell.start("worker", "app:hf", "--queues", "default, other", "--concurrency", "2")
    try:
        job = kept.enqueue(new_job("double", b'{"n":5}')).id
        while kept.reads.get(job).result is None and worker.poll() is None:
            kept.workers.all()
        worker.send_signal(signal.SIGTERM)
        out, said = worker.communicate(timeout=30)
    finally:
        worker.kill()
    assert worker.returncode == 0
    assert kept.reads.get(job).result == b"10"
    assert out == ""  # stdout is data; a worker has none
    assert "stopped; 1 job done (1 attempt)" in said
    assert kept.workers.all() == []


def test_migrate_says_what_it_did_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    shell = Shell(tmp_path, Settings(url=url))
    assert shell("migrate", "--url", url).stdout == "0001_jobs\n"
    again = shell("migrate", "--url", url, "-o", "json")
    assert again.stdout == "[]\n"
    assert "is up to date" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["worker"], 2, "which application? Name it with --app app.py"),
        (["enqueue", "double", "n=1"], 2, "which application? Name it with --app app.py"),
        (["worker", "nowhere:hf"], 2, "there is no module 'nowhere' here"),
        (["worker", "nowhere.py"], 2, "found: app.py"),
        (["worker", "app:other"], 2, "no Holdfast application called 'other'; found: hf"),
        (["jobs", "show", "99"], 3, "there is no job 99"),
        (["jobs", "show", "x"], 3, "ids here are numbers"),
        (["jobs", "show", "state:failed"], 3, "ids that match: holdfast jobs list state:failed"),
        (["jobs", "list", "--state", "odd"], 2, "Invalid value for '--state'"),
        (["jobs", "list", "--url", "mysql://x"], 2, "is not one of sqlite:///"),
        (["jobs", "list", "--url", "postgresql+psycopg://h/d"], 2, "leave out +psycopg, as in postgresql://"),
        (["jobs", "list", "--url", "sqlite:///absent.db"], 2, "there is no file"),
        (["migrate", "--url", "sqlite:////nowhere/at/all.db"], 1, "does not exist"),
        (["jobs", "list", "--url", "postgresql://nobody@127.0.0.1:9/none"], 5, "can't reach"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_with_its_exit_code(
    tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    settings = Settings(url=f"sqlite:///{tmp_path}/jobs.db")
    store = open_store(settings)
    store.schema.migrate()
    store.close()
    done = Shell(tmp_path, settings)(*arguments, code=code)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", [("jobs", "list"), ("worker", "app.py"), ("migrate",)], ids=" ".join)
def test_a_directory_that_was_deleted_is_one_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    done = CliRunner().invoke(cli, words)
    assert (done.exit_code, done.stderr) == (2, "HF1107 the current directory is gone: go to another one\n")


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # SQLite brings its schema up to date by itself
def test_a_missing_schema_is_refused_with_its_own_exit_code(shell: Shell) -> None:
    assert "run `holdfast migrate" in shell("worker", "app:hf", code=6).stderr


def test_the_application_can_be_configured(shell: Shell, kept: Store) -> None:
    (shell.directory / "holdfast.toml").write_text('app = "app:hf"\nconcurrency = 3\n')
    kept.enqueue(new_job("double", b'{"n":1}'))
    assert shell("drain").stdout == "1 job done (1 attempt)\n"
    (shell.directory / "holdfast.toml").write_text("concurency = 3\n")
    assert "there is no setting 'concurency'" in shell("drain", code=2).stderr


@pytest.mark.parametrize(
    ("end", "told"),
    [("sys.exit(4)", "exited with status 4"), ("raise KeyboardInterrupt", "was ended by SIGINT")],
)
@pytest.mark.parametrize("engine", ["sqlite"])
def test_an_application_that_ends_itself_is_told_as_it_was(shell: Shell, kept: Store, end: str, told: str) -> None:
    (shell.directory / "ends.py").write_text(f"import sys\n{end}\n")
    said = shell("worker", "ends:hf", code=2).stderr
    assert f"its runner process {told} while it was imported" in said


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("drain", "app.py"), "--seconds"), (("enqueue", "greet", "--wait"), "--timeout"),
        (("stack", "1"), "--timeout"), (("jobs", "output", "1"), "--timeout"), (("top", "--once"), "--every"),
    ],
)  # fmt: skip
def test_options_that_are_durations_take_text(shell: Shell, words: tuple[str, ...], option: str) -> None:
    wrong = shell(*words, option, "soon", code=2).stderr
    assert f"HF1202 {option} soon is no duration: write 90 (seconds), 90s, 10m or 1h" in wrong
    for right in ("5", "1m 30s", "500ms"):
        assert "is no duration" not in shell.any(*words, option, right).stderr
    if option == "--every":
        assert "--every 100ms is too short: 0.2s is the least" in shell(*words, option, "100ms", code=2).stderr
