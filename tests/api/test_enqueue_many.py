"""Many jobs at once: in order, streamed, all or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast import BadSettings, Holdfast, State
from holdfast.store.sqlite.enqueue import CHUNK
from holdfast.tasks.task import Bound


def test_handles_come_in_order_and_of_several_tasks(hf: Holdfast) -> None:
    @hf.task
    def double(n: int) -> int:
        return 2 * n

    @hf.task(queue="texts")
    def shout(text: str) -> str:
        return text.upper()

    jobs: list[Bound[int] | Bound[str]] = [double.bind(1), shout.bind("a"), double.using(priority=5).bind(2)]
    first, second, third = hf.enqueue_many(jobs)
    assert hf.drain() == 3
    assert [first.refresh().result, second.refresh().result, third.refresh().result] == [2, "A", 4]
    assert [first.task, second.task] == ["double", "shout"]
    assert second.refresh().record.queue == "texts"
    assert third.refresh().record.priority == 5
    assert hf.enqueue_many([]) == []


def test_a_long_stream_is_kept_in_order_with_its_keys(hf: Holdfast) -> None:
    @hf.task
    def take(n: int) -> int:
        return n

    count = CHUNK + 500
    keyed = {3, CHUNK - 1, CHUNK, CHUNK + 7}
    jobs = hf.enqueue_many((take.using(key=f"k{n}") if n in keyed else take).bind(n) for n in range(count))
    assert len({job.id for job in jobs}) == len(jobs) == count
    for n in (0, 3, CHUNK - 1, CHUNK, CHUNK + 7, count - 1):
        assert jobs[n].refresh().record.args == b'{"n":%d}' % n
        assert jobs[n].refresh().record.key == (f"k{n}" if n in keyed else None)


def test_the_stream_is_read_as_it_is_kept(hf: Holdfast) -> None:
    @hf.task
    def take(n: int) -> None: ...

    def numbers() -> Iterator[Bound[None]]:
        for n in range(300):
            yield take.bind(n)

    assert hf.enqueue_stream(numbers()) == 300
    assert len(hf.jobs(limit=1000)) == 300


@pytest.mark.parametrize("fails_at", [2, CHUNK + 2])
def test_a_stream_that_fails_leaves_nothing(hf: Holdfast, fails_at: int) -> None:
    @hf.task
    def take(n: int) -> None: ...

    def numbers() -> Iterator[Bound[None]]:
        for n in range(fails_at):
            yield (take.using(key=f"k{n}") if n % 100 == 0 else take).bind(n)
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        hf.enqueue_many(numbers())
    assert hf.jobs() == []
    assert take.using(key="k0").enqueue(0).created


def test_equal_keys_are_one_job_and_the_handles_say_so(hf: Holdfast) -> None:
    @hf.task
    def take(n: int) -> None: ...

    here = take.using(key="a").enqueue(0)
    jobs = hf.enqueue_many([take.using(key="a").bind(1), take.using(key="b").bind(2), take.using(key="b").bind(3)])
    assert [job.created for job in jobs] == [False, True, False]
    assert jobs[0].id == here.id
    assert jobs[1].id == jobs[2].id
    assert {job.refresh().record.args for job in jobs} == {b'{"n":0}', b'{"n":2}'}


def test_many_have_a_transaction_of_their_own(hf: Holdfast) -> None:
    @hf.task
    def take(n: int) -> None: ...

    with pytest.raises(BadSettings, match="conn= is not possible here"):
        hf.enqueue_many([take.bind(1), take.using(conn=object()).bind(2)])
    assert hf.jobs() == []


def test_many_from_asynchronous_code(hf: Holdfast) -> None:
    @hf.task
    async def take(n: int) -> int:
        return n

    jobs = asyncio.run(hf.aenqueue_many(take.bind(n) for n in range(5)))
    hf.drain()
    assert [job.wait() for job in jobs] == list(range(5))
    assert {job.refresh().state for job in jobs} == {State.SUCCEEDED}
