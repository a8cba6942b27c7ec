"""Tables of the user's as queues, in a SQLite file. Triggers act at once, as the file has one writer: those on the
user's table make jobs follow their rows (adopted.sql), those on our jobs write to the rows (adopted_triggers.py). What
is left to do here: to install them, and to look for what no trigger told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.errors import BadArguments, BadSettings
from holdfast.model.job import COUNTED
from holdfast.model.mapping import Mapping
from holdfast.model.table import Problem, Table
from holdfast.model.text import named, plural
from holdfast.store.adopted import (
    AS_NEW,
    Plan,
    Resolved,
    SameKey,
    Settled,
    Source,
    Submitted,
    Swept,
    Unsettled,
    id_of,
    quoted,
)
from holdfast.store.adopted_rows import (
    counts_of,
    forget_source,
    leaving_loses,
    oddities,
    problems_of,
    said_otherwise,
    wishes,
    words_of,
)
from holdfast.store.operator_verbs import forget
from holdfast.store.sqlite.adopted_follow import BASE64
from holdfast.store.sqlite.adopted_step import BATCH, InStep
from holdfast.store.sqlite.adopted_submit import Submissions
from holdfast.store.sqlite.adopted_table import describe, resolved_in, unworkable
from holdfast.store.sqlite.adopted_templates import row_as_json
from holdfast.store.sqlite.adopted_triggers import SourceSql
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.user_connections import SqliteUserConnections

LOOKED_AT = 5_000  # rows read at a time for that
UNREACHABLE = "{0} is not null and coalesce(julianday({0}) > julianday('now', '+10 years'), 1)"


class SqliteAdopted:
    def __init__(self, db: SqliteDatabase, user_connections: SqliteUserConnections) -> None:
        self._db = db
        self._adopting = db.adopting
        self._prefix = db.settings.prefix
        self._submissions = Submissions(db, user_connections)
        self.in_step = InStep(db)

    # -- what is there -------------------------------------------------------------------------------------------------

    def describe(self, table: str) -> Table:
        with self._db.use() as connection:
            return describe(connection.db, table, self._prefix)

    def installed(self) -> list[Source]:
        with self._db.use() as connection:
            return self._sources(connection.db)

    def _sources(self, db: sqlite3.Connection) -> list[Source]:
        return [
            Source(name=name, mapping=mapping, suspended=suspended, swept_to=swept_to, refused=refused)
            for name, mapping, suspended, refused, swept_to in self._adopting.read(db)
        ]

    def plan(self, mapping: Mapping) -> Plan:
        with self._db.use() as connection:
            found, problems = resolved_in(connection.db, mapping, self._prefix)
            if found is None:
                raise unworkable(mapping, problems)
            problems += self._odd_rows(connection.db, found)
            rows = self._words(connection.db, found.table, found.status.name)
        in_file = SourceSql(found, self._prefix).follow.in_file
        return Plan(
            resolved=found, problems=problems, statements=[*in_file.values()],
            undo=[
                *(f"drop trigger if exists {quoted(name)}" for name in in_file),
                *forget_source(mapping.name, lambda name: quoted(f"{self._prefix}{name}")),
            ],
            locks=[
                f"the file's write lock for a few milliseconds, to create {len(in_file)} triggers",
                f"then for about 25 ms at a time, to make jobs for {BATCH} rows each, with pauses in between",
            ],
            rows=rows, wishes=wishes(found, "timestamp"),
        )  # fmt: skip

    def check(self, mapping: Mapping) -> list[Problem]:
        with self._db.use() as connection:
            try:
                found, problems = resolved_in(connection.db, mapping, self._prefix)
            except BadSettings as error:
                return [Problem(what=error.message, fix="name another table, or undo the adoption")]
            if any(problem.fatal for problem in problems):
                found = None
            return problems + self._drift(connection.db, mapping, found)

    def _drift(self, db: sqlite3.Connection, mapping: Mapping, found: Resolved | None) -> list[Problem]:
        """Where what is installed is not what the mapping says."""
        installed = self._sources(db)
        problems = said_otherwise(mapping, installed)
        as_said = [source for source in installed if source.mapping == mapping and not source.suspended]
        if found is not None and as_said:
            adopt = f"run `holdfast adopt {named(mapping.name)}`"
            expected = SourceSql(found, self._prefix).follow.in_file
            there = dict(db.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall())
            if missing := [name for name in expected if name not in there]:
                what = f"{plural('trigger', len(missing))} {', '.join(missing)} on {mapping.table} are missing"
                problems.append(Problem(what=what, fix=adopt))
            elif changed := [name for name, text in expected.items() if there[name] != _as_kept(text)]:
                what = f"{plural('trigger', len(changed))} {', '.join(changed)} are not as this version makes them"
                problems.append(Problem(what=what, fix=adopt, fatal=False))
        return problems

    def words(self, table: Table, column: str) -> dict[str, int]:
        with self._db.use() as connection:
            return self._words(connection.db, table, column)

    def _words(self, db: sqlite3.Connection, table: Table, column: str) -> dict[str, int]:
        return dict(db.execute(words_of(table, column)).fetchall())

    def odd_rows(self, mapping: Mapping) -> list[Problem]:
        with self._db.use() as connection:
            found, _ = resolved_in(connection.db, mapping, self._prefix)
            return [] if found is None else self._odd_rows(connection.db, found)

    def _odd_rows(self, db: sqlite3.Connection, found: Resolved) -> list[Problem]:
        odd = oddities(found, UNREACHABLE)
        return problems_of(odd, db.execute(counts_of(found, odd)).fetchone())

    def unsettled(self, name: str) -> Unsettled:
        [row] = self._db.read("source_unsettled", name=name, most=COUNTED + 1)
        return Unsettled(owed=row["owed"], owed_since=self._db.codec.moment(row["since"]))

    # -- to adopt, and to leave ----------------------------------------------------------------------------------------

    def install(self, mapping: Mapping, progress: Callable[[str], None] = lambda text: None) -> None:
        with self._db.use() as connection, connection.writing() as db:
            others = {name: said for name, said, *_ in self._adopting.read(db)}
            self._refuse_twice(db, mapping, others)
            self._make(db, mapping)
            said = msgspec.json.encode(mapping).decode()
            self._db.on(db).rows("source_kept", name=mapping.name, mapping=said)
        progress("triggers are in place")
        self._converge(mapping.name, progress)

    def suspend(self, name: str) -> None:
        with self._db.use() as connection, connection.writing() as db:
            self._known(db, name)
            self._adopting.drop_in_file(db, name)
            self._db.on(db).rows("source_suspended", name=name)

    def resume(self, name: str) -> None:
        with self._db.use() as connection, connection.writing() as db:
            self._make(db, self._known(db, name).mapping)
            self._db.on(db).rows("source_resumed", name=name)
        self._converge(name, lambda text: None)

    def undo(self, name: str) -> int:
        while self.settle(name).settled:  # what is owed, if it can be written
            pass
        with self._db.use() as connection, connection.writing() as db:
            source = self._known(db, name)
            tx = self._db.on(db)
            lost = leaving_loses(source, **tx.rows("source_held", name=name)[0])
            if lost is not None and self._is_there(db, source.mapping):
                raise lost
            gone = [row["id"] for row in tx.rows("source_unfinished", name=name)]
            forget(tx, gone)
            for statement in ("source_leases", "source_owes_nothing", "source_forgotten"):
                tx.rows(statement, name=name)
            self._adopting.drop_in_file(db, name)
        return len(gone)

    def _is_there(self, db: sqlite3.Connection, mapping: Mapping) -> bool:
        try:
            describe(db, mapping.table, self._prefix)
        except BadSettings:
            return False
        return True

    def _make(self, db: sqlite3.Connection, mapping: Mapping) -> None:
        found, problems = resolved_in(db, mapping, self._prefix)
        if found is None or any(problem.fatal for problem in problems):
            raise unworkable(mapping, problems)
        self._adopting.drop_in_file(db, mapping.name)
        for trigger in SourceSql(found, self._prefix).follow.in_file.values():
            db.execute(trigger)

    def _refuse_twice(self, db: sqlite3.Connection, mapping: Mapping, others: dict[str, Mapping]) -> None:
        """One table is one source."""
        table = describe(db, mapping.table, self._prefix).name
        for name, other in others.items():
            same = _names_same(db, other.table, table, self._prefix)
            if same != (name == mapping.name):
                what = f"{table} is adopted as {name!r}" if same else f"{name!r} is the table {other.table}"
                raise BadSettings(f"{what}: undo that first, or give another name=…", number="HF1162")

    def _known(self, db: sqlite3.Connection, name: str) -> Source:
        for source in self._sources(db):
            if source.name == name:
                return source
        raise BadArguments(f"{name} is not adopted: run `holdfast adopt {name}`", number="HF1164")

    # -- in step -------------------------------------------------------------------------------------------------------

    def _converge(self, name: str, progress: Callable[[str], None]) -> None:
        while self.settle(name).settled:
            pass
        [after] = [source.swept_to for source in self.installed() if source.name == name] or [None]
        jobs = 0
        while after is not None:
            swept = self.sweep(name, after or None, LOOKED_AT)
            after, jobs = swept.reached, jobs + swept.strays
            self._db.write("source_swept", name=name, reached=after)
            progress(f"{jobs} {plural('row', jobs)} taken over")

    def sweep(self, name: str, after: str | None, most: int = 1000) -> Swept:
        return self.in_step.sweep(name, after, most)

    def row(self, mapping: Mapping, id: str) -> dict[str, Any] | None:
        with self._db.use() as connection:
            found, problems = resolved_in(connection.db, mapping, self._prefix)
            if found is None:
                raise unworkable(mapping, problems)
            if (wanted := id_of(found.id, id)) is None:
                return None
            document = row_as_json(found.table.columns, "r", f"{BASE64}({{}})")
            text = f"select {document} from {found.sql_table} r where r.{found['id']} = ?"  # noqa: S608 - quoted
            row = connection.db.execute(text, (wanted,)).fetchone()
        return None if row is None else msgspec.json.decode(row[0])

    def settle(self, name: str, most: int = 200, *, stays: bool = False) -> Settled:
        return self.in_step.settle(name, most)

    def beat(self, name: str) -> None:
        self.in_step.beat(name)

    def submit(
        self, mapping: Mapping, values: dict[str, Any], same: SameKey = AS_NEW, *, conn: Any = None
    ) -> Submitted:
        return self._submissions.submit(mapping, values, same, conn)

    async def asubmit_on(self, conn: Any, mapping: Mapping, values: dict[str, Any], same: SameKey) -> Submitted:
        return await self._submissions.asubmit_on(conn, mapping, values, same)


def _names_same(db: sqlite3.Connection, name: str, table: str, prefix: str) -> bool:
    try:
        return describe(db, name, prefix).name == table
    except BadSettings:  # it is gone
        return name == table


def _as_kept(trigger: str) -> str:
    """As SQLite keeps its text."""
    return "CREATE TRIGGER" + trigger.removeprefix("create trigger")
