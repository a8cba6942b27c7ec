"""A row that others take over from one of our workers, once they think it dead, is theirs from then on."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.model.mapping import mapping_of
from holdfast.store.base import Store
from tests.adopt.legacy import MAPPED, Legacy
from tests.adopt.postgres import claim, finish, settle
from tests.adopt.postgres import job as job_of_row

TAKE = "update audits set status = 'processing', {holder} = ?, last_heartbeat = current_timestamp where id = ?"


class Taken:
    """A row that a worker of ours claimed. `holder`: the column that says so."""

    def __init__(self, store: Store, legacy: Legacy, holder: str) -> None:
        self.store, self.legacy, self.holder = store, legacy, holder
        columns: dict[str, Any] = {**MAPPED, "lease": 300.0, "key": None}
        if holder == "request_id":
            columns |= {"worker": None, "fence": "request_id"}
        store.adopted.install(mapping_of(legacy.table, {**columns, "name": "audits"}))
        self.id = legacy.insert()
        settle(store)
        [self.held] = claim(store)
        self.theirs = str(uuid.uuid4())

    def take(self, on: Any = None) -> None:
        """As a claim function of theirs does it, in one statement."""
        text = TAKE.format(holder=self.holder)
        if on is None:
            self.legacy(text, self.theirs, self.id)
        else:
            on.execute(text.replace("?", "%s"), (self.theirs, self.id))

    @property
    def job(self) -> JobRecord:
        return job_of_row(self.store, self.id)

    @property
    def holding(self) -> str:
        [(word, holder)] = self.legacy(f"select status, {self.holder} from audits where id = ?", self.id)
        return f"{word} {holder}"

    def rescue(self) -> None:
        [rescued] = self.store.rescues.rescue(by_expiry=False, dead=["w1"])
        assert rescued.id == self.job.id

    def is_theirs(self) -> None:
        settle(self.store)
        assert (self.job.state, self.job.worker) == (State.RUNNING, f"foreign:audits:{self.id}")
        assert self.holding == f"processing {self.theirs}"
        assert claim(self.store) == []
        self.legacy(f"update audits set status = 'completed', {self.holder} = null where id = ?", self.id)
        settle(self.store)
        assert self.job.state is State.SUCCEEDED


@pytest.fixture(params=["worker_id", "request_id"], ids=["by worker", "by fence"])
def taken(request: pytest.FixtureRequest, kept: Store, legacy: Legacy) -> Taken:
    return Taken(kept, legacy, request.param)


@contextmanager
def unheard(taken: Taken) -> Iterator[Any]:
    """For writes that no trigger tells of."""
    with taken.legacy.connect() as db:
        if taken.legacy.engine == "postgres":
            db.execute("set session_replication_role = replica")
            yield db
            return
        mine = db.execute(
            "select name, sql from sqlite_master where type = 'trigger' and tbl_name = 'audits'"
        ).fetchall()
        for name, _ in mine:
            db.execute(f'drop trigger "{name}"')
        yield cast(Any, QuestionMarks(db))
        for _, text in mine:
            db.execute(text)


class QuestionMarks:
    def __init__(self, db: Any) -> None:
        self._db = db

    def execute(self, text: str, values: Any) -> None:
        self._db.execute(text.replace("%s", "?"), values)


def test_ours_is_told_that_it_lost_the_row(taken: Taken) -> None:
    taken.take()
    settle(taken.store)
    assert len(finish(taken.store, taken.held).lost) == 1
    taken.is_theirs()


@pytest.mark.parametrize("ends", ["rescued", "succeeded", "failed"])
def test_what_became_of_ours_meanwhile_is_not_written_over_it(taken: Taken, ends: str) -> None:
    with unheard(taken) as db:
        taken.take(db)
    match ends:
        case "rescued":
            taken.rescue()
        case "succeeded":
            finish(taken.store, taken.held, result={"score": 1})
        case _:
            finish(taken.store, taken.held, "fail")
    taken.store.adopted.sweep("audits", None)
    taken.is_theirs()


def test_the_sweep_finds_it(taken: Taken) -> None:
    with unheard(taken) as db:
        taken.take(db)
    assert taken.store.adopted.sweep("audits", None).strays == 1
    taken.is_theirs()


def test_while_the_table_is_suspended(taken: Taken) -> None:
    taken.store.adopted.suspend("audits")
    taken.take()
    taken.rescue()
    taken.store.adopted.resume("audits")
    taken.is_theirs()


def test_heartbeats_of_ours_are_not_written_to_it(taken: Taken) -> None:
    with unheard(taken) as db:
        taken.take(db)
        db.execute("update audits set last_heartbeat = '2020-01-01 00:00:00' where id = %s", (taken.id,))
    taken.store.adopted.sweep("audits", None)
    settle(taken.store)
    taken.store.adopted.beat("audits")
    assert str(taken.legacy.row(taken.id)["last_heartbeat"]).startswith("2020")


@pytest.mark.parametrize("engine", ["postgres"])
def test_while_their_claim_is_not_committed_yet(taken: Taken) -> None:
    with taken.legacy.connect() as db, db.transaction():
        taken.take(db)
        taken.rescue()
        settle(taken.store)
    taken.is_theirs()


@pytest.mark.parametrize("engine", ["postgres"])
def test_what_operators_do_while_others_claim_a_row_is_not_written_over_that(taken: Taken) -> None:
    finish(taken.store, taken.held, "release")
    with taken.legacy.connect() as db, db.transaction():
        taken.take(db)
        taken.store.operator.pause(taken.job.id)
    taken.is_theirs()
