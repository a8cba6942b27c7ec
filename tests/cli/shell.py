"""A user's shell: a directory with an application in it, and commands run in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from holdfast.settings import Settings
from tests import waiting
from tests.cli.forking import run_holdfast

T = TypeVar("T")

APP = """
from holdfast import Fail, Holdfast

hf = Holdfast()
other = "not an application"

@hf.task
def double(n: int) -> int:
    return 2 * n

@hf.task
async def refuse(n: int) -> None:
    raise Fail("no", code="NO")
"""


class Shell:
    def __init__(self, directory: Path, settings: Settings, app: str = APP) -> None:
        self.directory = directory
        (directory / "app.py").write_text(app)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")},
            "HOLDFAST_URL": settings.url,
            "HOLDFAST_SCHEMA": settings.schema,
            "NO_COLOR": "1",
            "COLUMNS": "200",
        }

    def __call__(self, *arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        done = self.any(*arguments, **environment)
        assert done.returncode == code, done.stderr
        return done

    def any(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Whatever its exit status."""
        return run_holdfast(arguments, cwd=self.directory, env={**self.environment, **environment}, timeout=60)

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self(*arguments, "-o", "json", code=code).stdout)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "holdfast", *arguments], cwd=self.directory, text=True, env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip


def wait_until(condition: Callable[[], T], what: str = "") -> T:
    """With more patience: processes take a while to start on a busy machine."""
    return waiting.wait_until(condition, what, timeout=60.0)
