"""Jobs in a SQLite file: one host, many processes, nothing to install."""

from __future__ import annotations

import json
import re
import sqlite3
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Any, cast

from holdfast.errors import LeaseLost, StoreError
from holdfast.model.facts import Holder
from holdfast.model.job import Look, Request, Thing
from holdfast.model.outcome import Progress
from holdfast.settings import Settings
from holdfast.store.base import (
    JobId,
    Ref,
    Row,
    Transaction,
    success,
)
from holdfast.store.columns import Lists
from holdfast.store.migrate import OLDEST_CODE, check_version, misfit, pending
from holdfast.store.operator_verbs import forget
from holdfast.store.pool import Pool
from holdfast.store.sqlite.catalogue import fresh, parts, things
from holdfast.store.sqlite.codec import SqliteCodec, Stamp, later, seconds_until, stored
from holdfast.store.sqlite.connect import (
    DISK_TROUBLE,
    TRANSIENT,
    Connection,
    code_of,
    path_of,
    prepare_file,
    reading_text_as,
    translate,
    translated,
)
from holdfast.store.sqlite.exchange import SqliteTrip, as_text
from holdfast.store.sqlite.gate import holder_of
from holdfast.store.sqlite.watch import Watch
from holdfast.store.statements import Statements


class SqliteStore(SqliteTrip):
    def __init__(self, settings: Settings, *, clock: Callable[[], datetime] | None = None) -> None:
        self.settings = settings
        self.shown_url = settings.shown_url
        self.path = path_of(settings)
        self.can_listen = settings.listen
        self._oldest: int | None = None
        self._clock = clock or (lambda: datetime.now(UTC))
        self._stamp = Stamp() if clock is None else (lambda: stored(self._clock()))
        self.codec = SqliteCodec()
        self.statements = Statements(
            "sqlite",
            lists=Lists(stamps=True, expiry="{}"),
            table=lambda name: f'"{settings.prefix}{name}"',
            now=":now",
            clock=":now",
            after=lambda name: f":{name}_at",
            any_of=lambda name: f"in (select value from json_each(:{name}))",  # noqa: S608 - our own names
        )
        self._after: dict[str, list[str]] = {}
        self._pool: Pool[Connection] = Pool(self._connect, Connection.in_order, file=self.path)
        prepare_file(self.path)

    def _connect(self) -> Connection:
        return Connection(self.path, self.settings, self._pool)

    # -- set-up ------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        with self._use() as connection:
            # Switching to the write-ahead log wants the file to itself; the gate makes the first ones take turns.
            with connection.gate:
                connection.db.execute("pragma journal_mode = wal")
            with connection.writing() as db:
                applied = pending("sqlite", self._version(db) or 0)
                for migration in applied:
                    for statement in parts(self.statements.with_tables(migration.sql)):
                        db.execute(statement)
                if applied:
                    db.execute(
                        self.statements.fill(
                            "insert into @meta (only_row, store_id, version, oldest_code) "
                            "values (1, :store_id, :version, :oldest_code) on conflict (only_row) "
                            "do update set version = excluded.version, oldest_code = excluded.oldest_code"
                        ),
                        {"store_id": str(uuid.uuid4()), "version": applied[-1].version, "oldest_code": OLDEST_CODE},
                    )
        self.check()
        return [m.name for m in applied]

    def pending(self) -> list[str]:
        with self._use() as connection:
            return [m.name for m in pending("sqlite", self._version(connection.db) or 0)]

    def _version(self, db: sqlite3.Connection) -> int | None:
        name = f"{self.settings.prefix}meta"
        if not db.execute("select 1 from sqlite_master where type = 'table' and name = ?", (name,)).fetchone():
            return None
        row = db.execute(self.statements["meta"]).fetchone()
        if row is None:
            raise StoreError(
                f"the table {name} in {self.path} is empty: it is not one of ours, or was damaged", number="HF2104"
            )
        self.store_id, self._oldest = row[0], row[2]
        return cast(int, row[1])

    def check(self) -> None:
        self._oldest = None
        with self._use() as connection:
            found = self._version(connection.db)
        check_version("sqlite", self.shown_url, found, self._oldest)

    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        expected = fresh(self.statements)
        tables = [thing.name for thing in expected if thing.kind == "table"]
        with self._use() as connection:
            return things(connection.db, self.statements, tables), expected

    def close(self) -> None:
        self._pool.close()

    # -- primitives --------------------------------------------------------------------------------------------

    def _use(self) -> Connection:
        return self._pool.take()

    def _parameters(self, text: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Fill in the clock, and the instants a statement reckons from it. SQLite has no clock but the host's."""
        now = self._clock()
        parameters["now"] = stored(now)
        after = self._after.get(text)
        if after is None:
            after = self._after[text] = sorted({m[1] for m in re.finditer(r":(\w+)_at\b", text)})
        for name in after:
            if name in parameters:
                parameters[f"{name}_at"] = later(now, parameters[name])
        for name, value in parameters.items():
            if isinstance(value, list):
                parameters[name] = json.dumps(value)
        return parameters

    def rows(self, db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[Row]:
        cursor = db.execute(text, self._parameters(text, parameters))
        rows = cursor.fetchall()
        if not rows:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._use() as connection, connection.writing() as db:
            yield _Transaction(self, db)

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        with self._use() as connection:
            return self.readable(connection.db, self.statements[name], parameters)

    def writing(self) -> Holder | None:
        return holder_of(self.path)

    def readable(self, db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[Row]:
        """What a statement reads. SQLite keeps any bytes as text: what is none is shown as far as it can be."""
        try:
            return self.rows(db, text, dict(parameters))
        except sqlite3.OperationalError as error:
            if "UTF-8" not in str(error):
                raise
        with reading_text_as(db, lambda value: value.decode(errors="replace")):
            return self.rows(db, text, dict(parameters))

    # -- the worker's trip ---------------------------------------------------------------------------------------

    def renew(self, fences: Sequence[str], held: Sequence[Ref], lease: float) -> tuple[set[str], list[Request]]:
        with self._use() as connection, connection.writing() as db:
            renewed = self.rows(
                db, self.statements["renew"], {"fences": list(fences), "held": len(held), "lease": lease}
            )
            concerns = self.rows(db, self.statements["requests"], {"held": [list(ref) for ref in held]})
        requests = [
            Request(row["id"], row["fence"], bool(row["lost"]), bool(row["cancel"]), bool(row["pause"]))
            for row in concerns
        ]
        return {row["fence"] for row in renewed}, requests

    def look(
        self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = (), *,
        open: bool = False,
    ) -> Look:  # fmt: skip
        scope = {"tasks": list(tasks), "queues": None if queues is None else list(queues)}
        with self._use() as connection:
            with connection.writing() as db:
                self.rows(db, self.statements["seen"], {"worker": worker})
            now = self._clock()
            [seen] = self.rows(connection.db, self.statements["look"], {"crons": list(crons), "worker": worker})
            lanes = self.readable(connection.db, self.statements["lanes"], scope)
            [pauses] = self.rows(connection.db, self.statements["pause_ends"], {})
            misplaced = connection.misplaced()
        upcoming = [lane["ready_at"] for lane in lanes]
        upcoming += [pauses["ends"]] if pauses["ends"] else []
        lease_end, tick = seen["next_lease_end"], seen["next_tick"]
        return Look(
            next_lease_end=lease_end and seconds_until(lease_end, now),
            next_due=seconds_until(min(upcoming), now) if upcoming else None,
            expired_leases=bool(seen["expired_leases"]),
            expired_jobs=bool(seen["expired_jobs"]),
            next_tick=tick and seconds_until(tick, now),
            next_pause_end=pauses["filter_ends"] and seconds_until(pauses["filter_ends"], now),
            filter_pauses=bool(pauses["filter_pauses"]),
            ended_holds=bool(seen["ended_holds"]),
            known=bool(seen["known"]),
            misfit=misplaced or misfit("sqlite", self.shown_url, seen["version"], seen["oldest_code"]),
        )

    def ahead(
        self, *, tasks: Sequence[str], queues: Sequence[str] | None, priority: int, due_at: Any, id: JobId, most: int
    ) -> tuple[int, JobId | None]:
        scope = {"tasks": list(tasks), "queues": None if queues is None else list(queues)}
        with self._use() as connection:
            now = stored(self._clock())
            jobs, first = 0, list[JobId]()
            for lane in self.readable(connection.db, self.statements["lanes"], scope):
                if lane["ready_at"] > now or lane["priority"] < priority or jobs >= most:
                    continue
                place = {"queue": lane["queue"], "task": lane["task"], "lane": lane["priority"], "id": id}
                [found] = self.rows(
                    connection.db, self.statements["ahead"],
                    {**place, "priority": priority, "due_at": due_at, "most": most - jobs},
                )  # fmt: skip
                jobs += found["jobs"]
                first += [found["first"]] if found["first"] is not None else []
        return min(jobs, most), min(first, default=None)

    def purge(self, after_id: int, *, finished: float, failed: float, limit: int = 1000) -> tuple[int, int | None]:
        # Look first: only if there may be something to forget is the writers' lock taken.
        [step] = self.read("purge_step", after_id=after_id, limit=limit, minus_youngest=-min(finished, failed))
        if step["reached"] is None:
            return 0, None
        with self.transaction() as tx:
            gone = tx.rows(
                "purge", after_id=after_id, reached=step["reached"], minus_finished=-finished, minus_failed=-failed
            )
            forget(tx, [row["id"] for row in gone])
        return len(gone), None if step["young"] else step["reached"]

    # -- under the lease: where PostgreSQL has one statement, these are several in a transaction -----------------------

    def checkpoint(self, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None) -> tuple[bool, bool]:
        with self.transaction() as tx:
            rows = tx.rows(
                "checkpoint", id=ref.id, fence=ref.fence, checkpoint=as_text(state), pending=pending, done=done
            )
            if rows and pending:
                tx.rows("list_pending", ids=[ref.id])
        return self._told(ref, "checkpoint", rows)

    def keep_step(self, ref: Ref, name: str, result: bytes) -> tuple[bool, bool]:
        with self.transaction() as tx:
            rows = tx.rows("step", id=ref.id, fence=ref.fence, name=name)
            if rows:
                tx.rows("keep_step", id=ref.id, fence=ref.fence, name=name, result=as_text(result))
        return self._told(ref, "step", rows)

    # -- a handler's own transaction -------------------------------------------------------------------------------

    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None) -> None:
        rows = self._execute_on(connection)(self.statements["succeed_on"], success(ref, result, progress))
        if not rows:
            raise LeaseLost(f"job {ref.id} was taken over by someone else; roll this transaction back")

    async def asucceed_on(
        self, connection: Any, ref: Ref, result: bytes | None, progress: Progress | None = None
    ) -> None:
        self.succeed_on(connection, ref, result, progress)

    @contextmanager
    def user_transaction(self, note: str = "") -> Iterator[Any]:
        # A connection of its own: whatever the handler sets on it ends with it. What goes wrong with its statements is
        # the handler's own affair, too. That the database is busy when it begins, or the disk is full, is not.
        with self._pool.fresh() as connection:
            connection.gate.note = note
            inside = False
            try:
                with connection.writing() as db:
                    inside = True
                    yield db
                    inside = False
            except sqlite3.Error as error:
                if code_of(error) in (DISK_TROUBLE if inside else TRANSIENT):
                    raise translate(str(self.path), error) from error
                raise

    # -- wake-ups ----------------------------------------------------------------------------------------------------

    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        """SQLite can't notify, but tells cheaply whether anyone has committed: its change counter is read after a write
        to the file, without touching the data (docs/decisions/0015)."""
        with translated(str(self.path)), self._pool.fresh() as connection:
            seen = _change_counter(connection.db)  # from here on, the log has its file
            with closing(Watch(self.path, restless=finished)) as watch:
                heard("listening", "")
                while not stop():
                    watch.wait()
                    now = _change_counter(connection.db)
                    if now != seen:
                        seen = now
                        heard("changed", "")


class _Transaction:
    def __init__(self, store: SqliteStore, db: sqlite3.Connection) -> None:
        self._store = store
        self._db = db

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        # Others may have inserted text that is none, which must not keep anyone from steering.
        with reading_text_as(self._db, lambda value: value.decode(errors="replace")):
            return self._store.rows(self._db, self._store.statements[name], parameters)


def _change_counter(db: sqlite3.Connection) -> int:
    return cast(int, db.execute("pragma data_version").fetchone()[0])
