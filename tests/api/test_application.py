"""The application object: how it is made, what it refuses, how it lets go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadSettings, Holdfast, SchemaOutdated, State, StoreError, StoreUnavailable
from holdfast.settings import Settings
from tests.running import working


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"leese": 3}, "there is no setting 'leese'; did you mean lease"),
        ({"lease": 0}, "lease must be more than 0"),
        ({"lease": -1}, "lease must not be negative"),
        ({"lease": "20"}, "lease must be 0 or more seconds, a timedelta, or text such as .* and is '20'"),
        ({"lease": True}, "lease must be of type float, and is True"),
        ({"lease": 20, "heartbeat": 10}, "a lease needs at least 3 heartbeats"),
        ({"concurrency": 0}, "concurrency must be 1 or more"),
        ({"concurrency": 2.5}, "concurrency must be of type int"),
        ({"listen": "no"}, "listen must be of type bool"),
        ({"schema": "a;b"}, "must be a plain name"),
        ({"prefix": ""}, "must be a plain name"),
        ({"synchronous": "never"}, "it can be full, normal or off"),
        ({"poll_base": float("nan")}, "poll_base must not be negative"),
        ({"queue": {}}, "there is no setting 'queue'; did you mean queues"),
        ({"queues": ["mail"]}, r"queues must be settings by queue, and is \['mail'\]: write queues="),
        ({"queues": {"mail": 5}}, "queues must be settings by queue"),
        ({"queues": {"mail,news": {}}}, "queues: 'mail,news' can't be the name of a queue"),
        ({"queues": {"\x1b[2J": {}}}, r"queues: '\\x1b\[2J' can't be the name of a queue"),
        ({"queues": {"": {}}}, "queues: '' can't be the name of a queue"),
        (
            {"queues": {"mail": {"lease": 5}}},
            "there is no setting 'queues.mail.lease': of its own a queue can have poll_",
        ),
        ({"queues": {"mail": {"poll_max": "5"}}}, "queues.mail.poll_max must be 0 or more seconds, .* and is '5'"),
        ({"queues": {"mail": {"poll_grace": 1.5}}}, "queues.mail.poll_grace must be of type int, and is 1.5"),
        ({"queues": {"mail": {"poll_base": -1}}}, "queues.mail.poll_base must not be negative"),
        ({"queues": {"mail": {"claim_size": 10**6}}}, "queues.mail.claim_size must be at most 100,000"),
    ],
)
def test_bad_settings_are_refused_in_words(given: dict[str, Any], why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        Holdfast("sqlite:///never-opened.db", **given)
    with pytest.raises(BadSettings, match=why):
        Holdfast("sqlite:///never-opened.db").reconfigure(**given)


@pytest.mark.parametrize(
    "url",
    ["", "jobs.db", "mysql://host/db", "sqlite://", "sqlite://host/jobs.db", "sqlite:///a.db?mode=ro", "http://["],
)
def test_a_url_that_names_no_database_is_refused(url: str) -> None:
    with pytest.raises(BadSettings):
        _ = Holdfast(url).store


def test_a_password_is_never_shown() -> None:
    app = Holdfast("postgresql://user:secret@host/db?sslpassword=hidden")
    assert "secret" not in repr(app)
    assert "hidden" not in repr(app)
    assert repr(app) == "<Holdfast postgresql://user:***@host/db?sslpassword=***: 0 tasks>"


def test_an_unreachable_database_is_told_in_one_sentence() -> None:
    app = Holdfast("postgresql://user:secret@127.0.0.1:1/db")

    @app.task
    def task() -> None: ...

    with pytest.raises(StoreUnavailable, match=r"can't reach postgresql://user:\*+@127\.0\.0\.1:1/db") as caught:
        task.enqueue()
    assert "secret" not in str(caught.value)


def test_a_file_that_can_not_be_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("this is no database, " * 100)
    for path, why in ((tmp_path, "is a directory"), (tmp_path / "no" / "x.db", "does not exist")):
        with pytest.raises(StoreError, match=why):
            _ = Holdfast(f"sqlite:///{path}").store
    with pytest.raises(StoreError, match="is not a SQLite database"):
        _ = Holdfast(f"sqlite:///{tmp_path}/text.db").store


def test_the_schema_is_made_on_sqlite_and_asked_for_on_postgresql(settings: Settings, engine: str) -> None:
    with Holdfast(**{**asdict(settings), "heartbeat": 0.0}) as app:
        app.task(name="task")(lambda: None)
        if engine == "postgres":
            with pytest.raises(SchemaOutdated, match="run `holdfast migrate"):
                app.find_task("task").enqueue()
        assert bool(app.migrate())
        assert app.migrate() == []
        app.find_task("task").enqueue()
        assert app.drain() == 1


def test_the_url_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:///from-environment.db")
    monkeypatch.setenv("HOLDFAST_LEASE", "40")
    assert (Holdfast().settings.url, Holdfast().settings.heartbeat) == ("sqlite:///from-environment.db", 10)
    assert Holdfast("sqlite:///given.db", lease=20).settings.lease == 20
    monkeypatch.setenv("HOLDFAST_LEASE", "long")
    with pytest.raises(BadSettings, match=r"lease must be 0 or more seconds, .* and is 'long'"):
        Holdfast()


def test_an_application_that_was_closed_opens_again_when_needed(hf: Holdfast) -> None:
    @hf.task
    def task() -> str:
        return "done"

    job = task.enqueue()
    hf.close()
    hf.close()
    assert hf.drain() == 1
    assert job.wait(timeout=5) == "done"


def test_one_application_is_used_from_many_threads_and_loops(hf: Holdfast) -> None:
    @hf.task
    def task(n: int) -> int:
        return n

    results: list[int] = []

    def submit(n: int) -> None:
        results.append(task.enqueue(n).wait(timeout=30))

    async def asubmit(n: int) -> None:
        results.append(await (await task.aenqueue(n)))

    async def several() -> None:
        await asyncio.gather(*(asubmit(n) for n in range(10, 20)))

    with working(hf):
        threads = [threading.Thread(target=submit, args=(n,)) for n in range(10)]
        threads += [threading.Thread(target=lambda: asyncio.run(several()))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(results) == list(range(20))


def test_it_works_without_prepared_statements_and_without_notifications(make_app: Callable[..., Holdfast]) -> None:
    """As behind a pooler in transaction mode."""
    app = make_app(prepare=False, listen=False, poll_base=0.02, poll_max=0.05, lease=600.0)  # no look but by polling

    @app.task(max_attempts=2, retry=None)
    def task(n: int) -> int:
        if n == 3:
            raise ZeroDivisionError
        return n

    with working(app) as worker:
        jobs = app.enqueue_many((task.using(key=f"k{n}") if n % 2 else task).bind(n) for n in range(6))
        later = task.using(delay=0.1).enqueue(7)
        assert later.wait(timeout=20) == 7
        assert [job.wait(timeout=20) for job in jobs if job is not jobs[3]] == [0, 1, 2, 4, 5]
        assert [task.enqueue(n).wait(timeout=20) for n in (8, 9)] == [8, 9]
        assert not worker.desk.poller.listening
    assert jobs[3].refresh().state is State.FAILED
    assert [attempt.number for attempt in jobs[3].attempts()] == [1, 2]
