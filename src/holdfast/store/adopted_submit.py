"""A submission: insert a row into an adopted table, or find the one with the same key. Described apart from its
execution, as an enqueue is (enqueue_steps.py), so that it runs on our connection or on a caller's."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadArguments, Refused
from holdfast.model.job import FOREVER, Enqueued
from holdfast.model.lifecycle import UNFINISHED, State
from holdfast.store.adopted import Resolved, SameKey, Submitted, quoted, words_in
from holdfast.store.columns import Row
from holdfast.store.engine import Database

Steps = Generator[tuple[str, dict[str, Any]], list[Row], Submitted]
HOLE = "\0"  # before the name of a parameter: no identifier has it


@dataclass(frozen=True, slots=True)
class Submission:
    """A row to insert, with its values as the database keeps them. `lock` and `settle` are statements, where the
    database needs them: to let one submission of a key in at a time, and to make the job of a row."""

    found: Resolved
    values: dict[str, Any]
    same: SameKey
    filled: Callable[[str], str]  # puts the database's own parameters into the holes of a text
    lock: str | None = None
    settle: str | None = None

    def steps(self, db: Database) -> Steps:
        if self._key is None:
            rows = yield self._insert()
            return (yield from self._answer(db, rows[0]["id"], created=True))
        if self.lock is not None:
            yield db.statements[self.lock], {"source": self._name, "key": str(self._key)}
        known = yield from self._with_same_key(db, unique=self._key_is_unique)
        if known is not None:
            return known
        if rows := (yield self._insert()):
            return (yield from self._answer(db, rows[0]["id"], created=True))
        # Its column is unique: another program has inserted it since, or the table was altered.
        known = yield from self._with_same_key(db, unique=True)
        if known is not None:
            return known
        raise BadArguments(
            f"{self.found.table.name} refuses this row: another has the same value in a unique column, and is no job "
            f"with the key {self._key!r}"
        )

    @property
    def _name(self) -> str:
        return self.found.mapping.name

    @property
    def _key(self) -> Any:
        column = self.found.columns.get("key")
        return None if column is None else self.values.get(column.name)

    # -- an earlier row ------------------------------------------------------------------------------------------------

    @property
    def _key_is_unique(self) -> bool:
        table = self.found.table
        return (self.found.columns["key"].name,) in (table.primary_key, *table.unique)

    def _with_same_key(
        self, db: Database, *, unique: bool
    ) -> Generator[tuple[str, dict[str, Any]], list[Row], Submitted | None]:
        """The row to return for this key, or to begin another life of; None: a new one is to be inserted."""
        rows = yield self._find()
        said = self.found.mapping.meanings.get(rows[0]["word"]) if rows else None
        if said is None:
            return None
        id = rows[0]["id"]
        if said in UNFINISHED:
            return (yield from self._answer(db, id))
        job = yield from self._job(db, id)
        if job is None and self._wanted_as_it_is(said):
            # It had finished before the table was adopted, or its job is no longer kept.
            row = {"source": self._name, "source_id": id, "queue": self.found.mapping.queue}
            yield db.statements["remember_row"], {**row, "state": said.value, "failed": said is State.FAILED}
            job = yield from self._job(db, id)
        if job is not None and (job["fresh"] if said is State.SUCCEEDED else self.same.after_failure == "return"):
            if said is State.SUCCEEDED:
                yield db.statements["cache_hit"], {"queue": self.found.mapping.queue, "task": self._name, "n": 1}
            return id, Enqueued(str(job["id"]), False, State(job["state"]))
        retry = said is not State.SUCCEEDED and self.same.after_failure == "retry"
        if not retry and not unique:
            return None
        yield self._begin_again(id, {} if retry else self.values)
        _, done = yield from self._answer(db, id)
        return id, Enqueued(done.id, False, done.state, retried=True)

    def _wanted_as_it_is(self, said: State) -> bool:
        return self.same.reuse == FOREVER if said is State.SUCCEEDED else self.same.after_failure == "return"

    def _answer(self, db: Database, id: str, *, created: bool = False) -> Steps:
        job = yield from self._job(db, id)
        if job is None:
            raise Refused(
                f"the row {id} of {self.found.table.name} has no job: the table is not adopted, or suspended, "
                "or the row's status is no word for work that is left. Roll it back, and see `holdfast doctor`",
                number="HF1167",
            )
        return id, Enqueued(str(job["id"]), created, State(job["state"]))

    def _job(self, db: Database, id: str) -> Generator[tuple[str, dict[str, Any]], list[Row], Row | None]:
        where = {"source": self._name, "source_id": id}
        if self.settle is not None:
            yield db.statements[self.settle], dict(where)
        rows = yield db.statements["job_of_row"], {**where, "minus_reuse": -min(self.same.reuse or 0.0, 1e10)}
        return rows[0] if rows else None

    # -- statements, made from the names of this table -----------------------------------------------------------------

    def _insert(self) -> tuple[str, dict[str, Any]]:
        columns = ", ".join(map(quoted, self.values))
        holes = ", ".join(f"{HOLE}v{n}" for n in range(len(self.values)))
        once = " on conflict do nothing" if self._key is not None else ""
        text = f"insert into {self.found.sql_table} ({columns}) values ({holes}){once} returning {self._id} as id"  # noqa: S608 - quoted
        return self.filled(text), {f"v{n}": value for n, value in enumerate(self.values.values())}

    def _find(self) -> tuple[str, dict[str, Any]]:
        """The row that has the key: one with work left, else the newest."""
        found = self.found
        newest = f"{found['created_at']} desc, " if "created_at" in found else ""
        text = (
            f"select {self._id} as id, cast({found['status']} as text) as word from {found.sql_table} "  # noqa: S608 - quoted
            f"where {found['key']} = {HOLE}key "
            f"order by case when cast({found['status']} as text) in {words_in(found.unfinished)} then 0 else 1 end, "
            f"{newest}{found['id']} desc limit 1"
        )
        return self.filled(text), {"key": self._key}

    def _begin_again(self, id: str, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        found = self.found
        fresh: dict[str, Any] = {found.status.name: found.mapping.word(State.QUEUED)}
        for meaning, value in (("attempts", 0), ("run_at", None), ("finished_at", None), ("error_code", None),
                               ("error_message", None)):  # fmt: skip
            if meaning in found and (value is not None or found.columns[meaning].nullable):
                fresh[found.columns[meaning].name] = value
        fresh |= {name: value for name, value in values.items() if name != found.id.name}
        sets = ", ".join(f"{quoted(name)} = {HOLE}v{n}" for n, name in enumerate(fresh))
        text = f"update {found.sql_table} set {sets} where {found['id']} = {HOLE}id"  # noqa: S608 - quoted
        return self.filled(text), {"id": id, **{f"v{n}": value for n, value in enumerate(fresh.values())}}

    @property
    def _id(self) -> str:
        return f"cast({self.found['id']} as text)"
