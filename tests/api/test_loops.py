"""A synchronous verb in a running event loop blocks it: it says so, and names its asynchronous twin."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from holdfast import BadSettings, Holdfast, HoldfastError, Job
from tests.running import MakeApp, working


def in_loop(call: Callable[[], object]) -> Any:
    async def run() -> object:
        return call()

    return asyncio.run(run())


@pytest.fixture
def job(hf: Holdfast) -> Job[int]:
    @hf.task
    def double(n: int) -> int:
        return 2 * n

    return double.enqueue(4)


def test_a_verb_in_a_loop_warns_and_names_its_twin(hf: Holdfast, job: Job[int]) -> None:
    double: Any = hf.find_task("double")
    verbs: dict[str, Callable[[], object]] = {
        r"enqueue\(\) blocks the event loop .*; await aenqueue\(…\) instead": lambda: double.enqueue(1),
        r"await aenqueue\(…\) instead$": lambda: double.using(delay=1).enqueue(1),
        r"await arefresh\(…\) instead": lambda: job.refresh(),
        r"await acancel\(…\) instead": lambda: job.cancel(),
        r"wait\(\) blocks .*; write `await job` instead": lambda: job.wait(0),
        r"updates\(\) blocks .*; write `async for` instead": lambda: list(job.updates(0)),
        r"await ajob\(…\) instead": lambda: hf.job(job.id),
        r"await ajobs\(…\) instead": lambda: hf.jobs(),
        r"await apause_queue\(…\) instead": lambda: hf.pause_queue("mail"),
        r"await adoctor\(…\) instead": lambda: hf.doctor(),
        r"await aenqueue_many\(…\) instead": lambda: hf.enqueue_many([double.bind(1)]),
        r"await aenqueue_stream\(…\) instead": lambda: hf.enqueue_stream([double.bind(1)]),
        r"await adrain\(…\) instead": lambda: hf.drain(),
        r"await amigrate\(…\) instead": lambda: hf.migrate(),
    }
    for text, call in verbs.items():
        with pytest.warns(RuntimeWarning, match=text):
            in_loop(_quiet(call))


def _quiet(call: Callable[[], object]) -> Callable[[], object]:
    def called() -> None:
        with suppress(HoldfastError):  # a timeout, say: here the warning matters
            call()

    return called


def test_it_warns_once_for_each_place_in_the_code(hf: Holdfast, job: Job[int]) -> None:
    def many() -> None:
        for _ in range(3):
            job.refresh()
        job.refresh()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        in_loop(many)
    assert len(caught) == 2
    assert {warning.filename for warning in caught} == {__file__}


def test_the_setting_makes_it_an_error_or_allows_it(make_app: MakeApp) -> None:
    strict, lax = make_app(sync_in_loop="error"), make_app(sync_in_loop="allow")
    assert strict.jobs() == []
    with pytest.raises(HoldfastError, match=r"^HF1317 jobs\(\) blocks the event loop"):
        in_loop(strict.jobs)
    assert in_loop(lax.jobs) == []
    with pytest.raises(BadSettings, match="sync_in_loop is 'maybe'; it can be warn, error or allow"):
        make_app(sync_in_loop="maybe")


def test_twins_handlers_and_what_has_no_twin_stay_quiet(make_app: MakeApp) -> None:
    hf = make_app(sync_in_loop="error")

    @hf.task
    def leaf(n: int) -> int:
        return n

    @hf.task
    def sync() -> str:  # on a thread of its own
        return leaf.enqueue(1).id

    @hf.task
    async def coroutine() -> str:
        return (await leaf.aenqueue(2)).id

    async def use() -> list[str]:
        jobs: list[Job[Any]] = [await sync.aenqueue(), await coroutine.aenqueue()]
        with working(hf):  # made in a loop, it works on threads of its own
            done = [await job for job in jobs]
        assert len(await hf.ajobs()) == 4
        await hf.amigrate()
        return done

    assert len(asyncio.run(use())) == 2
