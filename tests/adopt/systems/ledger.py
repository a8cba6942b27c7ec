"""What was done to which row, written down outside the database by whoever did it, old workers and ours."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple


class Line(NamedTuple):
    what: str  # start, end, fail, died, cancelled, paused, reset …
    id: str
    who: str
    at: float
    number: int


class Ledger:
    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._known: list[Line] = []
        self._read = 0  # bytes of the file
        self._reading = threading.Lock()

    def note(self, what: str, id: str, who: str, number: int = 0) -> None:
        """One line, written at once: whoever is killed afterwards has left it."""
        line = json.dumps([what, id, who, time.time(), number])
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(file, f"{line}\n".encode())
        os.close(file)

    def lines(self, **wanted: Any) -> list[Line]:
        with self._reading:
            if self.path.exists():
                with self.path.open("rb") as file:
                    file.seek(self._read)
                    text = file.read()
                whole = text[: text.rfind(b"\n") + 1]
                self._known += [Line(*json.loads(line)) for line in whole.splitlines()]
                self._read += len(whole)
            known = list(self._known)
        return [line for line in known if all(getattr(line, name) == value for name, value in wanted.items())]
