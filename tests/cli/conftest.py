from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.settings import Settings
from tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    return Shell(tmp_path, settings)
