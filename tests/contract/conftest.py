"""Many tests of the contract run twice on each engine: on native jobs, and on jobs that are rows of an adopted table
(rows.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.on_rows import LEFT_OUT
from tests.contract.rows import Rows


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    left_out = LEFT_OUT.get(metafunc.module.__name__.rpartition(".")[2])
    if left_out is not None and "store" in metafunc.fixturenames and metafunc.function.__name__ not in left_out:
        metafunc.parametrize("rows", [False, True], ids=["native", "rows"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not _is_left_out(item)]


def _is_left_out(item: pytest.Item) -> bool:
    name, _, case = item.name.rstrip("]").partition("[")
    parameters = case.split("-")
    return "rows" in parameters and any(
        f"{name} {parameter}" in LEFT_OUT.get(item.path.stem, {}) for parameter in parameters
    )


@pytest.fixture
def rows(request: pytest.FixtureRequest, settings: Settings) -> Iterator[Rows | None]:
    """The table that jobs are rows of; None: they are native."""
    if not getattr(request, "param", False):
        yield None
        return
    rows = Rows(settings)
    yield rows
    rows.close()


@pytest.fixture
def stores(stores: Callable[..., Store], rows: Rows | None) -> Iterator[Callable[..., Store]]:
    def another(**options: Any) -> Store:
        store = stores(**options)
        if rows is not None:
            store.enqueue = partial(rows.enqueue, store)  # type: ignore[method-assign]
        return store

    yield another
    if rows is not None:
        rows.check()
