from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store import open_store


@pytest.fixture
def healthy(settings: Settings) -> Settings:
    """A fresh, migrated place with default settings."""
    settings = replace(settings, synchronous="full")
    store = open_store(settings)
    store.schema.migrate()
    store.close()
    return settings


@pytest.fixture
def path(healthy: Settings, tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"
