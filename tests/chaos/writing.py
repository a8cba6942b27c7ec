"""Logs of what was done: JSON lines, each written whole and at once, so that who is killed has told all it did."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Log:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, **fields: Any) -> None:
        os.write(self._file, f"\n{json.dumps({'at': time.time(), **fields}, default=str)}\n".encode())


def lines(path: Path, start: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """The whole lines from this byte on, each with the byte after it. What a killed process left half is skipped."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(start)
        for line in file:
            if not line.endswith(b"\n"):
                return
            start += len(line)
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                yield found, start


def read(path: Path) -> list[dict[str, Any]]:
    return [line for line, _ in lines(path)]
