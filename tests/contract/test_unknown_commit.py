"""A commit whose reply was lost is neither success nor failure until its fence is looked up."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread

import pytest

from holdfast.errors import StoreError
from holdfast.store.base import Store
from holdfast.store.postgres.exchange import wanted
from tests.factories import Clock, a_queued_job, claim, wants


def test_what_a_claim_took_is_found_by_its_fence(store: Store) -> None:
    ids = [a_queued_job(store) for _ in range(3)]
    asked = wants(5)
    store.attempts.claim(asked)
    assert [str(held.id) for held in store.claim_of(asked.fence).jobs] == ids


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)  # on SQLite a commit has happened or not
def test_a_claim_that_was_looked_up_and_not_found_can_never_happen(store: Store) -> None:
    a_queued_job(store)
    asked = wants(1)
    assert store.claim_of(asked.fence).jobs == []
    with pytest.raises(StoreError):
        store.attempts.claim(asked)  # the late backend: its fence is taken
    [held] = claim(store).jobs
    assert held.attempt == 1


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_looking_a_claim_up_waits_for_the_backend_that_is_still_at_it(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    a_queued_job(store)
    asked = wants(1)
    other = stores(clock=clock)
    answers: list[int] = []
    looker = Thread(target=lambda: answers.append(len(other.claim_of(asked.fence).jobs)))
    with store.db.transaction() as tx:
        tx.rows("claim", **wanted(asked))
        looker.start()
        looker.join(0.3)
        assert answers == []  # not decided yet
    looker.join(10)
    assert answers == [1]


def test_a_burnt_fence_is_swept_up(store: Store, clock: Clock) -> None:
    asked = wants(1)
    store.claim_of(asked.fence)
    clock.advance(100)
    store.rescues.rescue()
    assert not store.look("w1", ["greet"], None).expired_leases
