"""Fixtures of tests/api and tests/work: an application on a fresh store, workers in threads, the events they emit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict
from typing import Any

import pytest

from holdfast import Holdfast, Job, State, events
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store.base import Store, Trips
from holdfast.worker.worker import Worker
from tests.waiting import PATIENCE, wait_until

MakeApp = Callable[..., Holdfast]
# Beats, and with them requests, progress and time limits, are seen soon.
HASTY = {"lease": 10.0, "heartbeat": 0.1}


@pytest.fixture
def make_app(settings: Settings) -> Iterator[MakeApp]:
    """Makes applications on one fresh, migrated place; keyword arguments are settings."""
    with ExitStack() as stack:

        def make(**overrides: Any) -> Holdfast:
            app = stack.enter_context(Holdfast(**{**asdict(settings), "heartbeat": 0.0, **overrides}))
            app.migrate()
            return app

        yield make


@pytest.fixture
def hf(make_app: MakeApp) -> Holdfast:
    return make_app()


@pytest.fixture
def hasty(make_app: MakeApp) -> Holdfast:
    return make_app(**HASTY)


class _Troubled:
    """Trips before each of which something may go wrong."""

    def __init__(self, trips: Trips, before: Callable[[Sequence[Outcome]], None]) -> None:
        self.overlaps = trips.overlaps
        self.claimed, self.recorded = trips.claimed, trips.recorded
        self._depart = trips.depart
        self._before = before

    def depart(self, finished: Sequence[Outcome], *rest: Any) -> None:
        self._before(finished)
        self._depart(finished, *rest)


def troubled(
    store: Store, before: Callable[[Sequence[Outcome]], None]
) -> Callable[[], AbstractContextManager[_Troubled]]:
    """For `Store.trips`: `before` is called with the outcomes of each trip, and may raise."""
    original = store.trips

    @contextmanager
    def trips() -> Iterator[_Troubled]:
        with original() as under:
            yield _Troubled(under, before)

    return trips


@contextmanager
def working(app: Holdfast, queues: list[str] | None = None) -> Iterator[Worker]:
    """A worker in a thread, stopped at the end. What it could not finish by then is given back at once."""
    worker = app.worker(queues)
    ended: list[int] = []
    thread = threading.Thread(target=lambda: ended.append(worker.run()), name="worker")
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        worker.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the worker did not stop"
    assert ended, "the worker ended by an exception"


class Heard(list[tuple[str, dict[str, Any]]]):
    """Every event since the test began."""

    def of(self, name: str) -> list[dict[str, Any]]:
        return [fields for event, fields in list(self) if event == name]


@pytest.fixture
def heard() -> Iterator[Heard]:
    heard = Heard()
    unsubscribe = events.subscribe(lambda name, fields: heard.append((name, fields)))
    yield heard
    unsubscribe()


def await_state(job: Job[Any], state: State, *, timeout: float = PATIENCE) -> None:
    wait_until(lambda: job.refresh().state is state, f"job {job.id} to be {state}", timeout=timeout)


def take_over(app: Holdfast, id: str) -> None:
    """Rescue a running job, as another worker does that takes its holder for dead; nobody claims it again."""
    record = app.job(id).refresh().record
    app.pause_task(record.task)
    # Its holder may be renewing just now: a rescue passes over what is locked.
    [rescued] = wait_until(lambda: app.store.rescues.rescue(by_expiry=False, dead=[record.worker or ""]))
    assert (rescued.id, rescued.state) == (id, State.QUEUED)
