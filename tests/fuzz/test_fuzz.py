"""A few thousand hostile frames, as `make fuzz` sends a million: whatever a worker is told, it goes on, every attempt
ends once, and with something that a database takes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome
from holdfast.runners.wire import Done, Ready, frame
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from tests.factories import new_job, wants
from tests.fuzz.lines import KINDS, MEMORY, Lines, resident

FRAMES = 4_000
RECORDED = 60  # lines whose outcomes are recorded
TEXT = Path(__file__).with_name("regressions.txt").read_text()
REGRESSIONS = [line for line in TEXT.splitlines() if not line.startswith("#")]


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    store = open_store(settings)
    store.schema.migrate()
    yield store
    store.close()


@pytest.fixture
def lines(store: Store) -> Iterator[Lines]:
    lines = Lines(store)
    yield lines
    lines.close()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("seed", [1, 2, random.SystemRandom().randrange(10**6)], ids=["1", "2", "by chance"])
def test_a_worker_goes_on_whatever_it_is_told(lines: Lines, seed: int) -> None:
    before, number = resident(), 0
    while lines.frames < FRAMES:
        kind = KINDS[number % 2]
        print(f"{kind} {seed}:{number}")  # shown if it breaks something: the last one did
        lines.talk(kind, f"{seed}:{number}")
        number += 1
    assert resident() - before < MEMORY


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("line", REGRESSIONS)
def test_what_broke_something_once_breaks_nothing(lines: Lines, line: str) -> None:
    kind, seed = line.split()
    lines.talk(kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_arrives_can_be_recorded(lines: Lines, store: Store, kind: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    count = 5 * RECORDED
    [*_] = store.enqueue_many([new_job("task", b'{"password":"hunter2-of-the-fuzzer"}', max_attempts=1000)] * count)
    held = store.attempts.claim(wants(count, tasks=("task",))).jobs
    assert len(held) == count
    recorded = 0
    for number in range(RECORDED):
        print(f"{kind} {seed}:{number}")
        lines.talk(kind, f"{seed}:{number}", held.pop)
        done = store.exchange(lines.ends.outcomes, None)
        assert not done.lost
        recorded += len(lines.ends.outcomes)
    assert recorded > RECORDED / 4
    assert "hunter2" not in str([store.reads.attempts(job.id) for job in store.reads.jobs(limit=count)])
    assert all(job.args for job in store.reads.jobs(limit=count))


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_process_that_does_not_listen_is_not_given_more_and_more(lines: Lines) -> None:
    """It could say that all of it has ended, without having read any of it."""
    pool, nobody = lines.pool, lines.pooled
    [one] = pool._watcher.processes
    nobody.line.send(frame(Ready()))
    pool._watcher.round()
    given: list[Attempt] = []
    while not one.backlog or len(given) < 10:
        attempts = [Attempt(ClaimedJob(len(given), "f1", "task", "default", b"x" * 100_000, 1, 3), taken=1.0)]
        lines.ends.left.update(attempts)
        assert one.give(attempts, is_async=False)
        given += attempts
    nobody.line.send(frame(Done([given[0].number], [2.0], [3.0])))
    pool._watcher.round()
    assert given[0] not in lines.ends.left
    nobody.line.send(frame(Done([given[-1].number], [2.0], [3.0])))
    pool._watcher.round()
    assert given[-1] in lines.ends.left, "what it says is not believed"
    while one in pool._watcher.processes:
        pool._watcher.round()
    assert not lines.ends.left
    assert isinstance(lines.ends.last, Outcome)  # it has not begun: given back
    assert lines.ends.last.verb == "release"
