"""A store for those who only look: it refuses writes, ends what takes long, and creates nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, testing
from holdfast.app import Looking
from holdfast.errors import SchemaOutdated, StoreError, StoreUnavailable
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.store.postgres import reading as postgres_reading
from holdfast.store.sqlite import reading as sqlite_reading
from tests.factories import a_queued_job, new_job
from tests.running import hf, make_app

ENDLESS = "with recursive n (i) as (select 1 union all select i + 1 from n where i < 1000000000) select count(*) from n"
Stores = Callable[..., Store]
__all__ = ["hf", "make_app"]


@pytest.fixture
def reader(kept: Store, stores: Stores) -> Store:
    return stores(reading=True)


def run(store: Store, statement: str) -> list[Any]:
    """A statement of ours, past everything that would refuse it before the database does."""
    database: Any = store.db
    with database.use() as connection:
        return list(getattr(connection, "db", connection).execute(statement).fetchall())


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (postgres_reading, sqlite_reading):
        monkeypatch.setattr(module, "PATIENCE", 0.2)


@pytest.mark.usefixtures("impatient")
def test_what_takes_long_is_ended_and_the_next_look_works(reader: Store) -> None:
    with pytest.raises(StoreUnavailable, match="took longer than") as told:
        run(reader, ENDLESS)
    assert told.value.number == "HF3008"
    assert reader.reads.counts() == []


def test_every_way_to_write_is_refused(kept: Store, reader: Store) -> None:
    id = a_queued_job(kept)
    for write in (
        lambda: reader.db.write("cancel", job_id=id),
        lambda: reader.operator.cancel(id),
        lambda: a_queued_job(reader),
        lambda: list(reader.enqueue_many([new_job()])),
    ):
        with pytest.raises(StoreError):
            write()
    assert kept.reads.get(id).state == "queued"
    assert len(kept.reads.jobs(limit=5)) == 1


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)  # PostgreSQL has nothing to migrate here
@pytest.mark.usefixtures("kept")
def test_it_migrates_nothing(reader: Store) -> None:
    with pytest.raises(StoreError, match="only for reading"):
        reader.schema.migrate()


def test_the_database_itself_refuses_a_write(kept: Store, reader: Store) -> None:
    a_queued_job(kept)
    with pytest.raises(StoreError):
        run(reader, reader.db.statements.with_tables("delete from @jobs"))
    assert len(kept.reads.jobs(limit=5)) == 1


def test_it_sees_what_others_commit(kept: Store, reader: Store) -> None:
    for count in (1, 2):
        a_queued_job(kept)
        assert len(reader.reads.jobs(limit=5)) == count
        with reader.db.snapshot() as tx:
            assert sum(row["jobs"] for row in tx.rows("counts")) == count


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_no_file_is_created(settings: Settings, tmp_path: Path) -> None:
    store = open_store(settings, reading=True)
    with pytest.raises(StoreError, match="there is no file"):
        store.reads.now()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_file_that_was_replaced_is_opened_anew(
    kept: Store, reader: Store, settings: Settings, tmp_path: Path
) -> None:
    assert reader.reads.jobs(limit=5) == []
    other = replace(settings, url=f"sqlite:///{tmp_path}/other.db")
    store = open_store(other)
    store.schema.migrate()
    a_queued_job(store)
    store.close()
    kept.close()
    for rest in tmp_path.glob("jobs.db-*"):
        rest.unlink()
    (tmp_path / "other.db").replace(tmp_path / "jobs.db")
    reader.reads.jobs(limit=5)  # it notices when it gives its connection back
    assert len(reader.reads.jobs(limit=5)) == 1


# -- the application ---------------------------------------------------------------------------------------------------


def test_an_application_for_those_who_look_has_connections_of_its_own(hf: Holdfast) -> None:
    @hf.task
    def greet() -> None: ...

    job = greet.enqueue()
    looking = hf._looking
    assert looking is hf._looking, "one for all"
    assert looking.job(job.id).record.state == "queued"
    assert looking.tasks is hf.tasks
    assert looking.store is not hf.store
    with pytest.raises(StoreError):
        looking.cancel(f"id:{job.id}")
    assert job.refresh().record.state == "queued"


def test_a_file_that_the_application_would_create_is_created(tmp_path: Path) -> None:
    """Or a dashboard would say that there is no file until something is enqueued."""
    with Holdfast(f"sqlite:///{tmp_path}/fresh.db") as app:
        assert app._looking.queues() == []


def test_alone_it_neither_creates_nor_migrates(tmp_path: Path) -> None:
    app = Looking(Holdfast(f"sqlite:///{tmp_path}/jobs.db", pinned=True), alone=True)
    with pytest.raises(StoreError, match="there is no file"):
        app.queues()
    sqlite3.connect(tmp_path / "jobs.db").close()
    (tmp_path / "jobs.db").touch()
    with pytest.raises(SchemaOutdated):
        app.queues()
    assert (tmp_path / "jobs.db").stat().st_size == 0


def test_in_the_test_kit_it_is_the_same(hf: Holdfast) -> None:
    with testing.store(hf):
        assert hf._looking is hf


def test_closing_an_application_closes_it(hf: Holdfast) -> None:
    before = hf._looking
    before.queues()
    hf.close()
    assert before._store is None
    assert hf._looking is not before
