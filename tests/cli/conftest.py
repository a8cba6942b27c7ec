from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    return Shell(tmp_path, settings)


@pytest.fixture
def kept(settings: Settings) -> Iterator[Store]:
    """The store that the shell's commands work on."""
    store = open_store(settings)
    store.migrate()
    yield store
    store.close()
