"""The TEMP triggers by which our connections write what becomes of jobs to the rows of adopted tables.

They belong to a connection, so each makes its own, and looks at the schema's version in each write transaction: nobody
can change the schema before that ends. On a change, all that is adopted is looked at again. A table that was rebuilt
(migration tools do) has lost our triggers, and gets them back. One that no longer fits its mapping, or is gone, is
marked as refused: its jobs are not claimed, and what becomes of those that run is owed, until it fits again."""

from __future__ import annotations

import sqlite3
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from holdfast.errors import BadSettings
from holdfast.model.mapping import Mapping
from holdfast.store.adopted import Resolved, quoted
from holdfast.store.sqlite.adopted_follow import BASE64, Following
from holdfast.store.sqlite.adopted_project import Projecting, owed_triggers
from holdfast.store.sqlite.adopted_table import resolved_in
from holdfast.store.sqlite.adopted_templates import Templates

IN_FILE = ("insert", "replace", "update", "delete", "rekey", "wait", "heartbeat")
_MAPPING = msgspec.json.Decoder(Mapping)


def _mapping(name: str, said: str) -> Mapping:
    try:
        return _MAPPING.decode(said)
    except msgspec.ValidationError:  # must not stop other tables, nor native jobs
        return Mapping(table=name, name=name, queue=name, states={})


def add_functions(db: sqlite3.Connection) -> None:
    """What claims need on a connection."""
    db.create_function(BASE64, 1, lambda value: b64encode(value).decode(), deterministic=True)


class SourceSql:
    """The SQL of one adopted table. `prefix`: of our tables."""

    def __init__(self, resolved: Resolved, prefix: str) -> None:
        templates = Templates(resolved, prefix)
        self.resolved = resolved
        self.follow = Following(templates)
        self.project = Projecting(templates)


class Adopting:
    """What is adopted in a file, as one of its connections sees it. `prefix`: of our tables."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._sources = quoted(f"{prefix}sources")
        # The tables that can be worked, as the newest look saw them. A write transaction begins with one if the schema
        # has changed, and only one is open at a time: so inside one this is how things are.
        self.workable: list[SourceSql] = []

    def read(self, db: sqlite3.Connection) -> list[tuple[str, Mapping, bool, str | None, str | None]]:
        """Name, mapping, whether it is suspended, why it is refused, how far it was swept."""
        try:
            rows = db.execute(f"select name, mapping, suspended, refused, swept_to from {self._sources}").fetchall()  # noqa: S608
        except sqlite3.OperationalError:
            return []  # the schema isn't there yet
        return [(name, _mapping(name, said), bool(off), refused, to) for name, said, off, refused, to in rows]

    def look(self, db: sqlite3.Connection) -> None:
        """Put this connection's triggers in order, in a write transaction of ours."""
        self._drop(db)
        workable = list[SourceSql]()
        for name, mapping, suspended, was_refused, _ in self.read(db):
            found, refused = self.sql(db, mapping)
            if refused is None and found is not None and not suspended and not self._restored(db, found):
                refused = f"our triggers can't be made on {mapping.table}"
            if refused != was_refused:
                db.execute(f"update {self._sources} set refused = ? where name = ?", (refused, name))  # noqa: S608
            if suspended or refused:
                found = None
            self._make(db, mapping, found)
            workable += [found] if found is not None else []
        self.workable = workable

    @contextmanager
    def on(self, db: sqlite3.Connection) -> Iterator[list[SourceSql]]:
        """For statements of ours on a connection of the user's. The triggers last as long as the block: others would be
        in the way of what its owner does next, and a rollback of theirs would take them back unseen. The connections
        that handlers get from us have theirs already."""
        if self._temporary(db):
            yield self.workable
            return
        sources = self.read(db)
        workable = list[SourceSql]()
        for _, mapping, suspended, refused, _ in sources:
            found = None if suspended or refused else self.sql(db, mapping)[0]
            self._make(db, mapping, found)
            workable += [found] if found is not None else []
        try:
            yield workable
        finally:
            if sources:
                self._drop(db)

    def sql(self, db: sqlite3.Connection, mapping: Mapping) -> tuple[SourceSql | None, str | None]:
        """Its statements; or why this table can't be worked."""
        if not mapping.states:
            return None, f"the mapping of {mapping.name} was written by another version of Holdfast"
        try:
            found, problems = resolved_in(db, mapping, self._prefix)
        except BadSettings as error:
            return None, error.message
        fatal = [str(problem) for problem in problems if problem.fatal]
        if found is None or fatal:
            return None, "; ".join(fatal)
        return SourceSql(found, self._prefix), None

    def _restored(self, db: sqlite3.Connection, found: SourceSql) -> bool:
        """Are our triggers on this table? Those that are missing are made, and then its rows have to be swept."""
        missing = [name for name in found.follow.in_file if name not in found.resolved.table.triggers]
        if not missing:
            return True
        try:
            self.drop_in_file(db, found.resolved.mapping.name)
            for trigger in found.follow.in_file.values():
                db.execute(trigger)
        except sqlite3.Error:
            return False
        db.execute(f"update {self._sources} set swept_to = '' where name = ?", (found.resolved.mapping.name,))  # noqa: S608
        return True

    def drop_in_file(self, db: sqlite3.Connection, name: str | None = None) -> None:
        """Drop our triggers on this source's table; or on all tables that are not ours."""
        ours = "select name, tbl_name from sqlite_master where type = 'trigger' and substr(name, 1, ?) = ?"
        start = self._prefix if name is None else f"{self._prefix}{name}_"
        for trigger, _ in db.execute(ours, (len(start), start)).fetchall():
            if name is None or trigger[len(start) :] in IN_FILE:
                db.execute(f"drop trigger if exists main.{quoted(trigger)}")

    def _make(self, db: sqlite3.Connection, mapping: Mapping, found: SourceSql | None) -> None:
        owed = owed_triggers(mapping.name, self._prefix, mapping.lease)
        for trigger in owed if found is None else found.project.triggers():
            db.execute(trigger)

    def _drop(self, db: sqlite3.Connection) -> None:
        for name in self._temporary(db):
            db.execute(f"drop trigger temp.{quoted(name)}")

    def _temporary(self, db: sqlite3.Connection) -> list[str]:
        """Our TEMP triggers on this connection."""
        start = f"{self._prefix}source_"
        ours = "select name from sqlite_temp_master where type = 'trigger' and substr(name, 1, ?) = ?"
        return [name for (name,) in db.execute(ours, (len(start), start)).fetchall()]
