"""Tables of the user's as queues, on PostgreSQL: installed, watched and kept in step with their jobs.

What is done to a table is generated (adopted_functions.py) and acts as the owner of our tables. Statements that change
the user's table take their lock within 100 ms or try again later, so that no foreign statement waits longer behind
them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.errors import BadArguments, BadSettings, RightMissing, RowLocked, SchemaOutdated
from holdfast.model.job import COUNTED
from holdfast.model.lifecycle import State
from holdfast.model.mapping import Mapping
from holdfast.model.table import Problem, Table
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
    literal,
    quoted,
    resolve,
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
from holdfast.store.adopted_submit import Submission
from holdfast.store.enqueue_steps import arun_steps, run_steps
from holdfast.store.operator_verbs import forget
from holdfast.store.postgres.adopted_check import function_problems, right_problems, trigger_problems
from holdfast.store.postgres.adopted_functions import (
    TableFunctions,
    drop_functions,
    drop_out_trigger,
    still,
    suffix_of,
    trigger_names,
)
from holdfast.store.postgres.adopted_row import RowReads, id_type
from holdfast.store.postgres.adopted_submit import submission
from holdfast.store.postgres.adopted_table import Catalogue
from holdfast.store.postgres.connect import Connection
from holdfast.store.postgres.database import PostgresDatabase, StatementTransaction
from holdfast.store.postgres.schema import await_turn
from holdfast.store.postgres.user_connections import PostgresUserConnections
from holdfast.store.postgres.wakeups import PostgresWakeups

LOCK_WITHIN = "100ms"  # foreign statements queue behind a lock that we wait for
LOCK_TRIES = 200
LOCK_PAUSE = 0.25  # seconds between them: foreign statements that queued get through
BEGINNING = "row:"  # where a walk begins that has not begun
SWEEP_STEP = 1000
SUBMIT_WITHIN = 10.0  # seconds that a submission waits for its turn, as on SQLite: a crowd may have the same key
UNREACHABLE = "{} > now() + interval '10 years'"
SETTLE_STEP = 200


def _silent(text: str) -> None: ...


class PostgresAdopted:
    def __init__(self, db: PostgresDatabase, wakeups: PostgresWakeups, users: PostgresUserConnections) -> None:
        self._db = db
        self._wakeups = wakeups
        self._users = users
        self._schema = db.settings.schema
        self._known: dict[str, Resolved] = {}  # tables that rows were submitted to

    # -- looking -----------------------------------------------------------------------------------------------------

    def describe(self, table: str) -> Table:
        with self._catalogue() as catalogue:
            return catalogue.table(catalogue.find(table))

    def installed(self) -> list[Source]:
        return [
            Source(
                name=row["name"], mapping=msgspec.json.decode(bytes(row["mapping"]), type=Mapping),
                suspended=row["suspended"], swept_to=row["swept_to"], refused=row["refused"],
            )
            for row in self._db.read("sources")
        ]  # fmt: skip

    def plan(self, mapping: Mapping) -> Plan:
        resolved, made, problems = self._examine(mapping)
        if resolved is None or made is None:
            raise _cannot_work(mapping, problems)
        table = resolved.sql_table
        return Plan(
            resolved=resolved,
            problems=[*problems, *self._odd_rows(resolved)],
            statements=[*made.functions(), *made.triggers().values(), made.out_trigger()],
            undo=[
                *forget_source(mapping.name, lambda name: f"{quoted(self._schema)}.{name}"),
                f"delete from {quoted(self._schema)}.inbox where source = {literal(mapping.name)}",  # noqa: S608
                *(f"drop trigger if exists {name} on {table}" for name in trigger_names(made.suffix)),
                *drop_functions(self._schema, made.suffix),
            ],
            locks=[
                f"SHARE ROW EXCLUSIVE on {table}, for the moment in which four triggers are created: writers wait "
                f"{LOCK_WITHIN} at most, then it is tried again",
                f"row locks on {table}, {SETTLE_STEP} rows at a time, only of rows that have work left and that "
                "nobody else has locked",
            ],
            rows=self.words(resolved.table, resolved.status.name),
            wishes=wishes(resolved, "timestamptz"),
        )

    def check(self, mapping: Mapping) -> list[Problem]:
        try:
            resolved, _, problems = self._examine(mapping)
        except BadSettings as error:  # there is no such table any more
            return [Problem(what=error.message, fix="put it back, or run `holdfast adopt --undo`")]
        gone = [problem.column for problem in problems if problem.fatal and problem.column]
        installed = self.installed()
        source = next((source for source in installed if source.name == mapping.name), None)
        problems += said_otherwise(mapping, installed)
        why = source.refused if source is not None else None
        if why is not None and not any(column in why for column in gone):  # else it is said already
            problems.append(
                Problem(
                    what=f"rows of {mapping.table} could not be written of late, and were left alone: {why}",
                    fix="mend what it names, perhaps a trigger or a constraint of the table's",
                    fatal=False,
                )
            )
        if resolved is not None and source is not None and not source.suspended:
            with self._catalogue() as catalogue:
                problems += trigger_problems(catalogue, resolved, self._schema)
                if source.mapping == mapping:
                    problems += function_problems(catalogue, resolved, self._schema)
        return problems

    def _examine(self, mapping: Mapping) -> tuple[Resolved | None, TableFunctions | None, list[Problem]]:
        """The mapping on the live table, what is made of it, and what speaks against it."""
        with self._catalogue() as catalogue:
            found = catalogue.find(mapping.table)
            table = catalogue.table(found)
            second = mapping.counts and mapping.counts.table
            counts_table = catalogue.table(catalogue.find(second)) if second else None
            resolved, problems = resolve(mapping, table, counts_table)
            problems += right_problems(mapping, table, counts_table)
            if resolved is None:
                return None, None, problems
            made = TableFunctions(
                resolved, schema=self._schema, types=catalogue.types(found), path=catalogue.path(found)
            )
            return resolved, made, problems

    def words(self, table: Table, column: str) -> dict[str, int]:
        with self._catalogue() as catalogue:
            return dict(catalogue.query(words_of(table, column)))

    def odd_rows(self, mapping: Mapping) -> list[Problem]:
        resolved = self._examine(mapping)[0]
        return [] if resolved is None else self._odd_rows(resolved)

    def _odd_rows(self, resolved: Resolved) -> list[Problem]:
        odd = oddities(resolved, UNREACHABLE)
        with self._catalogue() as catalogue:
            rows = catalogue.query(counts_of(resolved, odd))
        if not rows:
            fix = "look as a role that may, or as the table's owner"
            return [Problem(what="who looks here may not read its rows", fix=fix, fatal=False)]
        return problems_of(odd, rows[0])

    def unsettled(self, name: str) -> Unsettled:
        [row] = self._db.read("unsettled", source=name, most=COUNTED + 1)
        moment = self._db.codec.moment
        return Unsettled(row["inbox"], moment(row["inbox_since"]), row["owed"], moment(row["owed_since"]))

    @contextmanager
    def _catalogue(self) -> Iterator[Catalogue]:
        with self._db.use() as connection, connection.transaction():
            yield Catalogue(self._db, connection)

    # -- adopting ----------------------------------------------------------------------------------------------------

    def install(self, mapping: Mapping, progress: Callable[[str], None] = _silent) -> None:
        _, made, problems = self._examine(mapping)
        fatal = [problem for problem in problems if problem.fatal]
        if made is None or fatal:
            raise _cannot_work(mapping, fatal or problems)
        self._refuse_taken(mapping, made.suffix)
        with self._as_owner() as (connection, tx):
            for statement in made.functions():
                connection.execute(statement.encode(), prepare=False)
            text = msgspec.json.encode(mapping).decode()
            tx.rows("add_source", name=mapping.name, mapping=text, functions=made.suffix)
        progress("the functions are in place")
        self._make_triggers(mapping, made, progress)
        self._first_walk(mapping.name, progress)

    def _refuse_taken(self, mapping: Mapping, suffix: str) -> None:
        """One table is one source. Others may have adopted it: under another name, or another installation of ours."""
        others = [source for source in self.installed() if source.name != mapping.name]
        with self._catalogue() as catalogue:
            found = catalogue.find(mapping.table)
            taken = next((other.name for other in others if catalogue.oid(other.mapping.table) == found["oid"]), None)
            if taken is not None:
                raise BadSettings(f"{mapping.table!r} is adopted as {taken!r}: undo that first", number="HF1162")
            for trigger in catalogue.triggers(found):
                if trigger["name"] in trigger_names(suffix) and trigger["schema"] != self._schema:
                    raise BadSettings(
                        f"{mapping.table!r} is adopted under the name {mapping.name!r} by the Holdfast of schema "
                        f"{trigger['schema']}: undo it there, or adopt it under another name",
                        number="HF1162",
                    )

    def _make_triggers(self, mapping: Mapping, made: TableFunctions, progress: Callable[[str], None]) -> None:
        with self._catalogue() as catalogue:
            there = {row["name"] for row in catalogue.triggers(catalogue.find(mapping.table)) if row["enabled"]}
        missing = [statement for name, statement in made.triggers().items() if name not in there]
        if missing:
            self._with_lock(missing, progress)
        if not self._db.read("has_out_trigger")[0]["there"]:
            self._with_lock([made.out_trigger()], progress)
        progress("the triggers are in place")

    def _with_lock(
        self, statements: Sequence[str], progress: Callable[[str], None] = _silent, *, owner: bool = True
    ) -> None:
        """Run these together, as soon as the lock they need is free for a moment."""
        for tried in range(LOCK_TRIES):
            try:
                with self._as_owner(owner) as (connection, _):
                    connection.execute(f"set local lock_timeout = '{LOCK_WITHIN}'", prepare=False)
                    for statement in statements:
                        connection.execute(statement.encode(), prepare=False)
                return
            except RowLocked:
                if tried == LOCK_TRIES - 1:
                    raise
                if tried % 20 == 0:
                    progress("somebody has the table locked: trying again")
                time.sleep(LOCK_PAUSE)

    def _first_walk(self, name: str, progress: Callable[[str], None]) -> None:
        """A job for each row that has work left. Goes on where it was cut short."""
        looked = 0
        for _ in range(LOCK_TRIES):
            after = self._installed(name).swept_to
            while after is not None:
                after = self.sweep(name, after).reached
                while (settled := self.settle(name)).settled:
                    pass
                if after is not None:
                    looked += SWEEP_STEP
                    with self._db.transaction() as tx:
                        tx.rows("source_swept_to", name=name, to=after)
                    locked = f", {settled.waiting} of them are locked" if settled.waiting else ""
                    progress(f"looked at about {looked} rows{locked}")
            if self._installed(name).swept_to is None:
                return
            progress("somebody has the table locked: trying again")
            time.sleep(LOCK_PAUSE)
        raise RowLocked(f"the rows of {name} can't be read, as somebody has the table locked: adopt it again later")

    @contextmanager
    def _as_owner(self, owner: bool = True) -> Iterator[tuple[Connection, StatementTransaction]]:
        """A transaction as the owner of our tables, as `migrate` has it. One at a time, for `create or replace` fails
        where another transaction creates the same."""
        with self._db.use() as connection, connection.transaction():
            await_turn(connection, self._schema)
            row = self._db.rows(connection, self._db.statements["schema_owner"], {})[0]
            if owner and row["owner"] != row["user"]:
                connection.execute("select set_config('role', %s, true)", (row["owner"],), prepare=False)
            yield connection, StatementTransaction(self._db, connection)

    # -- leaving it alone --------------------------------------------------------------------------------------------

    def suspend(self, name: str) -> None:
        self._installed(name)
        # The triggers stay, as dropping them takes a lock on the user's table; their function does nothing now.
        with self._as_owner() as (connection, tx):
            connection.execute(still(self._schema, suffix_of(name)).encode(), prepare=False)
            tx.rows("suspend_source", name=name, suspended=True)

    def resume(self, name: str) -> None:
        source = self._installed(name)
        _, made, problems = self._examine(source.mapping)
        fatal = [problem for problem in problems if problem.fatal]
        if made is None or fatal:
            raise _cannot_work(source.mapping, fatal or problems)
        with self._as_owner() as (connection, tx):
            for statement in made.functions():
                connection.execute(statement.encode(), prepare=False)
            tx.rows("suspend_source", name=name, suspended=False)
            tx.rows("source_swept_to", name=name, to=BEGINNING)  # nobody told what changed meanwhile
            tx.rows("owed_to_inbox", name=name)
        self._first_walk(name, _silent)

    def undo(self, name: str) -> int:
        source = self._installed(name)
        there = self._is_there(source.mapping)
        while there and (lost := leaving_loses(source, **self._db.read("source_held", name=name)[0])):
            if not self.settle(name).settled:  # what is owed, if it can be written
                raise lost
        self._drop_triggers(source)
        with self._as_owner() as (connection, tx):
            gone = [row["id"] for row in tx.rows("forget_source_jobs", name=name)]
            lost = leaving_loses(source, **tx.rows("source_held", name=name)[0])
            if lost is not None and there:
                raise lost  # somebody has claimed one since
            forget(tx, gone)
            tx.rows("forget_source", name=name)
            for statement in drop_functions(self._schema, suffix_of(name)):
                connection.execute(statement.encode(), prepare=False)
        out = self._db.read("has_out_trigger")[0]
        if out["there"] and not out["needed"]:
            self._with_lock([drop_out_trigger(self._schema)])
        return len(gone)

    def _is_there(self, mapping: Mapping) -> bool:
        try:
            self.describe(mapping.table)
        except BadSettings:
            return False
        return True

    def _drop_triggers(self, source: Source) -> None:
        """Only the owner of a table can do that: the owner of ours, or whoever asks."""
        try:
            with self._catalogue() as catalogue:
                found = catalogue.find(source.mapping.table)
                there = {row["name"] for row in catalogue.triggers(found)}
        except BadSettings:
            return  # the table is gone, and its triggers with it
        table = f"{quoted(found['schema'])}.{quoted(found['name'])}"
        drops = [f"drop trigger {name} on {table}" for name in trigger_names(suffix_of(source.name)) if name in there]
        if not drops:
            return
        try:
            self._with_lock(drops)
        except RightMissing:
            try:
                self._with_lock(drops, owner=False)
            except RightMissing as error:
                raise RightMissing(
                    f"only {found['owner']}, who owns {table}, can drop its triggers. As that role, run: "
                    f"{'; '.join(drops)}; then undo again"
                ) from error

    def _installed(self, name: str) -> Source:
        known = self.installed()
        for source in known:
            if source.name == name:
                return source
        names = ", ".join(repr(source.name) for source in known) or "none"
        raise BadArguments(f"no table is adopted as {name!r} (adopted are: {names})", number="HF1164")

    # -- keeping in step ---------------------------------------------------------------------------------------------

    def row(self, mapping: Mapping, id: str) -> dict[str, Any] | None:
        try:
            return self._row(self._known_table(mapping), id)
        except SchemaOutdated:  # the table was altered since we looked
            del self._known[mapping.name]
            return self._row(self._known_table(mapping), id)

    def _row(self, known: Resolved, id: str) -> dict[str, Any] | None:
        if (wanted := id_of(known.id, id)) is None:
            return None
        document = RowReads(known).document(known.table.columns, "r")
        text = f"select {document} as row from {known.sql_table} r where r.{known['id']} = %(id)s::{id_type(known.id)}"  # noqa: S608
        with self._db.use() as connection:
            rows = self._db.rows(connection, text.replace("%", "%%").replace("%%(id)s", "%(id)s"), {"id": wanted})
        return msgspec.json.decode(bytes(rows[0]["row"])) if rows else None

    def settle(self, name: str, most: int = SETTLE_STEP, *, stays: bool = False) -> Settled:
        rows = self._db.write("settle", source=name, most=most, stays=stays)
        if not rows:
            return Settled()
        [done] = rows
        if done["due"]:
            self._wakeups.tell([done["queue"]] * done["due"])
        if done["asked"]:
            self._wakeups.notify(requests=True)
        return Settled(done["settled"], done["waiting"], bool(done["due"]))

    def beat(self, name: str) -> None:
        self._db.write("beat", source=name)

    def sweep(self, name: str, after: str | None, most: int = SWEEP_STEP) -> Swept:
        rows = self._db.write("sweep", source=name, after=None if after == BEGINNING else after, most=most)
        return Swept(rows[0]["reached"], rows[0]["strays"]) if rows else Swept(None, 0)

    def submit(
        self, mapping: Mapping, values: dict[str, Any], same: SameKey = AS_NEW, *, conn: Any = None
    ) -> Submitted:
        if conn is not None:
            steps = self._submission(mapping, values, same).steps(self._db)
            return run_steps(steps, self._users.execute_on(conn))
        try:
            answer = self._submitted(mapping, values, same)
        except SchemaOutdated:  # the table was altered since we looked
            del self._known[mapping.name]
            answer = self._submitted(mapping, values, same)
        if (answer[1].created or answer[1].retried) and answer[1].state is State.QUEUED:
            self._wakeups.hint(mapping.queue)
        return answer

    async def asubmit_on(self, conn: Any, mapping: Mapping, values: dict[str, Any], same: SameKey) -> Submitted:
        steps = self._submission(mapping, values, same).steps(self._db)
        return await arun_steps(steps, await self._users.aexecute_on(conn))

    def _submitted(self, mapping: Mapping, values: dict[str, Any], same: SameKey) -> Submitted:
        give_up_at = time.monotonic() + SUBMIT_WITHIN
        while True:
            steps = self._submission(mapping, values, same).steps(self._db)
            try:
                with self._db.use() as connection, connection.transaction():
                    return run_steps(steps, lambda text, given: self._db.rows(connection, text, given))
            except RowLocked:  # rolled back: nothing was inserted
                if time.monotonic() >= give_up_at:
                    raise

    def _submission(self, mapping: Mapping, values: dict[str, Any], same: SameKey) -> Submission:
        return submission(self._known_table(mapping), values, same)

    def _known_table(self, mapping: Mapping) -> Resolved:
        """The table of a mapping, looked up once."""
        known = self._known.get(mapping.name)
        if known is None or known.mapping != mapping:
            known, _, problems = self._examine(mapping)
            if known is None:
                raise _cannot_work(mapping, problems)
            self._known[mapping.name] = known
        return known


def _cannot_work(mapping: Mapping, problems: Sequence[Problem]) -> BadSettings:
    said = "; ".join(map(str, problems))
    return BadSettings(f"the mapping of {mapping.table!r} can't work: {said}", number="HF1162")
