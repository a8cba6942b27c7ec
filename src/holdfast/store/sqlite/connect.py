"""Connections to a SQLite file, and the one place where its errors are translated into ours.

Only the standard library's SQLite is used: two copies of the library in one process, open on one file, drop each
other's locks. Libraries before 3.51.3 can corrupt a file when a checkpoint without the writer lock coincides with a
commit that restarts the log. So our connections never checkpoint automatically: whoever finds the log long takes the
gate and runs a RESTART checkpoint, which takes the writer lock first. The log file keeps its length: overwriting is
much faster than appending, which makes the disk record a new length (docs/decisions/0008)."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast.errors import BadSettings, ResultMisfit, SchemaOutdated, StoreError, StoreUnavailable, ValueRefused
from holdfast.settings import Settings
from holdfast.store.pool import ConnectionPool
from holdfast.store.sqlite import own_writer
from holdfast.store.sqlite.adopted_triggers import Adopting, add_functions
from holdfast.store.sqlite.gate import Gate

NEVER = -1  # no version of a schema
BUSY = 10.0  # seconds that a writer waits for its turn
FIRST_TRY = 0.05  # seconds after which a writer finds out whether it waits for its own caller
CACHE_KIB = 2 * 1024  # thousands of jobs fit; more is not faster, and the process would keep it
LOG_LIMIT = 4 * 1024 * 1024  # bytes of write-ahead log from which on whoever sees it runs a checkpoint
LOG_LOOK = 64  # single inserts between two checks of the log's length
LOG_KEPT = 16 * 1024 * 1024  # bytes that the log keeps when it is restarted
PLACE_LOOK = 0.01  # seconds between two checks that the file was not replaced, under many single enqueues
CHECKPOINT_BUSY = 1.0  # seconds
CHECKPOINT_AGAIN = 30.0  # seconds before a checkpoint that failed is tried again
NETWORK_FILE_SYSTEMS = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "ncpfs"]
)
VALUE_REFUSED = {sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}
DISK_TROUBLE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
TRANSIENT = DISK_TROUBLE | {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class Connection:
    """One open handle and its lock at the gate. Taken from the pool, it is used in one `with` block: at the end it goes
    back to the pool, and errors of SQLite are translated. (Not a generator: those take several times as long, and every
    enqueue comes through here.)"""

    def __init__(
        self, path: Path, settings: Settings, pool: ConnectionPool[Connection], adopting: Adopting
    ) -> None:  # fmt: skip
        self.path = path
        self._pool = pool
        self._adopting = adopting
        self._schema = NEVER  # the version of the schema that our triggers were made for
        with suppress(OSError):  # it exists; or SQLite says what is wrong
            # Readable by its owner only. (SQLite gives its log the same mode.)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with translated(str(path)):
            self._busy = BUSY
            self.db = sqlite3.connect(path, timeout=self._busy, isolation_level=None, check_same_thread=False)
            self.db.execute(f"pragma synchronous = {settings.synchronous}")
            self.db.execute("pragma wal_autocheckpoint = 0")
            self.db.execute(f"pragma cache_size = -{CACHE_KIB}")
            self.db.execute(f"pragma journal_size_limit = {LOG_KEPT}")
            add_functions(self.db)
        self._name = str(path)
        self._inode = inode_of(self._name)
        self._in_place_at = -math.inf  # monotonic
        self._log = -1  # its descriptor
        self._inserts = 0
        self.gate = Gate(path, BUSY)

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._pool.give_back(self)
        if error is not None and isinstance(error, sqlite3.Error):
            raise translate(self._name, error) from error

    def in_order(self) -> bool:
        return not self.db.in_transaction

    def misplaced(self) -> StoreError | None:
        """Is there another file at our path now, or none? Then nobody sees what we write, and we see nothing."""
        if inode_of(self._name) == self._inode is not None:
            return None
        return StoreError(
            f"{self.path} was deleted or replaced while it was in use: stop what uses it before you do that, and start "
            "it again",
            number="HF3307",
        )

    def refuse_if_misplaced(self, every: float = 0.0) -> None:
        """`every`: seconds for which the last check is valid."""
        now = time.monotonic()
        if now >= self._in_place_at + every:
            if (error := self.misplaced()) is not None:
                raise error
            self._in_place_at = now

    def use_log(self) -> None:
        """Switching to the write-ahead log needs the file alone; the gate makes the first processes take turns."""
        with self.gate:
            self.db.execute("pragma journal_mode = wal")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction: committed at the end, rolled back by an exception."""
        with self.gate:
            self._locking("begin immediate")
            try:
                schema = self._look_at_schema()
                yield self.db
                self.db.execute("commit")
                self._schema = schema
            except BaseException:
                if self.db.in_transaction:
                    self.db.execute("rollback")
                raise
            self._limit_log()

    def _look_at_schema(self) -> int:
        """Puts our triggers in order if somebody has changed the schema; returns the version they are made for. They
        are part of the transaction: if it is rolled back, that version doesn't count."""
        if self._schema_version() == self._schema:
            return self._schema
        self._adopting.look(self.db)
        return self._schema_version()

    def schema_was_changed(self) -> bool:
        """Since this connection last wrote. A table that was rebuilt may have lost our triggers: write, and see."""
        return self._schema not in (NEVER, self._schema_version())

    def _schema_version(self) -> int:
        [version] = self.db.execute("pragma schema_version").fetchone()
        return int(version)

    def insert(self, text: str, row: tuple[Any, ...]) -> int:
        """One row in a transaction of its own; returns its id. (The statement begins and commits it by itself.)"""
        with self.gate:
            id = self._locking(text, row).lastrowid
            if self._inserts % LOG_LOOK == 0:
                self._limit_log()
            self._inserts += 1
        assert id is not None
        return id

    def _locking(self, text: str, row: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Run the statement that takes the write lock. We are through the gate, so only others can have it: users'
        connections, perhaps one whose transaction our caller has open."""
        self._wait_for(FIRST_TRY)
        try:
            return self.db.execute(text, row)
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY:
                raise
        if own_writer.is_this_thread(self.path):
            raise BadSettings(
                f"you have a transaction open on {self.path} yourself, and SQLite has one writer: enqueue on it, as in "
                "task.using(conn=connection).enqueue(…), or commit it first",
                number="HF1112",
            )
        self.be_patient()
        return self.db.execute(text, row)

    def be_patient(self) -> None:
        self._wait_for(BUSY)

    def _wait_for(self, seconds: float) -> None:
        """How long SQLite waits for a lock."""
        if self._busy != seconds:
            self.db.execute(f"pragma busy_timeout = {int(seconds * 1000)}")
            self._busy = seconds

    def _log_is_long(self) -> bool:
        """Valid frames of the log have the salt of its header; frames left from before have another."""
        if self._log < 0:
            try:
                self._log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        header = os.pread(self._log, 24, 0)
        frame = int.from_bytes(header[8:12]) + 24  # a page and its header
        return len(header) == 24 and header[16:] == os.pread(self._log, 8, 32 + LOG_LIMIT // frame * frame + 8)

    def _limit_log(self) -> None:
        # The commit has happened, so a failure here is no error and is tried again later. So is a log that some reader
        # still needs: every try makes all writers wait, so one connection of all tries it.
        with suppress(OSError, sqlite3.Error):
            if not self._log_is_long() or self.gate.checkpoint_deferred(CHECKPOINT_AGAIN):
                return
            self.gate.defer_checkpoint(time.monotonic() + CHECKPOINT_AGAIN)
            self._wait_for(CHECKPOINT_BUSY)
            [(busy, _, _)] = self.db.execute("pragma wal_checkpoint(restart)").fetchall()
            if not busy:
                self.gate.defer_checkpoint(0.0)

    def close(self) -> None:
        self.db.close()
        self.gate.close()
        if self._log >= 0:
            os.close(self._log)


@contextmanager
def reading_text_as(db: sqlite3.Connection, factory: Callable[[bytes], Any]) -> Iterator[None]:
    before, db.text_factory = db.text_factory, factory
    try:
        yield
    finally:
        db.text_factory = before


def inode_of(path: str) -> int | None:
    """The inode at this path; None: there is no file. An inode is not reused while somebody has it open."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def path_of(settings: Settings) -> Path:
    parts = urlsplit(settings.url)
    if parts.netloc or not parts.path.startswith("/") or not parts.path.strip("/"):
        raise BadSettings(
            f"{settings.shown_url!r} names no file: write sqlite:///file.db (relative) or sqlite:////absolute/file.db",
            number="HF1104",
        )
    if parts.query:
        raise BadSettings(f"{settings.shown_url!r}: a SQLite URL takes no parameters", number="HF1104")
    name = unquote(parts.path)[1:]
    if name == ":memory:":
        raise BadSettings(
            f"{settings.shown_url!r}: a database in memory belongs to one connection, so no worker would see its jobs. "
            "Name a file; for tests there is holdfast.testing.store",
            number="HF1104",
        )
    with _reachable(name):
        return Path(name).resolve()  # SQLite keeps the log beside the target of a link


def is_there(settings: Settings) -> bool:
    """Does the file exist?"""
    path = path_of(settings)
    with _reachable(str(path)):
        return path.exists()


@contextmanager
def _reachable(name: str) -> Iterator[None]:
    """Translates what the operating system says about a path that leads nowhere."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:  # no right to enter, too long, links in a circle, NUL
        why = error.strerror if isinstance(error, OSError) else error
        raise StoreError(
            f"{name} can't be reached: {why}. Name a file in a directory that this user may enter", number="HF3301"
        ) from None


def prepare_file(path: Path) -> None:
    """Refuse early, with a clear message, where SQLite would not work or not be safe."""
    with _reachable(str(path)):
        _check(path)


def _check(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a directory: the database needs a file name", number="HF3301")
    if not path.parent.is_dir():
        raise StoreError(
            f"the directory {path.parent} does not exist: create it, or name another file", number="HF3301"
        )
    kind = file_system_of(path.parent)
    if kind in NETWORK_FILE_SYSTEMS:
        raise StoreError(
            f"{path} is on a network file system ({kind}), where SQLite can't lock safely: "
            "put the file on a local disk, or use PostgreSQL",
            number="HF3305",
        )
    if path.exists() and not os.access(path, os.W_OK):
        raise StoreError(f"{path} is read-only for this user: jobs can't be kept in it", number="HF3304")
    if not os.access(path.parent, os.W_OK):
        raise StoreError(
            f"the directory {path.parent} is read-only for this user: SQLite keeps its log beside the file",
            number="HF3304",
        )


def file_system_of(path: Path) -> str:
    """The type of file system that a path is on, as the kernel calls it; '' if it is unknown."""
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in mounts:
        _, where, type_, *_ = line.split(" ")
        where = where.replace("\\040", " ")
        if len(where) >= len(best) and (str(path) + "/").startswith(where.rstrip("/") + "/"):
            best, kind = where, type_
    return kind


@contextmanager
def translated(where: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translate(where, error) from error


def code_of(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_transient(error: sqlite3.Error) -> bool:
    return code_of(error) in TRANSIENT


def translate(where: str, error: sqlite3.Error) -> StoreError:
    code = code_of(error)
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable(
            f"the disk with {where} is full: free some space; nothing that was accepted is lost", number="HF3303"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        who = "another connection is writing"
        if own_writer.is_this_process(Path(where)):
            who = "another connection of this process is writing; if it is yours, enqueue on it, task.using(conn=…)"
        return StoreUnavailable(f"{where}: {error}: {who}", number="HF3302")
    if code in TRANSIENT:
        return StoreUnavailable(f"{where}: {error}")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreError(f"{where} is not a SQLite database", number="HF3306")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreError(f"{where} can't be opened: {error}", number="HF3301")
    if code == sqlite3.SQLITE_READONLY:
        return StoreError(f"{where} is read-only: jobs can't be kept in it", number="HF3304")
    if "no such table" in str(error) or "no such column" in str(error):
        return SchemaOutdated(
            f"{where} has no Holdfast tables, or others than this version knows: run `holdfast migrate`",
            number="HF2102",
        )
    if "RESULT_MISFIT" in str(error):
        return ResultMisfit(str(error).removeprefix("RESULT_MISFIT "))
    if code in VALUE_REFUSED:
        return ValueRefused(f"{where} refused: {error}")
    return StoreError(f"{where} refused: {error}")
