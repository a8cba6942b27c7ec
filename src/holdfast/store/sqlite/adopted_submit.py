"""Rows that we insert into adopted tables of a SQLite file: triggers make each of them a job at once."""

from __future__ import annotations

from typing import Any

from holdfast.model.mapping import Mapping
from holdfast.store.adopted import SameKey, Submitted
from holdfast.store.adopted_submit import HOLE, Submission
from holdfast.store.enqueue_steps import arun_steps, run_steps
from holdfast.store.sqlite.adopted_rows import values_for
from holdfast.store.sqlite.adopted_table import resolved_in, unworkable
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.user_connections import SqliteUserConnections


class Submissions:
    def __init__(self, db: SqliteDatabase, user_connections: SqliteUserConnections) -> None:
        self._db = db
        self._prefix = db.settings.prefix
        self._users = user_connections

    def submit(self, mapping: Mapping, values: dict[str, Any], same: SameKey, conn: Any) -> Submitted:
        steps = self._submission(mapping, values, same).steps(self._db)
        if conn is not None:
            return run_steps(steps, self._users.execute_on(conn))
        with self._db.use() as connection, connection.writing() as db:
            return run_steps(steps, lambda text, given: self._db.rows(db, text, given))

    async def asubmit_on(self, conn: Any, mapping: Mapping, values: dict[str, Any], same: SameKey) -> Submitted:
        steps = self._submission(mapping, values, same).steps(self._db)
        return await arun_steps(steps, await self._users.aexecute_on(conn))

    def _submission(self, mapping: Mapping, values: dict[str, Any], same: SameKey) -> Submission:
        with self._db.use() as connection:
            found, problems = resolved_in(connection.db, mapping, self._prefix)
        if found is None or any(problem.fatal for problem in problems):
            raise unworkable(mapping, problems)
        return Submission(found, values_for(found, values), same, lambda text: text.replace(HOLE, ":"))
