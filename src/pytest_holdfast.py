"""The pytest plugin of Holdfast: one fixture and one setting, nothing that acts by itself. It stands outside the
package, so that a run that never uses it imports nothing of Holdfast."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.testing import Kit


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "holdfast_real_database", "tests may use the database that an application is configured with",
        type="bool", default=False,
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    if config.getini("holdfast_real_database"):
        os.environ.setdefault("HOLDFAST_REAL_DATABASE", "1")


@pytest.fixture
def holdfast_store() -> Iterator[Callable[..., Kit]]:
    """`kit = holdfast_store(hf)`: gives an application a throw-away store until the test ends."""
    from holdfast import testing

    with ExitStack() as stack:

        def make(app: Holdfast, **options: Any) -> Kit:
            return stack.enter_context(testing.store(app, **options))

        yield make
