"""The machine of test_machine.py, with idle workers that offer to take the next job of a kind (docs/decisions/0022): a
job that was given runs from its first moment, and whatever anyone does from then on is as if it had been claimed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, rule

from holdfast.model.job import NewJob
from holdfast.store.base import Ear, Ref, Store
from holdfast.store.postgres.notify import Notifier
from holdfast.work.listener import given_job
from tests.contract.test_machine import (
    EXAMPLES,
    PLAIN,
    QUEUES,
    REUSE,
    TASKS,
    WORKERS,
    JobMachine,
    KeptLease,
    R,
    new_jobs,
    run_machine,
)
from tests.factories import LEASE, Clock
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])


class OfferingMachine(JobMachine):
    ear: ClassVar[Ear]
    jobs: Bundle[int] = JobMachine.jobs

    def __init__(self) -> None:
        super().__init__()
        self.offers: dict[str, tuple[str, str, str]] = {}  # fence -> worker, queue, task
        self.seen: dict[str, datetime] = {}  # when each worker last was

    @initialize(target=jobs, news=st.lists(PLAIN, min_size=2, max_size=4))
    def a_database_with_a_few_jobs(self, news: list[NewJob]) -> Any:
        for table in ("offers", "workers"):
            self.place.execute(f"delete from {self.place.table(table)}")
        for id in WORKERS:
            self.store.register(id=id, name=id, host="h", pid=1, queues=None, tasks=TASKS, slots=9, lease=LEASE)
        return super().a_database_with_a_few_jobs(news)

    @rule(worker=st.sampled_from(WORKERS), queue=st.sampled_from(QUEUES), task=st.sampled_from(TASKS))
    def offer(self, worker: str, queue: str, task: str) -> None:
        fence = self.new_fence()
        self.store.look(worker, TASKS, None)
        self.seen[worker] = self.now
        self.ear.offer(worker, {fence: (queue, task)})
        self.offers[fence] = (worker, queue, task)
        self.check("nothing")

    @rule(indexes=st.sets(st.integers(1, 20), max_size=3))
    def withdraw(self, indexes: set[int]) -> None:
        """Any that were ever made, or never: those that nobody has taken are told."""
        known = [*self.offers, *sorted(self.fences)]
        fences = [known[index % len(known)] for index in sorted(indexes)] if known else []
        assert self.store.withdraw_offers(fences) == set(fences) & self.offers.keys()
        for fence in fences:
            self.offers.pop(fence, None)
        self.check("nothing")

    @rule(target=jobs, new=st.one_of(PLAIN, REUSE.flatmap(new_jobs)))
    def enqueue(self, new: NewJob) -> Any:
        fitting = self.fitting(new)
        holder = self.book.key_holder(new, self.now)
        done = self.store.enqueue(new)
        [(fence,)] = self.place.execute(f"select fence::text from {self.place.table('jobs')} where id = {done.id}")
        if not fitting:
            return self.kept(new, holder, done, "enqueue")
        assert fence in fitting, "an offer that stands is taken"
        self.keep(new, holder, done)
        self.give(int(done.id), fence)
        self.check("enqueue")
        [held] = self.told()
        assert [held] == self.store.claim_of(fence).jobs, "what is told is what a claim brings"
        event("given")
        return int(done.id)

    @rule(target=jobs, worker=st.sampled_from(WORKERS), new=PLAIN)
    def an_idle_worker_is_given_a_job(self, worker: str, new: NewJob) -> Any:
        self.offer(worker, new.queue, new.task)
        return self.enqueue(new)

    def fitting(self, new: NewJob) -> set[str]:
        """The offers of which one is to be taken."""
        paused = any(until is None or until > self.now for until in self.book.pauses.values())
        if new.key is not None or new.delay or new.max_attempts == 1 or paused:
            return set()
        return {
            fence
            for fence, (worker, queue, task) in self.offers.items()
            if (queue, task) == (new.queue, new.task) and self.seen[worker] > self.now - timedelta(seconds=1.5 * LEASE)
        }

    def give(self, id: int, fence: str) -> None:
        worker, _, _ = self.offers.pop(fence)
        job = self.book.jobs[id]
        job.state, job.fence, job.worker, job.started_at = R, fence, worker, self.now
        job.attempt, job.ready_at = 1, None
        self.book.leases[fence] = KeptLease(worker, self.now + timedelta(seconds=LEASE), 1, [id])
        assert fence not in self.fences, "I4: a fence was used twice"
        self.fences.add(fence)
        self.given.add(id)
        self.charges[id, 1] = 1
        self.refs.append(Ref(id, fence))

    def told(self) -> list[Any]:
        told: list[Any] = []

        def hear() -> bool:
            told.extend(given_job(what)[0] for kind, what in self.ear.hear() if kind == "given")
            return bool(told)

        wait_until(hear)
        return told


@pytest.fixture
def ear(store: Store) -> Iterator[Ear]:
    ear = store.open_ear()
    assert ear is not None
    with closing(ear):
        yield ear


def test_whatever_happens_to_what_was_given_the_invariants_hold(
    store: Store, ear: Ear, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Notifier, "alone", lambda self: True)
    monkeypatch.setattr(OfferingMachine, "ear", ear, raising=False)
    run_machine(store, clock, EXAMPLES // 2, OfferingMachine)
