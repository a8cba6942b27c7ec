"""A database that belongs to one of the old systems, and Holdfast beside its table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.settings import Settings
from tests.adopt.systems import SYSTEMS
from tests.adopt.systems.app import application
from tests.adopt.systems.database import Database
from tests.adopt.systems.ledger import Ledger
from tests.adopt.systems.system import System
from tests.crash.commands import Commands
from tests.servers import in_database, new_schema, shared_postgres

LEASE = 3.0  # seconds of silence after which both sides take a claim for dead

MakeSystem = Callable[[str], System]
MakeApp = Callable[..., Holdfast]


@pytest.fixture
def settings(engine: str, tmp_path: Path) -> Iterator[Settings]:
    """A database of its own: the table's name is then its whole name, as in the presets."""
    if engine == "sqlite":
        yield Settings(url=f"sqlite:///{tmp_path}/app.db", synchronous="off")
        return
    name = new_schema()
    with psycopg.connect(shared_postgres(), autocommit=True) as connection:
        connection.execute(f"create database {name}".encode())
        yield Settings(url=in_database(shared_postgres(), name))
        connection.execute(f"drop database {name} with (force)".encode())


@pytest.fixture
def make_system(engine: str, settings: Settings) -> Iterator[MakeSystem]:
    with ExitStack() as stack:

        def make(table: str) -> System:
            db = Database(engine, settings.url)
            stack.callback(db.close)
            system = SYSTEMS[table](db, LEASE)
            system.create()
            return system

        yield make


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


@pytest.fixture
def make_app(settings: Settings, ledger: Ledger) -> Iterator[MakeApp]:
    """The application that works a table, with its preset's settings but for the haste."""
    with ExitStack() as stack:

        def make(table: str, *, lease: float = LEASE, table_lease: float | None = None, **given: Any) -> Holdfast:
            """`lease`: of our workers, and of the table's own rule unless that differs."""
            given = {"url": settings.url, "synchronous": settings.synchronous, **haste(lease), **given}
            hf = stack.enter_context(application(table, ledger, given, isolated=False, lease=table_lease or lease))
            hf.migrate()
            return hf

        yield make


@pytest.fixture
def commands(settings: Settings, tmp_path: Path) -> Iterator[Commands]:
    """`holdfast worker app.py`."""
    commands = Commands(tmp_path, settings)
    yield commands
    commands.close()


def haste(lease: float) -> dict[str, Any]:
    """What a preset counts in minutes, in seconds."""
    polling = {"poll_base": 0.1, "poll_max": 0.1, "after_job_delay": 0.0}
    return {"lease": lease, "heartbeat": min(0.5, lease / 4), "isolated": 1, **polling}
