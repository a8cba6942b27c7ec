"""What a handler gets, and what is handed out as its result, is what its type hints say."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, NoReturn, TypedDict

import msgspec
import pytest

from holdfast import Fail, Holdfast, HoldfastError, Job, JobContext, State
from holdfast.model.job import NewJob


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Settings(TypedDict):
    depth: int


class Pair(NamedTuple):
    a: int
    b: str


@dataclass
class Page:
    url: str
    points: list[Point] = field(default_factory=list)
    seen: datetime | None = None


NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)
SAMPLES: dict[str, tuple[Any, Any]] = {
    "a dataclass": (Page, Page("u", [Point(1, 2)], NOON)),
    "a struct": (Point, Point(1, 2)),
    "a datetime": (datetime, NOON),
    "a datetime of another zone": (datetime, NOON.astimezone(timezone(timedelta(hours=5)))),
    "a date": (date, date(2030, 1, 2)),
    "a duration": (timedelta, timedelta(hours=1, microseconds=5)),
    "a UUID": (uuid.UUID, uuid.UUID(int=7)),
    "a decimal": (Decimal, Decimal("1.10")),
    "an enum": (Colour, Colour.RED),
    "an enum of integers": (Size, Size.SMALL),
    "bytes": (bytes, b"\x00\xff"),
    "a set": (set[int], {1, 2}),
    "a tuple": (tuple[int, str], (1, "a")),
    "a named tuple": (Pair, Pair(1, "a")),
    "a typed dictionary": (Settings, {"depth": 1}),
    "a mapping by number": (dict[int, Point], {1: Point(1)}),
    "a mapping by UUID": (dict[uuid.UUID, int], {uuid.UUID(int=7): 1}),
    "an optional value": (Point | None, Point(1)),
    "no value": (Point | None, None),
    "one of several": (int | list[Colour], [Colour.RED]),
    "a float from an integer": (float, 1.0),
    "an annotated value": (Annotated[int, msgspec.Meta(ge=0)], 1),
    "anything": (Any, {"a": [1, None]}),
}


@pytest.mark.parametrize("what", SAMPLES)
def test_the_handler_gets_what_its_hints_say(what: str) -> None:
    hint, value = SAMPLES[what]
    app = Holdfast("sqlite:///never-opened.db")
    got: list[Any] = []

    def take(value: Any) -> None:
        got.append(value)

    take.__annotations__["value"] = hint
    task = app.task(take)
    task.run(JobContext.detached("take"), task.bind(value).new.args)
    assert got == [value]
    assert type(got[0]) is type(value)


def test_hints_convert_on_both_engines_arguments_and_results(hf: Holdfast) -> None:
    got: list[Any] = []

    @hf.task
    def take(
        page: Page, when: datetime, id: uuid.UUID, colour: Colour, by_number: dict[int, Point], none: int | None
    ) -> dict[int, Page]:
        got.append((page, when, id, colour, by_number, none))
        return {7: page}

    given = (Page("u", [Point(1)], NOON), NOON, uuid.UUID(int=7), Colour.RED, {3: Point(1, 2)}, None)
    job = take.enqueue(*given)
    hf.drain()
    assert got == [given]
    assert job.wait() == {7: given[0]}
    assert job.result == {7: given[0]}
    assert hf.job(job.id).result == {7: given[0]}


def test_every_kind_of_parameter_is_passed_as_it_must_be(hf: Holdfast) -> None:
    got: list[Any] = []

    @hf.task
    def take(ctx: JobContext, a: int, b: int = 2, /, c: int = 3, *, d: int, e: int = 5) -> None:
        got.append((ctx.job.task, a, b, c, d, e))

    take.enqueue(1, d=4)
    take.enqueue(1, 20, 30, d=40, e=50)
    take.enqueue(1, 20, d=4, c=30)
    hf.drain()
    assert sorted(got) == [("take", 1, 2, 3, 4, 5), ("take", 1, 20, 30, 4, 5), ("take", 1, 20, 30, 40, 50)]


def test_a_default_that_changes_after_the_enqueue_is_the_new_one(make_app: Callable[..., Holdfast]) -> None:
    old, new = make_app(), make_app()
    got: list[int] = []

    def before(n: int = 1) -> None:
        got.append(n)

    def after(n: int = 2) -> None:
        got.append(n)

    old.task(name="count")(before).enqueue()
    new.task(name="count")(after)
    new.drain()
    assert got == [2]


def test_ctx_needs_no_annotation_but_must_come_first(hf: Holdfast) -> None:
    got: list[Any] = []

    @hf.task
    def bare(ctx, n):  # type: ignore[no-untyped-def]
        got.append((type(ctx), n))

    @hf.task
    def other_name(me: JobContext, n: int) -> None:
        got.append((type(me), n))

    @hf.task
    def an_argument(n: int, ctx: str) -> None:
        got.append((ctx, n))

    bare.enqueue(1)
    other_name.enqueue(2)
    an_argument.enqueue(3, "text")
    hf.drain()
    assert sorted(got, key=lambda item: item[1]) == [(JobContext, 1), (JobContext, 2), ("text", 3)]


def test_stored_arguments_that_no_longer_fit_are_an_error_that_names_them(hf: Holdfast) -> None:
    ran: list[int] = []

    @hf.task(max_attempts=1)
    def take(n: int) -> None:
        ran.append(n)

    stored = (b'{"n": "x"}', b"{}", b"[]")
    ids = [hf.store.enqueue(NewJob(task="take", args=args, max_attempts=1)).id for args in stored]
    hf.drain()
    told = [hf.job(id).error for id in ids]
    assert ran == []
    assert {hf.job(id).state for id in ids} == {State.FAILED}
    assert [error and error.code for error in told] == ["BAD_ARGUMENTS"] * 3
    assert [error and error.message for error in told] == [
        "take: argument `n`: Expected `int`, got `str`",
        "take: Object missing required field `n`",
        "take: Expected `object`, got `array`",
    ]


def test_a_validation_error_of_the_handlers_own_is_not_taken_for_bad_arguments(hf: Holdfast) -> None:
    @hf.task(retry=lambda attempt, error: None)
    def parse() -> None:
        msgspec.json.decode(b'"x"', type=int)

    job = parse.enqueue()
    hf.drain()
    assert job.state is State.FAILED  # by its own policy, after the first attempt
    assert job.error is not None
    assert job.error.code == "ValidationError"


def test_a_result_that_is_not_what_the_hint_says_is_told_when_it_is_read(hf: Holdfast) -> None:
    @hf.task
    def lie() -> int:
        return "text"  # type: ignore[return-value]

    job = lie.enqueue()
    hf.drain()
    assert job.state is State.SUCCEEDED
    with pytest.raises(HoldfastError, match="the result of lie is not what its return hint says"):
        _ = job.result
    assert job.refresh().result == b'"text"'


def test_a_handler_that_returns_nothing_has_the_result_none(hf: Holdfast) -> None:
    @hf.task
    def nothing() -> None: ...

    @hf.task
    def never() -> NoReturn:
        raise Fail("as declared")

    job: Job[None] = nothing.enqueue()
    other: Job[Any] = never.enqueue()
    assert hf.drain() == 2
    assert job.wait() is None
    assert job.refresh().result is None
    assert other.state is State.FAILED


def test_a_job_of_a_task_unknown_here_still_shows_its_result(make_app: Callable[..., Holdfast]) -> None:
    theirs, ours = make_app(), make_app()

    @theirs.task
    def when() -> datetime:
        return NOON

    job = when.enqueue()
    theirs.drain()
    assert ours.job(job.id).result == "2030-01-02T12:00:00Z"
    assert job.result == NOON
