"""Connections are lent to one at a time, and only by the process that opened them."""

from __future__ import annotations

import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.pool import KEPT
from tests.contract.places import at_once
from tests.factories import a_queued_job


@pytest.fixture(params=["db", "enqueueing"])
def part(request: pytest.FixtureRequest, engine: str) -> str:
    return "db" if engine == "sqlite" else str(request.param)  # SQLite has one pool for everything


@pytest.fixture
def pool(store: Store, part: str) -> Any:
    return getattr(store, part).pool


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_a_connection_is_lent_to_one_at_a_time_and_few_are_kept(pool: Any) -> None:
    lent: set[object] = set()

    def use(_: int) -> None:
        for _ in range(50):
            with pool.use() as connection:
                assert connection not in lent
                lent.add(connection)
                time.sleep(0)  # let others run
                lent.remove(connection)

    at_once(2 * KEPT, use)
    taken = [pool.take() for _ in range(KEPT + 3)]
    assert len(set(taken)) == KEPT + 3
    for connection in taken:
        pool.give_back(connection)
    assert len(pool._free) == len(pool._open) == KEPT, "the others are closed"


def test_what_is_lent_when_a_store_is_closed_is_closed_when_it_comes_back(store: Store, pool: Any) -> None:
    with pool.use():
        store.close()
        assert pool.is_open
    assert not pool.is_open
    assert pool._free == []


def test_what_was_lent_and_is_dropped_is_not_kept(pool: Any) -> None:
    """A signal handler may raise at any instruction: also before whoever took it has it."""
    taken = pool.take()
    assert pool.is_open
    if hasattr(taken, "gate"):
        taken.gate.close()
    else:
        getattr(taken, "connection", taken).close()
    del taken
    gc.collect()
    assert not pool.is_open


LENT = """
import os, sys
from holdfast.errors import StoreError
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store

url, schema, part = sys.argv[1:]
settings = Settings(url=url, schema=schema)
store = open_store(settings)
pool = getattr(store, part).pool
with pool.use() as lent:
    child = os.fork()
if not child:
    for one in (store, open_store(settings)):
        for act in (lambda: one.enqueue(NewJob(task="greet", args=b'"child"')), one.reads.jobs, one.pauses.all):
            try:
                act()
                told = ""
            except StoreError as error:
                told = error.number
            assert told == ("HF3101" if url.startswith("sqlite") else ""), (act, told)
    if not told:
        assert pool.take() is not lent
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert pool.take() is lent, "the child left it alone"
store.enqueue(NewJob(task="greet", args=b'"parent"'))
"""


def test_what_was_lent_before_a_fork_never_gets_into_the_childs_pool(
    store: Store, settings: Settings, part: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LENT, settings.url, settings.schema, part],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = [b'"parent"'] if settings.url.startswith("sqlite") else [b'"parent"', b'"child"', b'"child"']
    assert [job.args for job in store.reads.jobs()] == expected
    a_queued_job(store)
