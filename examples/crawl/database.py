"""The application's own tables, on SQLite and PostgreSQL. Statements are written once: `:name` is a parameter, and
`{epoch}` the database's clock in seconds."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import StoreUnavailable

HERE = Path(__file__).parent
PATIENCE = 30.0  # seconds to wait for other writers of a SQLite file
EPOCH = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgres": "extract(epoch from clock_timestamp())::float8",
}


class Database:
    """One connection. Outside of `transaction()` each statement is committed at once."""

    def __init__(self, url: str) -> None:
        self.engine = "sqlite" if url.startswith("sqlite") else "postgres"
        if self.engine == "sqlite":
            path = url.removeprefix("sqlite:///")
            self.connection: Any = sqlite3.connect(
                path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            self.connection.execute("pragma foreign_keys = on")
            # Holdfast's processes empty the log, and only they: see its page on operating.
            self.connection.execute("pragma wal_autocheckpoint = 0")
        else:
            import psycopg

            with self._translated():
                self.connection = psycopg.connect(url, autocommit=True)

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Committed at its end, or rolled back."""
        with self._translated():
            if self.engine == "postgres":
                with self.connection.transaction():
                    yield self.connection
                return
            self.connection.execute("begin immediate")
            try:
                yield self.connection
                self.connection.execute("commit")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("rollback")
                raise

    def rows(self, text: str, /, **parameters: Any) -> list[dict[str, Any]]:
        with self._translated():
            cursor = self.connection.execute(self._sql(text), parameters)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def row(self, text: str, /, **parameters: Any) -> dict[str, Any] | None:
        return next(iter(self.rows(text, **parameters)), None)

    def value(self, text: str, /, **parameters: Any) -> Any:
        [row] = self.rows(text, **parameters)
        [value] = row.values()
        return value

    def changed(self, text: str, /, **parameters: Any) -> int:
        with self._translated():
            return int(self.connection.execute(self._sql(text), parameters).rowcount)

    def changed_by_all(self, text: str, several: Iterable[dict[str, Any]]) -> int:
        """How many rows this statement changed, with all of these parameters."""
        parameters = list(several)
        if not parameters:
            return 0
        with self._translated():
            cursor = self.connection.cursor()
            cursor.executemany(self._sql(text), parameters)
            return max(0, int(cursor.rowcount))

    def stream(self, text: str, /, **parameters: Any) -> Iterator[tuple[Any, ...]]:
        """Rows of a large answer, as they come."""
        if self.engine == "sqlite":
            yield from self.connection.execute(self._sql(text), parameters)
            return
        with self.connection.transaction(), self.connection.cursor("stream") as cursor:
            cursor.execute(self._sql(text), parameters)
            yield from cursor

    def create(self) -> None:
        """The tables, unless they are there."""
        script = (HERE / f"schema_{self.engine}.sql").read_text()
        if self.engine == "sqlite":
            self.connection.executescript(script)
        else:
            with self.connection.transaction():
                # Others may create them at the same moment: `if not exists` does not wait for them.
                self.connection.execute("select pg_advisory_xact_lock(hashtext('crawl'))")
                if self.value("select to_regclass('crawl_robots') is null"):
                    self.connection.execute(script)

    def close(self) -> None:
        self.connection.close()

    def _sql(self, text: str) -> str:
        text = text.replace("{epoch}", EPOCH[self.engine])
        return text if self.engine == "sqlite" else re.sub(r"(?<![:\w]):(\w+)", r"%(\1)s", text)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """A database that is away is not the crawl's fault: its job is given back, and no attempt is charged."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise StoreUnavailable(f"the crawl's tables are locked: {error}") from error
        except Exception as error:
            if type(error).__name__ not in ("OperationalError", "AdminShutdown") or self.engine == "sqlite":
                raise
            raise StoreUnavailable(f"the crawl's database is away: {error}") from error


@contextmanager
def connect(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()
