from __future__ import annotations

import pytest

from holdfast.errors import LeaseLost
from holdfast.model.lifecycle import State
from holdfast.store.base import Store
from tests.factories import LEASE, Clock, a_running_job, claim, ref


def test_a_worker_whose_job_was_rescued_cannot_succeed_it(store: Store, clock: Clock) -> None:
    stale = a_running_job(store)
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    with pytest.raises(LeaseLost):
        store.attempts.succeed(ref(stale))
    assert store.reads.get(str(stale.id)).state is State.QUEUED
    [again] = claim(store).jobs
    with pytest.raises(LeaseLost):
        store.attempts.succeed(ref(stale))
    store.attempts.succeed(ref(again), b'"done"')
    assert store.reads.get(str(stale.id)).result == b'"done"'


def test_success_recorded_twice_is_already_recorded_not_lost(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.succeed(ref(held), b"1")
    store.attempts.succeed(ref(held), b"1")  # the reply was lost: the same outcome again
    assert store.reads.get(str(held.id)).result == b"1"
