"""What attempts in a process of their own wrote is kept with them, whatever became of them."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.model.lifecycle import State
from holdfast.model.outcome import Outcome
from holdfast.store.base import Store
from tests.contract.test_history import ENDINGS, outcome
from tests.factories import Clock, a_queued_job, a_running_job, claim, ref

SAID = "page 1 of 3\npäge 2 of 3\n"


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("result", [None, b"42"])
def test_output_is_kept_with_the_attempt_however_it_ended(
    store: Store, clock: Clock, ending: str, result: bytes | None
) -> None:
    held = a_running_job(store, worker="w9")
    started = clock.now
    clock.advance(7)
    ended = msgspec.structs.replace(outcome(ending, held), output=SAID)
    if ending == "succeeded":
        ended = msgspec.structs.replace(ended, result=result)
    assert store.exchange([ended], None, [held.fence]).lost == []
    [attempt] = store.reads.attempts(str(held.id))
    word = "succeeded" if ending == "succeeded" else ENDINGS[ending][1]
    assert (attempt.output, attempt.outcome, attempt.number, attempt.life) == (SAID, word, 1, 1)
    assert (attempt.worker, attempt.started_at, attempt.ended_at) == ("w9", started, clock.now)


def test_the_output_of_a_success_is_written_once_and_only_under_its_lease(store: Store) -> None:
    held = a_running_job(store)
    ended = Outcome("succeed", held.id, held.fence, output=SAID)
    store.exchange([ended], None)
    again = store.exchange([ended], None, [held.fence])  # after a lost reply
    assert (again.already, again.lost) == ([ended], [])
    assert len(store.reads.attempts(str(held.id))) == 1
    stale = Outcome("succeed", held.id, "00000000-0000-4000-8000-000000000000", output="late")
    assert store.exchange([stale], None).lost == [stale]
    assert [attempt.output for attempt in store.reads.attempts(str(held.id))] == [SAID]


def test_successes_with_and_without_output_go_together(store: Store) -> None:
    ids = [a_queued_job(store) for _ in range(4)]
    jobs = claim(store, 4).jobs
    ended = [
        Outcome("succeed", held.id, held.fence, result=[None, b"1"][n % 2], output=[None, SAID][n // 2])
        for n, held in enumerate(jobs)
    ]
    assert store.exchange(ended, None, [jobs[0].fence]).lost == []
    assert {store.reads.get(id).state for id in ids} == {State.SUCCEEDED}
    written = {str(held.id): [a.output for a in store.reads.attempts(str(held.id))] for held in jobs}
    assert list(written.values()) == [[], [], [SAID], [SAID]]


def test_output_of_a_success_that_its_handler_recorded_is_kept_too(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.succeed(ref(held), b"1")
    store.attempts.keep_output(ref(held), SAID)
    assert [attempt.output for attempt in store.reads.attempts(str(held.id))] == [SAID]


def test_successes_don_t_count_among_how_attempts_went_wrong(store: Store) -> None:
    held = a_running_job(store)
    store.exchange([Outcome("succeed", held.id, held.fence, output=SAID)], None, [held.fence])
    assert store.reads.outcomes() == []


def test_what_is_retried_keeps_the_output_of_its_earlier_life(store: Store) -> None:
    held = a_running_job(store, max_attempts=1)
    store.exchange([msgspec.structs.replace(outcome("failed", held), output=SAID)], None, [held.fence])
    store.operator.retry(str(held.id))
    [attempt] = store.reads.attempts(str(held.id))
    assert replace(attempt, output=None) != attempt
