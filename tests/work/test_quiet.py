"""A worker on a SQLite file sleeps until somebody writes to it, and its own writes don't keep it awake."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast import State
from holdfast.store.sqlite import wakeups as sqlite_wakeups
from holdfast.store.sqlite.wakeups import Watch
from tests.running import MakeApp, await_state, working
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the change counter is polled")

NEVER = 3600.0  # seconds


class Asleep(Watch):
    """Nothing but a write wakes it; it is awake for some time after."""

    opened: list[Asleep]

    def __init__(self, path: Path, *, restless: bool = False) -> None:
        super().__init__(path)
        if not restless:  # a worker's
            self._seldom = self._next = NEVER
            self.opened.append(self)

    @property
    def quiet(self) -> bool:
        """Nobody has written for a quarter of a second."""
        return self._next > 0.2


@pytest.fixture
def engine() -> str:
    return "sqlite"


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> list[Asleep]:
    monkeypatch.setattr(Asleep, "opened", [], raising=False)
    monkeypatch.setattr(sqlite_wakeups, "Watch", Asleep)
    return Asleep.opened


ENQUEUE = """
import sys
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
print(open_store(Settings(url=sys.argv[1])).enqueue(NewJob(task="task", args=b"{}")).id)
"""


def test_an_idle_worker_is_woken_by_another_processs_write(make_app: MakeApp, asleep: list[Asleep]) -> None:
    app = make_app(lease=600, heartbeat=200)  # so neither does its look, once a lease, find the job
    app.task(name="task")(lambda: "done")
    with working(app) as worker:
        wait_until(lambda: asleep and asleep[0].quiet and worker.watchdog.looked and worker.desk.idle())
        asleep[0]._next = NEVER
        command = [sys.executable, "-c", ENQUEUE, app.settings.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        await_state(app.job(done.stdout.strip()), State.SUCCEEDED)


def test_a_worker_that_has_done_its_work_falls_asleep(make_app: MakeApp, asleep: list[Asleep]) -> None:
    """Its own commits wake it as others' do: the look that follows writes nothing."""
    app = make_app()
    app.task(name="task")(lambda: "done")
    with working(app):
        for job in [app.find_task("task").enqueue() for _ in range(20)]:
            await_state(job, State.SUCCEEDED)
        wait_until(lambda: asleep[0].quiet)


def test_a_worker_that_stops_does_not_wait_until_its_listener_looks_around(
    make_app: MakeApp, asleep: list[Asleep]
) -> None:
    app = make_app()
    app.task(name="task")(lambda: "done")
    with working(app):
        wait_until(lambda: asleep and asleep[0].quiet)
        asleep[0]._next = NEVER
        [listener] = [t for t in threading.enumerate() if t.name == "holdfast-listener"]
    assert not listener.is_alive(), "its last commit has woken it"
