"""The sums of pending work: of jobs that run, and of all that are unfinished."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import raw, reclaim
from tests.factories import BOOM, LEASE, Clock, a_queued_job, a_running_job, ref


def sums(store: Store) -> dict[tuple[str, str], tuple[int, int]]:
    return {(d.queue, d.task): (d.pending_running, d.pending) for d in store.reads.depths() if d.pending}


def listed(settings: Settings) -> set[int]:
    with raw(settings) as sql:
        return {id for (id,) in sql("select job_id from {pending}")}


def test_pending_work_is_summed_by_queue_and_task_wherever_its_job_is(store: Store, clock: Clock) -> None:
    held = {name: a_running_job(store, queue="crawl") for name in ("running", "paused", "rescheduled", "rescued")}
    for number, one in enumerate(held.values()):
        store.attempts.checkpoint(ref(one), b"1", pending=10**number)
    other = a_running_job(store, task="scan")
    store.attempts.checkpoint(ref(other), b"1", pending=5)
    a_queued_job(store, queue="crawl", delay=1e6)
    assert sums(store) == {("crawl", "greet"): (1111, 1111), ("default", "scan"): (5, 5)}
    store.operator.pause(str(held["paused"].id))
    store.attempts.park(ref(held["paused"]))
    store.attempts.reschedule(ref(held["rescheduled"]), 1e6, BOOM)
    assert sums(store)["crawl", "greet"] == (1001, 1111)
    store.attempts.checkpoint(ref(held["running"]), b"2", pending=0)
    assert sums(store)["crawl", "greet"] == (1000, 1110)
    store.attempts.release(ref(held["running"]), delay=1e6)
    store.attempts.succeed(ref(other))
    clock.advance(LEASE + 1)
    store.rescues.rescue()
    assert sums(store) == {("crawl", "greet"): (0, 1110)}


def test_counts_may_be_of_bytes(store: Store) -> None:
    """More than 32 bits hold."""
    for one in [a_running_job(store) for _ in range(2)]:
        store.attempts.checkpoint(ref(one), b"1", pending=10**15, done=3 * 10**9)
        store.attempts.progress(ref(one), 4 * 10**9, 10**15, None, None)
    assert sums(store) == {("default", "greet"): (2 * 10**15, 2 * 10**15)}
    job = store.reads.jobs()[0]
    assert (job.pending, job.done, job.total) == (10**15, 4 * 10**9, 10**15)
    assert store.reads.counts()[0]["pending"] == 2 * 10**15


@pytest.mark.parametrize("end", ["succeed", "fail", "stop", "cancel"])
def test_what_finished_has_nothing_pending_whatever_its_last_checkpoint_said(
    store: Store, settings: Settings, end: str
) -> None:
    held = a_running_job(store)
    store.attempts.checkpoint(ref(held), b"1", pending=7)
    if end == "cancel":
        store.operator.pause(str(held.id))
        store.attempts.park(ref(held))
        store.operator.cancel(str(held.id))
    else:
        ends: dict[str, Callable[[], object]] = {
            "succeed": lambda: store.attempts.succeed(ref(held)),
            "fail": lambda: store.attempts.fail(ref(held), BOOM),
            "stop": lambda: store.attempts.stop(ref(held)),
        }
        ends[end]()
    assert sums(store) == {}
    assert listed(settings) == {held.id}
    assert (store.retention.drop_pending(), store.retention.drop_pending()) == (1, 0)
    assert listed(settings) == set()
    assert store.reads.get(str(held.id)).pending == 7
    if end != "succeed":  # another life goes on from the checkpoint, so its work is pending again
        store.operator.retry(str(held.id))
        assert sums(store) == {("default", "greet"): (0, 7)}


def test_only_what_finished_is_taken_off_the_list(store: Store, settings: Settings) -> None:
    running, paused, queued = (a_running_job(store) for _ in range(3))
    for held in (running, paused, queued):
        store.attempts.checkpoint(ref(held), b"1", pending=1)
    store.operator.pause(str(paused.id))
    store.attempts.park(ref(paused))
    store.attempts.release(ref(queued))
    assert store.retention.drop_pending() == 0
    assert listed(settings) == {running.id, paused.id, queued.id}
    assert store.attempts.step(ref(reclaim(store, queued.id)), "none")[0] is None


def test_a_job_that_counts_nothing_is_on_no_list(store: Store, settings: Settings) -> None:
    held = a_running_job(store)
    store.attempts.checkpoint(ref(held), b"1")
    store.attempts.keep_step(ref(held), "fetch", b"1")
    assert listed(settings) == set()
    assert sums(store) == {}
