"""Connections are lent to one at a time, and only by the process that opened them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.pool import KEPT
from tests.contract.places import at_once


def pool_of(store: Any) -> Any:
    return store._pool


def test_a_connection_is_lent_to_one_at_a_time_and_few_are_kept(store: Store) -> None:
    pool = pool_of(store)
    lent: set[object] = set()

    def use(_: int) -> None:
        for _ in range(100):
            with pool.use() as connection:
                assert connection not in lent
                lent.add(connection)
                lent.remove(connection)

    at_once(2 * KEPT, use)
    taken = [pool.take() for _ in range(KEPT + 3)]
    assert len(set(taken)) == KEPT + 3
    for connection in taken:
        pool.give_back(connection)
    assert len(pool._free) == len(pool._open) == KEPT, "the others are closed"


def test_what_is_lent_when_a_store_is_closed_is_closed_when_it_comes_back(store: Store) -> None:
    pool = pool_of(store)
    with pool.use():
        store.close()
        assert len(pool._open) == 1
    assert pool._open == set()
    assert pool._free == []


LENT = """
import os, sys
from holdfast.errors import StoreError
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
store = open_store(Settings(url=sys.argv[1], schema=sys.argv[2]))
with store._pool.use() as lent:
    child = os.fork()
if not child:
    try:
        with store._pool.use() as another:
            assert another is not lent
        store.enqueue(NewJob(task="greet", args=b'"child"'))
    except StoreError as error:
        assert error.number == "HF3101", error
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
with store._pool.use() as again:
    assert again is lent, "the child left it alone"
store.enqueue(NewJob(task="greet", args=b'"parent"'))
"""


def test_what_was_lent_before_a_fork_never_gets_into_the_childs_pool(store: Store, settings: Settings) -> None:  # F37
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LENT, settings.url, settings.schema],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    expected = [b'"parent"'] if settings.url.startswith("sqlite") else [b'"parent"', b'"child"']
    assert [job.args for job in store.jobs()] == expected
