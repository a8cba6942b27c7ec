"""The heartbeat, turned by hand on real stores."""

from __future__ import annotations

import time

from holdfast.store.base import Store
from holdfast.tasks.attempt import Attempt
from holdfast.worker.heartbeat import Heartbeat
from tests.factories import LEASE, claim, new_job, ref
from tests.running import Heard

MANY = 200


def many_attempts(store: Store) -> list[Attempt]:
    list(store.enqueue_many(new_job() for _ in range(MANY)))
    attempts = [Attempt(held) for held in claim(store, MANY).jobs]
    assert len(attempts) == MANY
    return attempts


def test_a_beat_looks_into_the_hand_a_few_times_however_many_jobs_end_meanwhile(store: Store, heard: Heard) -> None:
    """With short jobs thousands end while a beat is under way: to look for each among all would take long."""
    attempts = many_attempts(store)
    looks: list[int] = []

    def in_flight() -> list[Attempt]:
        looks.append(len(looks))
        if len(looks) > 1:
            return []
        for attempt in attempts:
            store.attempts.succeed(ref(attempt.held), None)
        return attempts

    Heartbeat(store, in_flight, every=0, lease=LEASE)._step()
    assert 1 < len(looks) < 5
    assert {attempt.reason for attempt in attempts} == {None}
    assert not heard.of("lease_lost")


def test_a_beat_tells_every_attempt_that_was_lost(store: Store, heard: Heard) -> None:
    attempts = many_attempts(store)
    for attempt in attempts[1:]:
        store.attempts.release(ref(attempt.held))
    Heartbeat(store, lambda: attempts, every=0, lease=LEASE)._step()
    assert [attempt.reason for attempt in attempts] == [None] + ["lost"] * (MANY - 1)
    assert len(heard.of("lease_lost")) == MANY - 1


def test_what_has_ended_and_is_recorded_was_not_taken_over(store: Store, heard: Heard) -> None:
    """The round trip that recorded it has not come back yet, so it is still in flight."""
    attempts = many_attempts(store)
    for attempt in attempts:
        attempt.begin()
        attempt.ended = time.monotonic()
        store.attempts.succeed(ref(attempt.held), None)
    Heartbeat(store, lambda: attempts, every=0, lease=LEASE)._step()
    assert not heard.of("lease_lost")


def test_a_lease_is_renewed_unless_it_is_as_good_as_new(store: Store, heard: Heard) -> None:
    """However the attempts fall between the beats: none is older than a beat and a quarter when it is renewed."""
    attempts = many_attempts(store)
    now = time.monotonic()
    for attempt, age in zip(attempts, (0.0, 0.9, 1.1, 4.0), strict=False):
        attempt.leased = now - age

    def renewed(which: list[Attempt], *, every: float) -> int:
        before = len(heard.of("renewed"))
        heartbeat = Heartbeat(store, lambda: which, every=every, lease=LEASE)
        heartbeat._next = 0.0
        heartbeat._step()
        return len(heard.of("renewed")) - before

    assert [renewed([attempt], every=5.0) for attempt in attempts[:4]] == [0, 0, 1, 1]
    assert [renewed([attempt], every=1.0) for attempt in attempts[:4]] == [0, 1, 1, 1]


def test_a_request_for_a_new_attempt_does_not_wait_for_the_next_beat(store: Store) -> None:
    """It is asked in the moment of a beat, which renews only older ones."""
    attempts = many_attempts(store)
    now = time.monotonic()
    for attempt in attempts[1:]:
        attempt.leased = now
    heartbeat = Heartbeat(store, lambda: attempts, every=5.0, lease=LEASE)
    store.operator.cancel(str(attempts[1].held.id))
    heartbeat._next = 0.0
    heartbeat.requested()
    heartbeat._step()
    assert attempts[1].reason == "cancel"
