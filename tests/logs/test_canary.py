"""A canary is put where secrets are: the password in the database's URL, secret arguments, exceptions that quote them.
Then everything is run, and the canary must be nowhere but in the arguments, which have to be kept to be run."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.settings import Settings
from tests.contract.places import raw
from tests.factories import new_job
from tests.servers import as_role, new_schema, own_postgres
from tests.waiting import wait_until

CANARY = "c4n4ry"
DSN = f"postgresql://usr:{CANARY}-dsn@db.example/app"

APP = """
import asyncio, logging, os, time
from holdfast import Cancel, Fail, Holdfast, JobContext, Retry, Secret

hf = Holdfast()
DSN = os.environ["APP_DSN"]
log = logging.getLogger("app")


class Refused(Exception):
    pass


@hf.task(max_attempts=2, retry=None)
def login(ctx: JobContext, user: str, password: str, pin: Secret[str], where: str) -> None:
    ctx.progress(1, total=2, note=f"as {user} with {password}, {pin} at {where}")
    while hf.job(ctx.job.id).refresh().record.note is None:  # until the heartbeat has written it
        time.sleep(0.01)
    log.warning("login of %s with %s, %s at %s and %s", user, password, pin, where, DSN)
    try:
        raise ConnectionError(f"can't reach {DSN}")
    except ConnectionError as refused:
        error = Refused(f"{user} with {password} and {pin} at {where}")
        error.add_note(f"tried {pin!r}")
        raise error from refused


@hf.task(max_attempts=1)
async def steer(how: str, token: str, options: dict[str, str]) -> None:
    log.error("steering %s with %s and %s", how, token, options)
    secret = options["api_key"]
    if how == "fail":
        raise Fail(f"no: {token} {secret}", code=f"NO-{token}")
    if how == "cancel":
        raise Cancel(f"not with {secret} {DSN}")
    if how == "retry":
        raise Retry(f"later with {secret}: {DSN}", after=0.0)
    if how == "long":
        raise ValueError("x" * 3993 + token + "y" * 5000)
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(int, token))
        group.create_task(asyncio.to_thread(int, secret))
"""

ARGS = {
    "user": "usr",
    "password": f"{CANARY}-pw",
    "pin": f"{CANARY}-pin",
    "where": f"https://usr:{CANARY}@host/x",
}


RUN = """
import shlex, sys, traceback
from holdfast.cli import cli

for command in sys.argv[1:]:
    try:
        cli.main(shlex.split(command), standalone_mode=False)
    except Exception:
        traceback.print_exc()
print("all were run")
"""


class Place:
    """A directory with an application, and a log of all that commands have said."""

    def __init__(self, directory: Path, settings: Settings) -> None:
        self.directory = directory
        (directory / "app.py").write_text(APP)
        self.said = ""
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")},
            "HOLDFAST_URL": settings.url, "HOLDFAST_SCHEMA": settings.schema, "APP_DSN": DSN, "COLUMNS": "300",
            "HOLDFAST_HEARTBEAT": "0.1", "HOLDFAST_LEASE": "10",
        }  # fmt: skip

    def run(self, *commands: str, **environment: str) -> str:
        """Run these command lines, one after the other in one process; returns what they printed."""
        done = subprocess.run(
            [sys.executable, "-c", RUN, *commands], cwd=self.directory, text=True, capture_output=True,
            env={**self._environment, **environment}, timeout=120, check=False,
        )  # fmt: skip
        assert done.stdout.endswith("all were run\n"), done.stderr
        self.said += done.stdout + done.stderr
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments], cwd=self.directory, text=True, env=self._environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip


@pytest.fixture
def secret_settings(engine: str, settings: Settings) -> Iterator[Settings]:
    """The same place, reached with a password."""
    if engine == "sqlite":
        yield settings
        return
    role = new_schema()
    with psycopg.connect(settings.url, autocommit=True) as owner:
        owner.execute(f"create role {role} superuser login password '{CANARY}'".encode())
        yield replace(settings, url=as_role(settings.url, role, CANARY))
        owner.execute(f"reassign owned by {role} to current_user".encode())
        owner.execute(f"drop role {role}".encode())


@pytest.fixture
def app(secret_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    """The application, as a producer has it."""
    monkeypatch.setenv("APP_DSN", DSN)
    names: dict[str, Holdfast] = {}
    exec(compile(APP, "app.py", "exec"), names)
    app = names["hf"]
    app.reconfigure(url=secret_settings.url, schema=secret_settings.schema)
    app.migrate()
    with app:
        yield app


def columns_with_the_canary(settings: Settings) -> set[str]:
    """Every column of every table of ours in which it stands."""
    tables = ("jobs", "attempts", "leases", "workers", "pauses", "meta")
    found: set[str] = set()
    with raw(settings) as sql:
        for table in tables:
            cursor = sql.connection.execute(
                f'select * from "{settings.prefix}{table}"'
                if settings.url.startswith("sqlite")
                else f'select * from "{settings.schema}".{table}'
            )
            names = [column[0] for column in cursor.description]
            for row in cursor.fetchall():
                found |= {f"{table}.{name}" for name, value in zip(names, row, strict=True) if CANARY in str(value)}
    return found


def enqueue_all(app: Holdfast) -> list[str]:
    login, steer = app.find_task("login"), app.find_task("steer")
    jobs = [login.enqueue(**ARGS)]
    for how in ("fail", "cancel", "retry", "long", "group"):
        jobs.append(steer.enqueue(how, token=f"{CANARY}-tok", options={"api_key": f"{CANARY}-key"}))
    return [job.id for job in jobs]


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_canary_is_nowhere_but_in_the_arguments(
    form: str, secret_settings: Settings, app: Holdfast, tmp_path: Path
) -> None:
    place = Place(tmp_path, secret_settings)
    ids = enqueue_all(app)
    assert columns_with_the_canary(secret_settings) == {"jobs.args"}
    worker = place.start("worker", "app:hf", "-vv", "--log-format", form)
    try:
        wait_until(lambda: all(app.job(id).refresh().finished for id in ids))
    finally:
        worker.send_signal(signal.SIGTERM)
        said = worker.communicate(timeout=30)[0]
    place.run(*(f"jobs show {id} -o {output}" for id in ids for output in ("table", "json")), HOLDFAST_APP="app:hf")
    place.run(*(f"jobs show {id} -o {output}" for id in ids for output in ("table", "json")))
    place.run(*(f"jobs list -o {output}" for output in ("table", "json", "jsonl")), HOLDFAST_APP="app:hf")
    place.run("migrate", "drain app:hf", "jobs show 999", "worker nowhere:hf", "--debug jobs show x")
    assert CANARY not in said
    assert CANARY not in place.said
    assert columns_with_the_canary(secret_settings) == {"jobs.args"}
    # It was all said, without the secrets.
    assert "usr with *** and *** at https://usr:***@host/x" in said
    assert "login of usr with ***, *** at https://usr:***@host/x and postgresql://usr:***@db.example/app" in said
    [record] = [job.record for job in app.jobs() if job.task == "login"]
    assert record.error_code == "Refused"
    assert record.note == "as usr with ***, *** at https://usr:***@host/x"
    [*_, attempt] = app.store.reads.attempts(ids[0])
    assert "ConnectionError: can't reach postgresql://usr:***@db.example/app" in (attempt.traceback or "")
    assert {app.job(id).refresh().record.error_code for id in ids} == {
        "Refused", "NO-***", "CANCELLED", "RETRY", "ValueError", "ExceptionGroup",
    }  # fmt: skip


def test_an_argument_marked_as_secret_is_hidden_where_the_code_is_not_known_too(
    secret_settings: Settings, app: Holdfast, tmp_path: Path
) -> None:
    """And where the code is known, if some other producer did not mark it."""
    place = Place(tmp_path, secret_settings)
    marked = app.find_task("login").enqueue(**ARGS)
    plain = app.store.enqueue(new_job("login", json.dumps(ARGS).encode()))
    shown = place.run(f"jobs show {marked.id}")
    assert CANARY not in shown
    assert "$secret" not in shown
    assert CANARY not in place.run(f"jobs show {plain.id}", HOLDFAST_APP="app:hf")
    assert app.job(plain.id).args == app.job(marked.id).args == ARGS


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://usr:{CANARY}@127.0.0.1:1/jobs",
        f"postgresql://usr:{CANARY}@127.0.0.1:port/jobs",
        f"postgresql://usr@127.0.0.1:1/jobs?password={CANARY}",
        f"postgresql://usr:{CANARY}@no-such-host.invalid/jobs?no_such_option=1",
        f"mysql://usr:{CANARY}@db/jobs",
        f"host=127.0.0.1 port=1 password={CANARY}",
        f"sqlite://usr:{CANARY}@host/jobs.db",
        f"sqlite:///no/such/directory/jobs.db?password={CANARY}",
    ],
)
@pytest.mark.parametrize("engine", ["sqlite"])  # none of them is there
def test_errors_about_a_database_that_cannot_be_reached_do_not_tell_its_password(
    url: str, settings: Settings, tmp_path: Path
) -> None:
    place = Place(tmp_path, settings)
    commands = ("worker app:hf -vv", "jobs list", "migrate", "drain app:hf --log-format json")
    place.run(*commands, *(f"--debug {command} --url {shlex.quote(url)}" for command in commands), HOLDFAST_URL=url)
    assert place.said
    assert CANARY not in place.said


def test_a_worker_that_loses_its_database_does_not_tell_the_password(tmp_path: Path) -> None:
    with own_postgres() as server, Holdfast(as_role(server.url, "postgres", CANARY)) as app:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"alter role postgres password '{CANARY}'".encode())
        app.migrate()
        place = Place(tmp_path, app.settings)
        worker = place.start("worker", "app:hf", "-vv", "--log-format", "json")
        try:
            wait_until(lambda: len(app.store.workers.all()) == 1)
            app.close()
            server.stop()
            server.start()
            job = app.store.enqueue(new_job("login", json.dumps(ARGS).encode()))
            wait_until(lambda: app.job(job.id).refresh().finished)
        finally:
            worker.send_signal(signal.SIGTERM)
            said = worker.communicate(timeout=30)[0]
    assert '"event": "deaf"' in said
    assert "postgresql://postgres:***@/postgres?host=" in said
    assert CANARY not in said


def test_what_python_prints_of_an_application_hides_the_password(secret_settings: Settings, app: Holdfast) -> None:
    assert CANARY not in repr(app) + repr(app.settings) + str(app.settings) + app.settings.shown_url
    bound = app.find_task("login").bind(**ARGS)
    assert CANARY not in repr(bound)
