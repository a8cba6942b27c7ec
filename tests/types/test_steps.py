"""What a type checker sees of steps, tracked items and progress; as in test_public_api.py, checking is the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

from holdfast import Holdfast, JobContext

hf = Holdfast("sqlite:///unused.db")


def charge(item: str, *, cents: int = 0) -> dict[str, int]:
    return {item: cents}


async def acharge(item: str) -> tuple[str, int]:
    return item, 1


@hf.task
def order(ctx: JobContext, item: str) -> str:
    assert_type(ctx.step("charge", charge, item, cents=3), dict[str, int])
    assert_type(ctx.track([1, 2]), Iterator[int])
    return item


@hf.task
async def aorder(ctx: JobContext, item: str) -> str:
    assert_type(await ctx.astep("acharge", acharge, item), tuple[str, int])
    assert_type(await ctx.astep("charge", charge, item), dict[str, int])
    assert_type(ctx.track(numbers()), AsyncIterator[int])
    return item


async def numbers() -> AsyncIterator[int]:
    yield 1


def wrong(ctx: JobContext) -> None:
    ctx.step("charge", charge, 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ctx.step("charge", charge, "a", euros=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def test_a_handler_with_steps_can_be_called_plainly() -> None:
    assert order("lamp") == "lamp"
