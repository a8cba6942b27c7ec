"""What a handler gets, and what is handed out as its result, is what its type hints say."""

from __future__ import annotations

import enum
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NoReturn, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from holdfast import BadArguments, Fail, Holdfast, HoldfastError, Job, JobContext, State
from holdfast.model.job import NewJob
from holdfast.model.payload import encode


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
T = TypeVar("T")


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Word(enum.StrEnum):
    YES = "yes"


@attrs.define
class Parcel:
    weight: float
    stops: list[datetime] = attrs.field(factory=list)


@dataclass
class Tree:
    n: int
    children: list[Tree] = field(default_factory=list)


class Order(pydantic.BaseModel):
    id: uuid.UUID
    total: Decimal = Decimal("0.00")
    lines: dict[int, str] = {}
    placed: datetime | None = None

    @pydantic.field_validator("total")
    @classmethod
    def not_negative(cls, value: Decimal) -> Decimal:
        if value < 0:
            raise ValueError("a total is not negative")
        return value

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def is_large(self) -> bool:
        return self.total > 100


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    name: str = pydantic.Field(alias="theName")
    at: datetime = pydantic.Field(default=NOON, validation_alias="when", serialization_alias="moment")
    ids: set[int]
    pair: tuple[int, str]


class Numbers(pydantic.RootModel[list[int]]): ...


class Box(pydantic.BaseModel, Generic[T]):
    item: T


@dataclass
class Envelope:
    order: Order
    extra: dict[str, Any]


ORDER = Order(id=uuid.UUID(int=7), lines={3: "x"}, total=Decimal("1.10"), placed=NOON)
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
    "an object": (object, {"a": [1, None]}),
    "a time": (time, time(12, 30, 0, 5)),
    "a naive datetime": (datetime, datetime(2030, 1, 2, 3)),
    "a negative duration": (timedelta, timedelta(days=-1, microseconds=1)),
    "flags": (Access, Access.READ | Access.WRITE),
    "an enum of text": (Word, Word.YES),
    "a choice": (Literal["a", 1, None], 1),
    "a frozen set": (frozenset[uuid.UUID], frozenset({uuid.UUID(int=7)})),
    "a tuple of any length": (tuple[date, ...], (date(2030, 1, 2), date(2030, 1, 3))),
    "a set of tuples": (set[tuple[int, str]], {(1, "a")}),
    "a bytearray": (bytearray, bytearray(b"\x00\xff")),
    "a decimal or a float": (Decimal | float, Decimal("1.10")),
    "a float or a decimal": (Decimal | float, 1.1),
    "an attrs class": (Parcel, Parcel(1.5, [NOON])),
    "a class within itself": (Tree, Tree(1, [Tree(2)])),
    "a model": (Order, ORDER),
    "no model": (Order | None, None),
    "models in containers": (dict[str, list[Order | None]], {"a": [ORDER, None]}),
    "a model in a dataclass": (Envelope, Envelope(ORDER, {"a": [1]})),
    "a strict model with aliases": (Strict, Strict(theName="x", at=NOON, ids={1}, pair=(1, "a"))),
    "a model of a list": (Numbers, Numbers([1, 2])),
    "a generic model": (Box[int], Box[int](item=1)),
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
    task._run(JobContext.detached("take"), task.bind(value).new.args)
    assert got == [value]
    assert type(got[0]) is type(value)


@pytest.mark.parametrize("what", SAMPLES)
def test_the_result_is_read_as_its_hint_says(what: str) -> None:
    hint, value = SAMPLES[what]
    app = Holdfast("sqlite:///never-opened.db")

    def give() -> Any: ...

    give.__annotations__["return"] = hint
    task = app.task(give)
    read = task._signature.result(encode(value, limit=10_000))
    assert read == value
    assert type(read) is type(value)


def test_models_go_through_the_database_both_ways(hf: Holdfast) -> None:
    got: list[Any] = []

    @hf.task
    def bill(order: Order, parcel: Parcel | None = None) -> Envelope:
        got.append((order, parcel))
        return Envelope(order, {"billed": True})

    @hf.task
    async def plain(order: Order) -> Order:
        return order.model_copy(update={"total": Decimal("2.20")})

    job, other = bill.enqueue(ORDER, parcel=Parcel(2.0)), plain.enqueue(ORDER)
    hf.drain()
    assert got == [(ORDER, Parcel(2.0))]
    assert job.wait() == hf.job(job.id).result == Envelope(ORDER, {"billed": True})
    assert other.wait() == ORDER.model_copy(update={"total": Decimal("2.20")})


def test_a_model_as_a_result_without_a_hint_is_read_as_json(hf: Holdfast) -> None:
    @hf.task
    def give():  # type: ignore[no-untyped-def]
        return [Numbers([1]), Box(item={2})]

    job = give.enqueue()
    hf.drain()
    assert job.refresh().result == [[1], {"item": [2]}]


def test_what_a_model_refuses_is_refused_by_name(hf: Holdfast) -> None:
    @hf.task
    def take(order: Order, orders: list[Order] | None = None) -> None: ...

    wrong = Order.model_construct(id=uuid.UUID(int=1), total=Decimal("-1"))
    with pytest.raises(BadArguments, match="take: argument `order`: `total`: Value error, a total is not negative"):
        take.enqueue(wrong)
    with pytest.raises(BadArguments, match=r"take: argument `orders\[1\]`: `id`: UUID input should be a string"):
        take.enqueue(ORDER, [ORDER, {"id": 1}])  # type: ignore[list-item]
    assert take.bind({"id": str(uuid.UUID(int=1))})  # type: ignore[arg-type]  # its JSON form, as from SQL
    assert hf.jobs() == []


class Login(pydantic.BaseModel):
    name: str
    word: pydantic.SecretStr


class Special(Order):
    colour: str = "red"


def test_a_model_that_would_not_read_back_as_it_was_is_refused() -> None:
    app = Holdfast("sqlite:///never-opened.db")

    @app.task
    def take(login: Login | None = None, orders: tuple[Order, ...] = (), envelope: Envelope | None = None) -> None: ...

    with pytest.raises(BadArguments, match=r"`login`: a `Login` does not read back .* as it was: see its `word`"):
        take.bind(Login(name="n", word=pydantic.SecretStr("s")))
    with pytest.raises(BadArguments, match="argument `orders`: a `Special` would arrive as a `Order`"):
        take.bind(orders=(ORDER, Special(id=uuid.UUID(int=1))))
    with pytest.raises(BadArguments, match="argument `envelope`: a `set` would arrive as something else"):
        take.bind(envelope=Envelope(ORDER, {"a": {1}}))


def test_pydantic_and_attrs_are_imported_by_those_who_use_them() -> None:
    program = (
        "import sys; from holdfast import Holdfast\n"
        "hf = Holdfast('sqlite:///never-opened.db')\n"
        "hf.task(name='t')(lambda x: None).bind([1])\n"
        "print({'pydantic', 'attrs', 'attr'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


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
    assert job.refresh().result == {7: given[0]}
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

    @hf.task
    def take(n: int) -> None:
        ran.append(n)

    stored = (b'{"n": "x"}', b"{}", b"[]")
    ids = [hf.store.enqueue(NewJob(task="take", args=args, max_attempts=3)).id for args in stored]
    hf.drain()
    told = [hf.job(id).error for id in ids]
    assert ran == []
    assert {hf.job(id).state for id in ids} == {State.FAILED}
    assert [error and error.code for error in told] == ["BAD_ARGUMENTS"] * 3
    assert [error and error.message for error in told] == [
        "take: argument `n`: Expected `int`, got `str`; the job was stored with (n), and this handler takes (n: 'int') "
        "-> 'None'",
        "take: Object missing required field `n`; the job was stored with (), and this handler takes (n: 'int') -> "
        "'None'",
        "take: Expected `object`, got `array`; this handler takes (n: 'int') -> 'None'",
    ]


def test_arguments_of_another_task_of_the_same_name_fail_the_job_at_once(make_app: Callable[..., Holdfast]) -> None:
    ours, theirs = make_app(), make_app()

    def add(a: int, b: int) -> None: ...

    def other(path: str) -> None: ...

    job = ours.task(name="add", max_attempts=5)(add).enqueue(1, 2)
    theirs.task(name="add", max_attempts=5)(other)
    theirs.drain()
    record = job.refresh().record
    assert (record.state, record.attempt, record.error_code) == (State.FAILED, 1, "BAD_ARGUMENTS")
    assert record.error_message is not None
    assert "the job was stored with (a, b), and this handler takes (path: 'str')" in record.error_message


def test_a_validation_error_of_the_handlers_own_is_not_taken_for_bad_arguments(hf: Holdfast) -> None:
    @hf.task(retry=lambda attempt, error: None)
    def parse() -> None:
        msgspec.json.decode(b'"x"', type=int)

    job = parse.enqueue()
    hf.drain()
    assert job.refresh().state is State.FAILED  # by its own policy, after the first attempt
    assert job.error is not None
    assert job.error.code == "ValidationError"


def test_a_result_that_is_not_what_the_hint_says_is_told_when_it_is_read(hf: Holdfast) -> None:
    @hf.task
    def lie(ctx: JobContext) -> int:
        with ctx.transaction() as tx:
            tx.set_result("text")
        return 0

    job = lie.enqueue()
    hf.drain()
    assert job.refresh().state is State.SUCCEEDED
    with pytest.raises(HoldfastError, match="the result of lie is not what its return hint says"):
        _ = job.refresh().result
    assert job.refresh().record.result == b'"text"'


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
    assert job.refresh().record.result is None
    assert other.refresh().state is State.FAILED


def test_a_job_of_a_task_unknown_here_still_shows_its_result(make_app: Callable[..., Holdfast]) -> None:
    theirs, ours = make_app(), make_app()

    @theirs.task
    def when() -> datetime:
        return NOON

    job = when.enqueue()
    theirs.drain()
    assert ours.job(job.id).result == "2030-01-02T12:00:00Z"
    assert job.refresh().result == NOON
