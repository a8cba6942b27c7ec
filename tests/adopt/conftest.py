from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.settings import Settings
from tests.adopt.legacy import Legacy, a_legacy_table
from tests.adopt.postgres import Side, a_side
from tests.running import hasty, heard, hf, make_app

__all__ = ["hasty", "heard", "hf", "make_app"]


@pytest.fixture
def side() -> Iterator[Side]:
    with a_side() as side:
        yield side


@pytest.fixture
def legacy(settings: Settings) -> Iterator[Legacy]:
    """A table that existed before us."""
    with a_legacy_table(settings) as legacy:
        yield legacy
