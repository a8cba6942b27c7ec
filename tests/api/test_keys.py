"""Equal jobs are one: while unfinished, and for as long as a result is handed out again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from holdfast import Fail, Holdfast, Job, State
from holdfast.tasks.task import Task


@pytest.fixture
def count(hf: Holdfast) -> Task[[], int]:
    runs = [0]

    @hf.task
    def count() -> int:
        runs[0] += 1
        return runs[0]

    return count


def test_while_unfinished_a_second_enqueue_returns_the_first(hf: Holdfast, count: Task[[], int]) -> None:
    first = count.using(key="k").enqueue()
    second = count.using(key="k", priority=9).enqueue()
    assert (first.created, second.created) == (True, False)
    assert first.id == second.id
    first.pause()
    assert count.using(key="k").enqueue().id == first.id
    assert count.using(key="other").enqueue().id != first.id


def test_a_result_is_handed_out_again_for_as_long_as_reuse_says(hf: Holdfast, count: Task[[], int]) -> None:
    for reuse in (60, timedelta(minutes=1), "forever"):
        enqueuer: Any = count.using(key=f"for {reuse}", reuse=reuse)
        first = enqueuer.enqueue()
        assert hf.drain() == 1
        again = enqueuer.enqueue()
        assert again.id == first.id
        assert not again.created
        assert again.wait(timeout=0) == first.result
        assert hf.drain() == 0


@pytest.mark.parametrize("reuse", [None, 0])
def test_without_reuse_a_finished_job_gives_its_key_up(hf: Holdfast, count: Task[[], int], reuse: Any) -> None:
    first = count.using(key="k", reuse=reuse).enqueue()
    hf.drain()
    second = count.using(key="k", reuse=reuse).enqueue()
    assert second.created
    assert second.id != first.id
    hf.drain()
    assert [first.result, second.result] == [1, 2]


def test_a_task_can_say_for_all_its_jobs_how_long_results_serve(hf: Holdfast) -> None:
    @hf.task(reuse="forever")
    def once() -> int:
        return 1

    first = once.using(key="k").enqueue()
    hf.drain()
    assert once.using(key="k").enqueue().id == first.id
    assert once.using(key="k", reuse=None).enqueue().created


def test_a_failed_or_cancelled_job_gives_its_key_to_a_new_one(hf: Holdfast) -> None:
    @hf.task(reuse="forever")
    def fails() -> None:
        raise Fail("no")

    failed = fails.using(key="a").enqueue()
    hf.drain()
    cancelled = fails.using(key="b").enqueue()
    cancelled.cancel()
    assert [failed.state, cancelled.state] == [State.FAILED, State.CANCELLED]
    assert fails.using(key="a").enqueue().created
    assert fails.using(key="b").enqueue().created


def test_keys_belong_to_their_task(hf: Holdfast) -> None:
    @hf.task
    def one() -> None: ...

    @hf.task
    def other() -> None: ...

    assert one.using(key="k").enqueue().id != other.using(key="k").enqueue().id


def test_of_many_submitters_at_once_exactly_one_creates_the_job(hf: Holdfast, count: Task[[], int]) -> None:
    def submit(_: int) -> Job[int]:
        return count.using(key="k").enqueue()

    with ThreadPoolExecutor(8) as pool:
        jobs = list(pool.map(submit, range(40)))
    assert len({job.id for job in jobs}) == 1
    assert sum(job.created for job in jobs) == 1
    assert len(hf.jobs()) == 1
