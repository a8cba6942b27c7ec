"""The pytest plugin of Holdfast: one fixture, nothing that acts by itself. It stands outside the package, so that a run
that never uses it imports nothing of Holdfast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.testing import Kit


@pytest.fixture
def holdfast_store() -> Iterator[Callable[..., Kit]]:
    """`kit = holdfast_store(hf)`: gives an application a throw-away store until the test ends."""
    from holdfast import testing

    with ExitStack() as stack:

        def make(app: Holdfast, **options: Any) -> Kit:
            return stack.enter_context(testing.store(app, **options))

        yield make
