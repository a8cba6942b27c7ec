"""Equal jobs are one: while unfinished, and for as long as a result is handed out again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadArguments, Fail, Holdfast, Job, State, content_key
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
        assert again.wait(timeout=0) == first.refresh().result
        assert hf.drain() == 0


@pytest.mark.parametrize("reuse", [None, 0])
def test_without_reuse_a_finished_job_gives_its_key_up(hf: Holdfast, count: Task[[], int], reuse: Any) -> None:
    first = count.using(key="k", reuse=reuse).enqueue()
    hf.drain()
    second = count.using(key="k", reuse=reuse).enqueue()
    assert second.created
    assert second.id != first.id
    hf.drain()
    assert [first.refresh().result, second.refresh().result] == [1, 2]


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
    assert [failed.refresh().state, cancelled.refresh().state] == [State.FAILED, State.CANCELLED]
    assert fails.using(key="a").enqueue().created
    assert fails.using(key="b").enqueue().created


@pytest.mark.parametrize("how", ["as the task's default", "by using"])
@pytest.mark.parametrize("mode", ["retry", "return"])
def test_after_failure_says_what_becomes_of_a_failed_job(hf: Holdfast, how: str, mode: str) -> None:
    option: Any = {"after_failure": mode}
    calls: list[int] = []

    def fails_at_first(n: int) -> int:
        calls.append(n)
        if len(calls) == 1:
            raise Fail("no")
        return n

    task: Any = hf.task(**(option if how == "as the task's default" else {}))(fails_at_first)
    enqueuer = task.using(key="k", **(option if how == "by using" else {}))
    first = enqueuer.enqueue(1)
    assert hf.drain() == 1
    again = enqueuer.enqueue(2)
    assert (again.id, again.created) == (first.id, False)
    assert hf.drain() == (1 if mode == "retry" else 0)
    assert calls == ([1, 1] if mode == "retry" else [1])
    record = hf.store.reads.get(first.id)
    assert (record.state.value, record.result) == (("succeeded", b"1") if mode == "retry" else ("failed", None))
    assert task.using(key="k", after_failure="new").enqueue(3).created


# -- keys from content ----------------------------------------------------------------------------------------------

parts = st.lists(st.one_of(st.text(), st.integers(), st.binary(), st.none()), min_size=1, max_size=5)


@given(one=parts, other=parts)
def test_keys_are_equal_for_equal_content_alone(one: list[Any], other: list[Any]) -> None:
    same = [(type(part), part) for part in one] == [(type(part), part) for part in other]
    assert (content_key(*one) == content_key(*other)) == same


def test_parts_do_not_run_into_each_other() -> None:
    alike: list[tuple[Any, ...]] = [
        ("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), (b"abc",), ("1",), (1,), (b"1",), (None,), ("",),
        (b"",), ("None",), (None, None), (-1,), ("as\x00\x00\x00\x00\x00\x00\x00\x01b",), ("a", "b"),
    ]  # fmt: skip
    assert len({content_key(*content) for content in alike}) == len(alike)


def test_a_key_from_content_never_changes_and_fits(count: Task[[], int]) -> None:
    """It is stored: another release must not make others."""
    expected = "229c888ab4494b42f923828dbade7f1769ae29bd079b995e6829de82773f9afc"
    assert content_key("url", "https://example.org/", 7, b"\x00", None) == expected
    assert count.using(key=content_key("x" * 10_000_000)).enqueue().created


@pytest.mark.parametrize("bad", [1.0, True, ["a"], object(), "\ud800"])
def test_content_that_has_no_one_form_is_refused(bad: Any) -> None:
    with pytest.raises(BadArguments, match="content_key"):
        content_key("url", bad)


def test_content_has_one_part_at_least() -> None:
    with pytest.raises(BadArguments, match="at least one part"):
        content_key()


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
