"""Where it is measured: a fresh schema or file for every figure, and plain SQL beside the store."""

from __future__ import annotations

import sqlite3
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.app import PAD, hf, noop
from bench.embedded import EmbeddedPostgres
from holdfast.store.sqlite.codec import stored
from holdfast.store.sqlite.connect import LOG_LIMIT

if TYPE_CHECKING:
    import psycopg

ARGS = f'{{"pad":"{PAD}"}}'
SERVER_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "wal_level", "shared_buffers", "max_wal_size")


class Target(ABC):
    """One engine. `words` are what its SQL has for `{json}`, `{uuid}` and `{series}` (of :n rows)."""

    engine: str
    words: dict[str, str]

    @abstractmethod
    def use(self) -> None:
        """Have the application, and the workers that are started from now on, work here."""

    @abstractmethod
    def fresh(self) -> None:
        """Begin anew: empty tables as the migrations make them."""

    @abstractmethod
    def another(self) -> Target:
        """One more, on the same server or disk."""

    @contextmanager
    def beside(self) -> Iterator[Target]:
        """One more for a while, fresh. Whichever is to be measured next must be told `use`."""
        other = self.another()
        try:
            other.fresh()
            yield other
        finally:
            other.close()
            self.use()

    @abstractmethod
    def rows(self, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement on a connection of our own; `@jobs`, `:name` and `@now` are written as in our .sql files."""

    @abstractmethod
    def connect(self) -> Any:
        """A connection of another program's, which commits each statement by itself."""

    @abstractmethod
    def settle(self, *, analyse: bool = True) -> None:
        """Have what was written before on disk, so that the next figure doesn't pay for it; PostgreSQL's statistics
        up to date, unless they shall be stale."""

    def leave_unanalysed(self) -> None:
        """Let nobody gather statistics here while it stays as it is."""
        return

    def vacuum(self) -> None:
        """What autovacuum does once a minute, where it is off."""
        return

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def versions(self) -> dict[str, str]: ...

    @abstractmethod
    def server_settings(self) -> dict[str, str]: ...

    def sql(self, text: str) -> str:
        return hf.store.db.statements.fill(text)

    def fill(self, jobs: int) -> range:
        """Enqueue that many no-ops; returns their ids."""
        ids = [int(job.id) for job in hf.enqueue_many(noop.bind(PAD) for _ in range(jobs))]
        return range(ids[0], ids[-1] + 1)

    def is_finished(self, id: int) -> bool:
        """One probe of the primary key: looking for the end must not cost the worker anything."""
        return bool(self.rows("select 1 from @jobs where id = :id and finished_at is not null", id=id))

    def unfinished(self, ids: range) -> int:
        [(count,)] = self.rows(
            "select count(*) from @jobs where id between :first and :last and state <> 'succeeded'",
            first=ids[0], last=ids[-1],
        )  # fmt: skip
        return int(count)

    def seconds_worked(self, ids: range) -> float:
        """From the first start to the last finish of these jobs, as the database saw them."""
        [(began, ended)] = self.rows(
            "select min(started_at), max(finished_at) from @jobs where id between :first and :last",
            first=ids[0], last=ids[-1],
        )  # fmt: skip
        return float((_instant(ended) - _instant(began)).total_seconds())


class SqliteTarget(Target):
    engine = "sqlite"
    words = {  # noqa: RUF012 - a constant
        "json": ":args",
        "uuid": "lower(hex(randomblob(16)))",
        "series": "(with recursive s (n) as (select 1 union all select n + 1 from s where n < :n) select n from s) s",
    }
    db: sqlite3.Connection

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0

    @property
    def _path(self) -> Path:
        return self._directory / f"bench{self._count}.db"

    def use(self) -> None:
        hf.reconfigure(url=f"sqlite:///{self._path}")

    def another(self) -> Target:
        return SqliteTarget(Path(tempfile.mkdtemp(dir=self._directory)))

    def fresh(self) -> None:
        self.close()
        self._count += 1
        self.use()
        assert hf.store  # makes the schema
        self.db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self.db.execute("pragma synchronous = full")
        [(page,)] = self.db.execute("pragma page_size").fetchall()
        self.db.execute(f"pragma wal_autocheckpoint = {LOG_LIMIT // page}")  # as often as we do it ourselves

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, timeout=60)

    def rows(self, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return self.db.execute(self.sql(text), {"now": stored(datetime.now(UTC)), **parameters}).fetchall()

    def settle(self, *, analyse: bool = True) -> None:
        self.db.execute("pragma wal_checkpoint(truncate)").fetchall()

    def versions(self) -> dict[str, str]:
        return {"sqlite": sqlite3.sqlite_version}

    def server_settings(self) -> dict[str, str]:
        return {"journal_mode": "wal", "synchronous": hf.settings.synchronous}

    def close(self) -> None:
        hf.close()
        if self._count:
            self.db.close()
        for path in self._directory.glob(f"{self._path.name}*"):
            if path.is_file():
                path.unlink()


class PostgresTarget(Target):
    engine = "postgres"
    words = {"json": ":args::json", "uuid": "gen_random_uuid()", "series": "generate_series(1, :n)"}  # noqa: RUF012
    db: psycopg.Connection

    def __init__(self, url: str, *, own_server: bool) -> None:
        import psycopg

        self.own_server = own_server  # nobody else's: its settings may be changed
        self.url = url
        self._schema = f"bench_{uuid.uuid4().hex[:8]}"
        self.use()
        self.db = psycopg.connect(url, autocommit=True)

    def use(self) -> None:
        hf.reconfigure(url=self.url, schema=self._schema)

    def another(self) -> Target:
        return PostgresTarget(self.url, own_server=self.own_server)

    def fresh(self) -> None:
        self._drop()
        self.use()
        hf.migrate()

    def connect(self) -> psycopg.Connection:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def rows(self, text: str, **parameters: Any) -> list[tuple[Any, ...]]:
        cursor = self.db.execute(self.sql(text).encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def settle(self, *, analyse: bool = True) -> None:
        from psycopg.errors import InsufficientPrivilege

        if analyse:
            self.rows("analyze @jobs")
        with suppress(InsufficientPrivilege):
            self.rows("checkpoint")

    def leave_unanalysed(self) -> None:
        self.rows("alter table @jobs set (autovacuum_enabled = off)")

    def vacuum(self) -> None:
        self.rows("vacuum @jobs")

    def versions(self) -> dict[str, str]:
        import psycopg

        server = self.db.info.parameter_status("server_version") or ""
        return {"postgres": server, "psycopg": f"{psycopg.__version__} ({psycopg.pq.__impl__})"}

    def server_settings(self) -> dict[str, str]:
        return {name: str(self.rows(f"show {name}")[0][0]) for name in SERVER_SETTINGS}

    def _drop(self) -> None:
        hf.close()
        self.db.execute(f'drop schema if exists "{self._schema}" cascade'.encode())

    def close(self) -> None:
        self._drop()
        self.db.close()


@contextmanager
def opened(engine: str, url: str | None) -> Iterator[Target]:
    """A place on this engine, gone without a trace at the end. `url`: a PostgreSQL to use; else a private one."""
    with ExitStack() as stack:
        stack.callback(setattr, hf, "settings", hf.settings)
        target: Target
        if engine == "sqlite":
            target = SqliteTarget(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-"))))
        elif url is not None:
            target = PostgresTarget(url, own_server=False)
        else:
            server = EmbeddedPostgres()
            stack.callback(server.destroy)
            target = PostgresTarget(server.url, own_server=True)
        stack.callback(target.close)
        target.fresh()
        yield target


def _instant(stored: Any) -> datetime:
    return stored if isinstance(stored, datetime) else datetime.fromisoformat(stored)
