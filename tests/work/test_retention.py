"""Workers keep the list of jobs with work pending short."""

from __future__ import annotations

import math

import pytest

from holdfast import Holdfast, JobContext, State
from holdfast.worker import retention
from holdfast.worker.retention import Retention


def test_finished_jobs_are_taken_off_the_list_in_batches_and_now_and_then(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PENDING_BATCH", 3)

    @hf.task
    def task(ctx: JobContext) -> None:
        ctx.checkpoint("on its way", pending=5)

    hf.enqueue_many(task.bind() for _ in range(10))
    hf.drain()
    assert [queue.pending for queue in hf.queues()] == []
    keeper = Retention(hf.store, finished=3600, failed=3600)
    keeper.step()
    assert hf.store.retention.drop_pending(1) == 1, "it is too early"
    monkeypatch.setattr(keeper, "_pending_next", 0.0)
    keeper.step()
    assert hf.store.retention.drop_pending() == 0, "the other nine are gone"
    assert keeper._pending_next > 0


@pytest.mark.parametrize("seconds", [math.inf, 1e12])
def test_what_is_kept_for_ever_keeps_nothing_else(hf: Holdfast, seconds: float) -> None:
    @hf.task(max_attempts=1)
    def task(fails: bool) -> None:
        if fails:
            raise ValueError

    hf.enqueue_many(task.bind(fails) for fails in (True, False))
    hf.drain()
    Retention(hf.store, finished=seconds, failed=0.0).walk()
    assert [job.state for job in hf.jobs()] == [State.SUCCEEDED]
    Retention(hf.store, finished=0.0, failed=seconds).walk()
    assert hf.jobs() == []


def test_what_operators_did_is_kept_as_long_as_failed_jobs(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "AUDIT_BATCH", 2)
    for _ in range(5):
        hf.resume_queue("default")
    Retention(hf.store, finished=0.0, failed=3600.0).walk()
    assert len(hf.audit()) == 5
    Retention(hf.store, finished=3600.0, failed=0.0).walk()
    assert hf.audit() == []
