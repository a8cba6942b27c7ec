"""What only a file needs: a log that stays short, handles that survive a fork."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import OutcomeUnknown, StoreError, StoreUnavailable, ValueRefused
from holdfast.model.filter import parse
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.sqlite import connect, gate
from holdfast.store.sqlite.codec import Stamp, stored
from holdfast.store.sqlite.gate import Gate
from holdfast.store.sqlite.store import SqliteStore
from tests.contract.places import at_once, raw
from tests.factories import Clock, a_queued_job, claim, new_job, wants
from tests.waiting import wait_until

ONLY_SQLITE = pytest.mark.parametrize("engine", ["sqlite"])


def log_of(settings: Settings) -> int:
    return Path(f"{connect.path_of(settings)}-wal").stat().st_size


@ONLY_SQLITE
def test_whoever_sees_the_log_too_long_makes_it_begin_anew(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = b'"' + b"x" * 100_000 + b'"'
    for _ in range(5):
        a_queued_job(store, args=big)
    length = log_of(settings)
    assert length > 500_000, "no connection of ours checkpoints by itself"
    monkeypatch.setattr(connect, "LOG_LIMIT", 400_000)
    monkeypatch.setattr(connect, "LOG_LOOK", 16)
    for _ in range(connect.LOG_LOOK):
        a_queued_job(store)  # one of them sees it, and makes a checkpoint
    for _ in range(3):
        a_queued_job(store, args=big)
    assert log_of(settings) <= length + 20_000 * connect.LOG_LOOK, "it began anew, within the length it had"
    assert len(store.reads.jobs()) == 8 + connect.LOG_LOOK


@ONLY_SQLITE
def test_a_reader_that_pins_the_log_holds_nobody_up(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "LOG_LIMIT", 1000)
    monkeypatch.setattr(connect, "LOG_LOOK", 1)
    monkeypatch.setattr(connect, "CHECKPOINT_BUSY", 0.01)
    monkeypatch.setattr(connect, "CHECKPOINT_AGAIN", 0.0)
    reader = sqlite3.connect(connect.path_of(settings))
    reader.execute("begin")
    reader.execute("select count(*) from holdfast_jobs").fetchall()
    ids = [a_queued_job(store) for _ in range(3)]
    reader.close()
    ids.append(a_queued_job(store))
    length = log_of(settings)
    ids += [a_queued_job(store) for _ in range(5)]
    assert log_of(settings) == length, "every commit begins it anew"
    assert [job.id for job in store.reads.jobs()] == ids[::-1]


def test_our_connections_are_durable_by_default(tmp_path: Path) -> None:
    store = SqliteStore(Settings(url=f"sqlite:///{tmp_path}/jobs.db"))
    with store.db.pool.take() as connection:
        assert connection.db.execute("pragma synchronous").fetchone() == (2,), "full"
        assert connection.db.execute("pragma wal_autocheckpoint").fetchone() == (0,)
    store.close()


@ONLY_SQLITE
def test_the_file_is_in_wal_mode_for_everyone(store: Store, settings: Settings) -> None:
    with raw(settings) as sql:
        assert sql("pragma journal_mode") == [("wal",)]
        assert sql("pragma integrity_check") == [("ok",)]


def when_what_was_claimed_is_read(store: Store, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    sqlite: Any = store.db
    rows, claimed = sqlite.rows, sqlite.statements["claimed"]

    def acting(db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        if text == claimed:
            act()
        found: list[dict[str, Any]] = rows(db, text, parameters)
        return found

    monkeypatch.setattr(sqlite, "rows", acting)


@ONLY_SQLITE
def test_our_transactions_have_the_write_lock_before_they_read(store: Store) -> None:
    """Else a foreign writer could come between what a claim sees and what it writes."""
    assert isinstance(store, SqliteStore)
    with (
        closing(sqlite3.connect(store.db.path, timeout=0, isolation_level=None)) as other,
        store.db.transaction(),
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("begin immediate")


@ONLY_SQLITE
def test_others_may_write_while_a_worker_reads_what_it_claimed(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "BUSY", 0.1)
    other = stores()
    first = a_queued_job(store)
    when_what_was_claimed_is_read(store, monkeypatch, lambda: a_queued_job(other))
    assert [str(job.id) for job in claim(store, 10).jobs] == [first]
    assert len(store.reads.jobs()) == 2


@ONLY_SQLITE
def test_jobs_that_were_claimed_and_could_not_be_read_are_found_by_their_fence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = a_queued_job(store)
    wanted = wants(10)

    def fail() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    when_what_was_claimed_is_read(store, monkeypatch, fail)
    with pytest.raises(OutcomeUnknown, match="could not be read"):
        store.attempts.claim(wanted)
    assert [str(job.id) for job in store.claim_of(wanted.fence).jobs] == [id]


@ONLY_SQLITE
def test_a_queue_whose_name_is_no_text_hinders_no_other(store: Store, settings: Settings) -> None:
    bad, good = a_queued_job(store), a_queued_job(store)
    with raw(settings) as sql:
        sql("update holdfast_jobs set queue = cast(x'ff' as text) where id = ?", bad)
    assert store.look("w1", ["greet"], None).next_due is not None
    assert [str(job.id) for job in claim(store, 10).jobs] == [good]
    assert len(store.reads.jobs()) == 2


@ONLY_SQLITE
@pytest.mark.parametrize("column", ["args", "checkpoint", "correlation_id"])
def test_text_that_is_none_hinders_nobody_else(store: Store, settings: Settings, column: str) -> None:
    """SQLite keeps any bytes as text. Who can't read what it claimed looks it up as bytes, and has the runner refuse
    what can't be used."""
    bad, good = a_queued_job(store), a_queued_job(store)
    with raw(settings) as sql:
        sql(f"update holdfast_jobs set {column} = cast(x'22ff22' as text) where id = ?", bad)
    wanted = wants(10)
    with pytest.raises(OutcomeUnknown, match="UTF-8"):
        store.attempts.claim(wanted)
    jobs = {str(job.id): job for job in store.claim_of(wanted.fence).jobs}
    assert set(jobs) == {bad, good}
    value = getattr(jobs[bad], column)
    assert value == (b'"\xff"' if column != "correlation_id" else '"\ufffd"')


@ONLY_SQLITE
def test_a_job_that_was_rescued_before_it_was_read_is_not_ours(
    store: Store, stores: Callable[..., Store], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """A worker that is frozen between its claim and the reading, for longer than its lease."""
    other = stores(clock=clock)
    a_queued_job(store)

    def be_late() -> None:
        clock.advance(100)
        assert other.rescues.rescue()

    when_what_was_claimed_is_read(store, monkeypatch, be_late)
    claimed = claim(store, 10)
    assert claimed.jobs == []
    assert claimed.more, "it waits again: there is something to come back for"


def test_now_is_stored_as_any_instant_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = Stamp()
    before, now, after = stored(datetime.now(UTC)), stamp(), stored(datetime.now(UTC))
    assert before <= now <= after
    for moment in (
        "1970-01-01 00:00:00.000005",
        "2026-11-16 09:59:59.999999",
        "2026-11-16 10:00:00.000000",
        "2026-11-16 10:00:00.000007",
    ):
        instant = datetime.fromisoformat(moment).replace(tzinfo=UTC)
        nanoseconds = int(instant.replace(microsecond=0).timestamp()) * 10**9 + instant.microsecond * 1000 + 999
        monkeypatch.setattr("time.time_ns", lambda ns=nanoseconds: ns)
        assert stamp() == Stamp()() == stored(instant) == moment


FORK = """
import os, sys
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
store = open_store(Settings(url=sys.argv[1], schema=sys.argv[2], synchronous="off"))
for _ in range(10):  # each time at another moment of whatever our threads are doing
    store.enqueue(NewJob(task="greet", args=b'"parent"'))
    child = os.fork()
    if not child:
        store.enqueue(NewJob(task="greet", args=b'"child"'))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
store.enqueue(NewJob(task="greet", args=b'"parent again"'))
print(len(store.reads.jobs()))
"""


def test_a_forked_child_uses_no_handle_of_its_parent(store: Store, settings: Settings) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, settings.url, settings.schema],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "21\n"), done.stderr
    assert [job.args for job in store.reads.jobs()] == [b'"parent again"', *[b'"child"', b'"parent"'] * 10]


def test_a_closed_store_leaves_nothing_open(settings: Settings, stores: Callable[..., Store], clock: Clock) -> None:
    store = stores(clock=clock)
    store.schema.migrate()
    assert sum(len(chunk) for chunk in store.enqueue_many([new_job()] * 3)) == 3
    store.close()
    if settings.url.startswith("sqlite"):
        path = str(connect.path_of(settings))
        assert [name for name in map(os.path.realpath, Path("/proc/self/fd").iterdir()) if name.startswith(path)] == []
    with raw(settings) as sql:
        [(jobs,)] = sql("select count(*) from {jobs}")
    assert jobs == 3


@ONLY_SQLITE
def test_threads_of_one_process_queue_among_themselves(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who tries again and again keeps those from writing whose turn it is: hundreds of threads would starve."""
    tries = []
    tried = Gate._try

    def counted(gate: Gate) -> bool:
        tries.append(gate)
        return tried(gate)

    monkeypatch.setattr(Gate, "_try", counted)
    at_once(20, lambda n: [a_queued_job(store) for _ in range(10)])
    assert len(tries) == 200, "no other process is there"
    assert len(store.reads.jobs(limit=1000)) == 200


@ONLY_SQLITE
@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_was_deleted_or_replaced_is_told(store: Store, settings: Settings, replaced: bool) -> None:
    a_queued_job(store)
    assert store.look("w1", ["greet"], None).misfit is None
    path = connect.path_of(settings)
    path.unlink()
    if replaced:
        path.write_bytes(b"")
    misfit = store.look("w1", ["greet"], None).misfit
    assert misfit is not None
    assert (misfit.number, "was deleted or replaced" in str(misfit)) == ("HF3307", True)

    # Nobody would see what is written there: it must not be taken for kept.
    def refused() -> bool:
        try:
            a_queued_job(store)
        except StoreError as error:
            return error.number == "HF3307"
        return False

    wait_until(refused)  # for PLACE_LOOK at most the last look counts
    with pytest.raises(StoreError, match="HF3307"):
        a_queued_job(store)
    with pytest.raises(StoreError, match="HF3307"):
        a_queued_job(store, key="k")
    with pytest.raises(StoreError, match="HF3307"):
        list(store.enqueue_many(iter([new_job()])))


@ONLY_SQLITE
def test_a_file_that_is_gone_before_it_was_used_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "inode_of", lambda path: None)
    with pytest.raises(StoreError, match="HF3307"):
        a_queued_job(store)


@ONLY_SQLITE
def test_a_mistake_of_our_own_is_refused_by_the_constraints(store: Store) -> None:
    assert isinstance(store, SqliteStore)
    id = a_queued_job(store)
    with pytest.raises(ValueRefused, match="CHECK"), store.db.pool.take() as connection:
        connection.db.execute(store.db.statements.fill("update @jobs set ready_at = null where id = ?"), (id,))
    with pytest.raises(ValueRefused, match="CHECK"):
        store.enqueue(new_job(args=b"not JSON"))


@ONLY_SQLITE
def test_what_a_trigger_writes_when_a_job_comes_is_checked(
    store: Store, settings: Settings, stores: Callable[..., Store]
) -> None:
    """It may go to a table with constraints of its own, which are nobody's to ignore."""
    with raw(settings) as sql:
        sql("create table audit (task text check (task <> 'secret'))")
        sql("create trigger audited after insert on {jobs} begin insert into audit values (new.task); end")
    other = stores()
    with pytest.raises(ValueRefused, match="CHECK"):
        a_queued_job(other, task="secret")
    a_queued_job(other)
    assert [job.task for job in store.reads.jobs()] == ["greet"]


@ONLY_SQLITE
def test_names_that_are_no_text_keep_nobody_from_steering(store: Store, settings: Settings) -> None:
    a_queued_job(store)
    with raw(settings) as sql:
        sql("insert into {jobs} (task, queue, args) values ('greet', cast(x'ff41' as text), '{{}}')")
    assert store.operator.bulk("pause", parse("state:queued")).changed == 2
    assert store.operator.bulk("resume", parse("state:paused")).changed == 2
    assert store.operator.cancel("2") is State.CANCELLED
    assert [job.id for job in claim(store, limit=2).jobs] == [1]


def test_a_claim_of_a_file_that_keeps_its_text_otherwise_is_looked_up_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "utf-16.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma encoding = 'UTF-16le'")
        db.execute("create table something (id)")
        db.commit()
    store = open_store(Settings(url=f"sqlite:///{path}"))
    store.schema.migrate()
    a_queued_job(store, args=b'{"a":5}')
    wanted = wants()
    assert store.claim_of(wanted.fence).jobs == []
    assert store.attempts.claim(wanted).jobs == store.claim_of(wanted.fence).jobs != []
    store.close()


@ONLY_SQLITE
def test_a_turn_that_nobody_gave_back_keeps_others_waiting_once(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal handler may raise at any instruction: also between having a turn and knowing it."""
    place = connect.path_of(settings)
    lost, next_one = Gate(place, 0.2), Gate(place, 0.2)
    with lost:
        turn, lost._turn = lost._turn, None  # so it is never released
    with next_one:
        assert not lost._try(), "the lock of the file is what counts"
    assert gate._turns[place].lock is not turn, "nobody waits for that one again"
    tries: list[bool] = []

    def in_vain() -> bool:
        tries.append(False)
        return False

    monkeypatch.setattr(next_one, "_try", in_vain)
    with lost, pytest.raises(StoreUnavailable, match="or thread"), next_one:
        pytest.fail("two at once")
    assert len(tries) == 1, "who waited in vain for its turn has waited"
    lost.close()
    next_one.close()


def _modes(path: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob(f"{path.name}*")}


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    """So are its log and the gate: a lock on that keeps everybody from writing, and takes no more than reading it."""
    path, before = tmp_path / "jobs.db", os.umask(0o022)
    try:
        store = open_store(Settings(url=f"sqlite:///{path}"))
        store.schema.migrate()
        a_queued_job(store)
        assert _modes(path) == dict.fromkeys(["jobs.db", "jobs.db-wal", "jobs.db-shm", "jobs.db-gate"], 0o600)
        store.close()
    finally:
        os.umask(before)


@pytest.mark.parametrize(("mode", "gate"), [(0o660, 0o660), (0o640, 0o600), (0o644, 0o600), (0o666, 0o666)])
def test_a_file_keeps_the_mode_it_was_given(tmp_path: Path, mode: int, gate: int) -> None:
    """Only who may write to the database may lock the gate."""
    path = tmp_path / "jobs.db"
    path.touch()
    path.chmod(mode)
    store = open_store(Settings(url=f"sqlite:///{path}"))
    store.schema.migrate()
    a_queued_job(store)
    assert _modes(path) == {"jobs.db": mode, "jobs.db-wal": mode, "jobs.db-shm": mode, "jobs.db-gate": gate}
    store.close()


def test_a_gate_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever else may write to the directory could have us write into any file of ours."""
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (tmp_path / "jobs.db-gate").symlink_to(mine)
    with closing(open_store(Settings(url=f"sqlite:///{tmp_path}/jobs.db"))) as store, pytest.raises(StoreError) as told:
        store.schema.migrate()
    assert "jobs.db-gate can't be opened for writing" in str(told.value)
    assert mine.read_text() == "precious"


def test_a_file_that_was_read_only_for_a_while_can_be_written_again(tmp_path: Path) -> None:
    """The gate stays its owner's: locked out of it, nobody could write when the file's mode is set back."""
    path = tmp_path / "jobs.db"
    with closing(open_store(Settings(url=f"sqlite:///{path}"))) as store:
        store.schema.migrate()
    path.chmod(0o444)
    Gate(path, 1.0).close()
    assert _modes(path)["jobs.db-gate"] == 0o600
