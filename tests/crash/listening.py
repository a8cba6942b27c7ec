"""A listener and an error hook for the crash tests' application: they write down what they hear, and where."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from holdfast import Holdfast, JobInfo, events

PLACE = "CRASH_EVENTS"  # the file to write to; without it nobody listens
MOOD = "CRASH_LISTENER"  # "raises", or a file whose coming the listener waits for before it goes on


class Heard(NamedTuple):
    pid: int
    name: str
    fields: dict[str, Any]


def listen(app: Holdfast) -> None:
    if PLACE in os.environ:
        events.subscribe(_hear)
        app.on_error(_report)


def _hear(name: str, fields: dict[str, Any]) -> None:
    _write(name, fields)
    mood = os.environ.get(MOOD)
    if mood == "raises":
        raise ZeroDivisionError(name)
    while mood and not Path(mood).exists():
        time.sleep(0.01)


def _report(job: JobInfo | None, error: BaseException) -> None:
    told = None if job is None else [job.id, job.task, job.attempt]
    _write("on_error", {"job": told, "error": type(error).__name__, "message": str(error)})


def _write(name: str, fields: dict[str, Any]) -> None:
    line = json.dumps([os.getpid(), name, fields])
    place = os.open(os.environ[PLACE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(place, f"\n{line}\n".encode())
    os.close(place)


def heard(place: Path, *names: str) -> list[Heard]:
    """All that was written so far, or only these."""
    text = place.read_text() if place.exists() else ""
    whole = text[: text.rfind("\n") + 1].split("\n")
    found = [Heard(*json.loads(line)) for line in whole if line]
    return [one for one in found if not names or one.name in names]


def jobs_of(found: list[Heard]) -> list[str]:
    return [job["job"] for one in found for job in one.fields["jobs"]]
