"""The schema: made once, by whoever comes first; and the places where it can't be made."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.errors import BadSettings, HoldfastError, SchemaOutdated, StoreError, StoreUnavailable
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import migrate, open_store
from holdfast.store.base import Store
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite import connect as sqlite_connect
from tests.contract.places import raw
from tests.factories import BOOM, Clock, a_queued_job, a_running_job, claim, ref
from tests.servers import drop_schema, in_database, new_schema, shared_postgres


def test_migrating_twice_is_migrating_once(stores: Callable[..., Store]) -> None:
    store = stores()
    assert store.schema.migrate() == [m.name for m in migrate.migrations("sqlite")]
    first = store.schema.store_id
    id = a_queued_job(store)
    assert store.schema.migrate() == []
    again = stores()
    assert again.schema.migrate() == []
    again.schema.check()
    assert again.schema.store_id == first != ""
    assert again.reads.get(id).state is State.QUEUED


MIGRATE = """
import sys
from holdfast.settings import Settings
from holdfast.store import open_store
settings = Settings(url=sys.argv[1], schema=sys.argv[2], synchronous="off")
sys.stdin.readline()
store = open_store(settings)
applied = store.schema.migrate()
print(len(applied), store.schema.store_id)
store.close()
"""


def test_eight_processes_at_once_make_one_schema(settings: Settings) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATE, settings.url, settings.schema],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(8)
    ]  # fmt: skip
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0] * 8, answers
    told = [out.split() for out, _ in answers]
    assert sorted(int(applied) for applied, _ in told) == [0] * 7 + [1]
    assert len({store_id for _, store_id in told}) == 1


def test_the_names_of_schema_and_tables_are_settings(settings: Settings, engine: str, clock: Clock) -> None:
    """Two places in one database that know nothing of each other."""
    other = replace(settings, schema=new_schema(), prefix="Other_Jobs_")
    first, second = open_store(settings, clock=clock), open_store(other, clock=clock)
    try:
        first.schema.migrate()
        with pytest.raises(SchemaOutdated, match="run `holdfast migrate"):
            second.schema.check()
        second.schema.migrate()
        assert first.schema.store_id != second.schema.store_id
        a_queued_job(second, key="k")
        assert claim(first).jobs == []
        store = second
        held = claim(store).jobs[0]
        store.attempts.fail(ref(held), BOOM)
        assert store.operator.retry(str(held.id)) is State.QUEUED
        assert [done.created for chunk in store.enqueue_many([]) for done in chunk] == []
        assert store.retention.purge(0, finished=1, failed=1) == (0, None)
        assert store.look("w", ["greet"], None).next_due is not None
        assert first.reads.jobs() == []
        with raw(other) as sql:
            assert sql("select count(*) from {attempts}") == [(1,)]
    finally:
        first.close()
        second.close()
        if engine == "postgres":
            drop_schema(shared_postgres(), other.schema)


def refusal(call: Callable[[], object], kind: type[HoldfastError]) -> str:
    """The one clear sentence: no traceback, no second line."""
    with pytest.raises(kind) as caught:
        call()
    said = str(caught.value)
    assert "\n" not in said
    return said


def test_a_place_without_our_tables_says_so(stores: Callable[..., Store]) -> None:
    store = stores()
    assert "run `holdfast migrate" in refusal(store.schema.check, SchemaOutdated)
    assert "run `holdfast migrate" in refusal(lambda: a_queued_job(store), SchemaOutdated)
    assert "run `holdfast migrate" in refusal(lambda: claim(store), SchemaOutdated)


def test_a_schema_older_than_the_code_is_refused(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        sql("update {meta} set version = 0")
    said = refusal(store.schema.check, SchemaOutdated)
    assert "is at 0, this version needs 1: run `holdfast migrate" in said


def test_a_newer_schema_that_still_serves_this_code_is_fine(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        sql("update {meta} set version = 99, oldest_code = 1")
    store.schema.check()
    assert store.schema.migrate() == []
    a_queued_job(store)


def test_a_newer_schema_that_no_longer_serves_this_code_is_refused(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        sql("update {meta} set version = 99, oldest_code = 98")
    for call in (store.schema.check, store.schema.migrate):
        said = refusal(call, SchemaOutdated)
        assert "is at 99 and serves code from 98 on, this version knows 1: upgrade Holdfast" in said


def test_a_table_of_ours_that_was_emptied_is_told(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        sql("delete from {meta}")
    assert "is empty" in refusal(store.schema.check, StoreError)


# -- where jobs can't be kept ---------------------------------------------------------------------------------------


def open_at(url: str) -> Store:
    store = open_store(Settings(url=url, synchronous="off"))
    try:
        store.schema.check()
    finally:
        store.close()
    return store


@pytest.mark.parametrize(
    "url", ["", "jobs.db", "mysql://x/y", "http://x", "postgresql//x", "sqlite", "://", "postgresql://[bad/x", "file:x"]
)
def test_a_url_of_no_database_we_know_is_refused(url: str) -> None:
    said = refusal(lambda: open_at(url), BadSettings)
    assert "sqlite:///file.db" in said
    assert "postgresql://" in said


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/jobs.db", "sqlite:///jobs.db?mode=ro"])
def test_a_sqlite_url_that_names_no_file_is_refused(url: str) -> None:
    assert url in refusal(lambda: open_at(url), BadSettings)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret@h:notaport/d", "postgresql://h/d?nonsense=1", "postgresql+psycopg://u:secret@h/d",
        "postgresql://u:a secret@h/d", "postgresql://h/d?user=u&password=a secret&connect_timeout=1",
        "postgresql://u:secret%zz@h/d", "postgresql://u:pass@secret@h/d", "postgresql://u:secret/pass@h/d",
    ],
)  # fmt: skip
def test_a_postgresql_url_with_nonsense_in_it_is_refused_without_its_password(url: str) -> None:
    said = refusal(lambda: open_at(url), BadSettings)
    assert ("leave out +psycopg" if "+" in url else "is not a PostgreSQL URL") in said
    assert "secret" not in said


@pytest.mark.parametrize("password", ["pass@word", "pass/word"])
def test_a_password_with_signs_of_its_own_is_told_how_to_be_written(password: str) -> None:
    said = refusal(lambda: open_at(f"postgresql://u:{password}@h:5432/d"), BadSettings)
    assert "%40" in said
    assert "word" not in said.replace("password", "")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_an_unreachable_server_is_unavailable() -> None:
    url = f"postgresql://usr:secret@127.0.0.1:{free_port()}/jobs"
    said = refusal(lambda: open_at(url), StoreUnavailable)
    assert "can't reach postgresql://usr:***@127.0.0.1:" in said
    assert "secret" not in said


@pytest.mark.parametrize("sockets", ["/nowhere", "/no/at@sign", "/nowhere,/at@sign"])
def test_an_unreachable_socket_is_unavailable(sockets: str) -> None:
    said = refusal(lambda: open_at(f"postgresql://usr:secret@/jobs?host={quote(sockets, safe='')}"), StoreUnavailable)
    assert "can't reach postgresql://usr:***@/jobs?host=%2Fno" in said
    assert "secret" not in said


def test_a_database_that_is_not_there_is_told() -> None:
    url = in_database(shared_postgres(), "nowhere")
    assert 'database "nowhere" does not exist' in refusal(lambda: open_at(url), StoreError)


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "is a directory" in refusal(lambda: open_at(f"sqlite:///{tmp_path}"), StoreError)


def test_a_missing_directory_is_not_made_up(tmp_path: Path) -> None:
    said = refusal(lambda: open_at(f"sqlite:///{tmp_path}/no/such/jobs.db"), StoreError)
    assert f"{tmp_path}/no/such does not exist" in said
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_text("Dear diary, " * 1000)
    assert "is not a SQLite database" in refusal(lambda: open_at(f"sqlite:///{path}"), StoreError)
    store = open_store(Settings(url=f"sqlite:///{path}"))
    assert "is not a SQLite database" in refusal(store.schema.migrate, StoreError)
    store.close()
    assert path.read_text().startswith("Dear diary")


READ = """
import os, sys
from holdfast.errors import StoreError
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.sqlite.store import SqliteStore
os.setuid(int(sys.argv[2]))
try:
    open_store(Settings(url=sys.argv[1]))
except StoreError as error:
    print(error)
"""


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_read_only_place_is_told(what: str) -> None:
    place = Path(os.path.realpath("/var/tmp")) / f"holdfast-read-only-{os.getpid()}-{what}"
    place.mkdir(mode=0o777)
    path = place / "jobs.db"
    try:
        sqlite3.connect(path).close()
        path.touch()
        place.chmod(0o777 if what == "file" else 0o555)
        path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH if what == "file" else 0o666)
        user = os.getuid() or 65534  # root may write everywhere: so somebody else tries
        done = subprocess.run(
            [sys.executable, "-c", READ, f"sqlite:///{path}", str(user)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "is read-only for this user" in done.stdout
    finally:
        place.chmod(0o777)
        for left in place.iterdir():
            left.unlink()
        place.rmdir()


def test_a_gate_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    (tmp_path / "jobs.db-gate").mkdir()
    assert "jobs.db-gate can't be opened" in refusal(lambda: open_at(f"sqlite:///{tmp_path}/jobs.db"), StoreError)


MOUNTS = """\
/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
//server/share /mnt/with\\040space cifs rw 0 0
tmpfs /home/usr/fast tmpfs rw 0 0
host /mnt/p9 9p rw 0 0
"""


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/srv/jobs", "ext4"),
        ("/home/usr", "nfs4"),
        ("/home/usr/fast/x", "tmpfs"),
        ("/homes", "ext4"),
        ("/mnt/with space/x", "cifs"),
        ("/mnt/p9", "9p"),
    ],
)
def test_the_file_system_of_a_place_is_that_of_its_nearest_mount(
    monkeypatch: pytest.MonkeyPatch, place: str, kind: str
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self: MOUNTS)
    assert sqlite_connect.file_system_of(Path(place)) == kind


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
def test_a_network_file_system_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    monkeypatch.setattr(sqlite_connect, "file_system_of", lambda path: kind)
    said = refusal(lambda: open_at(f"sqlite:///{tmp_path}/jobs.db"), StoreError)
    assert f"network file system ({kind})" in said
    assert "use PostgreSQL" in said


def test_a_path_may_hold_anything_a_path_may_hold(tmp_path: Path, clock: Clock) -> None:
    place = tmp_path / "with space" / "ünï%23code"
    place.mkdir(parents=True)
    store = open_store(Settings(url=f"sqlite:///{str(place).replace('%', '%25')}/jobs.db"), clock=clock)
    store.schema.migrate()
    a_running_job(store)
    store.close()
    assert (place / "jobs.db").is_file()


# -- hiccups --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_full_disk_is_told_and_loses_nothing(store: Store, settings: Settings) -> None:
    ids = [a_queued_job(store)]
    with store.db.pool.take() as connection:  # type: ignore[attr-defined]
        pages = connection.db.execute("pragma page_count").fetchone()[0]
        connection.db.execute(f"pragma max_page_count = {pages + 8}")

    def fill() -> None:
        while True:
            ids.append(a_queued_job(store, args=b'"' + b"x" * 1000 + b'"'))

    with pytest.raises(StoreUnavailable, match="is full"):
        fill()
    assert [job.id for job in store.reads.jobs(limit=1000)] == ids[::-1]
    with store.db.pool.take() as connection:  # type: ignore[attr-defined]
        connection.db.execute("pragma max_page_count = 1000000")
    a_queued_job(store)  # space was freed: it goes on without a restart


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_writer_that_waited_too_long_is_told_to_try_again(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connect, "BUSY", 0.05)
    other = open_store(settings)
    try:
        with store.db.transaction():
            said = refusal(lambda: a_queued_job(other), StoreUnavailable)
        assert "another process, or thread, has been writing to jobs.db" in said
        a_queued_job(other)
    finally:
        other.close()


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_foreign_writer_is_waited_for_and_then_told(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_connect, "BUSY", 0.05)
    other = open_store(settings)
    writes, told = threading.Event(), threading.Event()

    def write() -> None:
        with raw(settings) as sql:
            sql("insert into {pauses} (kind, name, created_at) values ('queue', 'x', '2030')")
            writes.set()
            told.wait(60)

    foreign = threading.Thread(target=write)  # not this one, which would be told at once that it waits for itself
    foreign.start()
    try:
        assert writes.wait(60)
        assert "locked" in refusal(lambda: a_queued_job(other), StoreUnavailable)
        told.set()
        foreign.join()
        a_queued_job(other)
    finally:
        told.set()
        foreign.join()
        other.close()


@pytest.mark.parametrize("engine", ["postgres"])
def test_where_one_connection_broke_the_other_free_ones_are_not_trusted(store: Store, settings: Settings) -> None:
    """After a restart of the server not even the first call fails: what reads is made again on a new connection."""
    assert isinstance(store, PostgresStore)
    with store.db.use() as one, store.db.use() as two, store.db.use() as three:
        pids = [connection.info.backend_pid for connection in (one, two, three)]
    with raw(settings) as sql:
        assert sql("select count(pg_terminate_backend(pid)) from unnest(?::int[]) as t (pid)", pids) == [(3,)]
    store.pauses.all()
    for _ in range(4):
        with store.db.transaction(), store.db.transaction(), store.db.transaction():
            store.pauses.all()


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_lock_held_for_long_is_unavailable_not_for_ever(store: Store, settings: Settings) -> None:
    held = a_running_job(store)
    with raw(settings) as sql:
        sql("select 1 from {jobs} where id = ? for update", held.id)
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            store.attempts.succeed(ref(held))
    store.attempts.succeed(ref(held))


@pytest.mark.parametrize("engine", ["postgres"])
def test_without_prepared_statements_everything_works(settings: Settings, clock: Clock) -> None:
    """As behind PgBouncer in transaction mode."""
    store = open_store(replace(settings, prepare=False, listen=False), clock=clock)
    try:
        store.schema.migrate()
        assert not store.wakeups.can_listen
        for chunk in store.enqueue_many([]):
            assert chunk == []
        held = a_running_job(store, key="k", tags=("a",))
        store.attempts.checkpoint(ref(held), b"1")
        assert store.attempts.renew([held.fence], [ref(held)], 20)[0] == {held.fence}
        store.attempts.succeed(ref(held), b"2")
        store.look("w", ["greet"], None)
        with store.db.use() as connection:  # type: ignore[attr-defined]
            assert connection.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
    finally:
        store.close()
