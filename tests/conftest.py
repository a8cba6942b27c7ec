from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from scripts.planted import promises_of_tests
from tests.factories import Clock
from tests.schemas import migrated_file, migrated_schemas
from tests.servers import drop_schema, new_schema, shared_postgres

ENGINES = ("sqlite", "postgres")
PROMISES_OF = promises_of_tests()
MIGRATING = {"store", "kept", "make_app", "hf"}  # fixtures that migrate before anything else is done
SLOW = {"bench", "chaos", "crash", "docs", "plans", "test_machine", "test_why"}  # folders and modules


def pytest_configure(config: pytest.Config) -> None:
    """Processes that are started inherit what is ignored, and a shell has those in its background ignore Ctrl-C."""
    config.addinivalue_line("markers", "guarantee(name): stands behind this promise of scripts/planted.py")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One worker of xdist begins with its share of what is quick, the next one with what is slow, which mostly waits:
    so the processors are busy, and what is broken shows early. With `--dist worksteal` the first worker gets the first
    part of this list, and so on. The tests that stand behind a promise are marked with its name."""
    for item in items:
        for name in PROMISES_OF.get(item.nodeid.partition("[")[0].removeprefix("tests/"), ()):
            item.add_marker(pytest.mark.guarantee(name=name))
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    slow: list[pytest.Item] = []
    quick: list[pytest.Item] = []
    for item in items:
        (slow if SLOW & {item.path.parent.name, item.path.stem} else quick).append(item)

    def share(part: list[pytest.Item], n: int) -> list[pytest.Item]:
        return part[n * len(part) // workers : (n + 1) * len(part) // workers]

    if workers > 1:
        orders = [(quick, slow), (slow, quick)]
        items[:] = [item for n in range(workers) for part in orders[n % 2] for item in share(part, n)]


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Settings of a fresh place to keep jobs in: empty, unless the test has a fixture that migrates it."""
    # What a killed process sent may be done after its end, so in tests/crash no place is used twice.
    migrated = not MIGRATING.isdisjoint(request.fixturenames) and "crash" not in request.path.parts
    if engine == "sqlite":
        if migrated:
            shutil.copy(migrated_file(), tmp_path / "jobs.db")
        yield Settings(url=f"sqlite:///{tmp_path}/jobs.db", synchronous="off")
    elif migrated:
        with migrated_schemas().one() as schema:
            yield Settings(url=shared_postgres(), schema=schema)
    else:
        schema = new_schema()
        yield Settings(url=shared_postgres(), schema=schema)
        drop_schema(shared_postgres(), schema)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stores(settings: Settings) -> Iterator[Callable[..., Store]]:
    """Opens further handles on the same place, as other processes would."""
    opened: list[Store] = []

    def another(**options: Any) -> Store:
        store = open_store(settings, **options)
        opened.append(store)
        return store

    yield another
    for store in opened:
        store.close()


@pytest.fixture
def store(stores: Callable[..., Store], clock: Clock) -> Store:
    """A migrated store whose clock the test moves."""
    store = stores(clock=clock)
    store.schema.migrate()
    return store


@pytest.fixture
def kept(settings: Settings) -> Iterator[Store]:
    """A migrated store with the database's own clock: what commands and real workers work on."""
    store = open_store(settings)
    store.schema.migrate()
    yield store
    store.close()


@pytest.fixture
def a_terminal_to_lose() -> Iterator[None]:
    """Processes that are started inherit what is ignored, and whoever runs the tests may ignore hang-ups."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
