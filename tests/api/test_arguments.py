"""Arguments are checked when they are enqueued: the error names the one that is wrong, and nothing is kept."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import attrs
import msgspec
import pydantic
import pytest

from holdfast import BadArguments, BadSettings, Holdfast, JobContext

app = Holdfast("sqlite:///never-opened.db")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Page:
    url: str
    points: list[Point]


@app.task
def typed(
    n: int = 0, text: str = "", flag: bool = False, ratio: float = 0.0, when: datetime | None = None,
    day: date | None = None, id: uuid.UUID | None = None, colour: Colour = Colour.RED, page: Page | None = None,
    by_number: dict[int, str] | None = None, choice: Literal["a", "b"] = "a", pair: tuple[int, str] = (1, ""),
) -> None: ...  # fmt: skip


@app.task
def untyped(value, other=None) -> None: ...  # type: ignore[no-untyped-def]


def endless() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


UNFIT = {
    "not JSON": (object(), "not JSON"),
    "a function": (print, "not JSON"),
    "a complex number": (1j, "not JSON"),
    "NaN": (float("nan"), "not finite"),
    "infinity": (float("-inf"), "not finite"),
    "NaN inside": ([{"a": [1.0, float("nan")]}], "not finite"),
    "NaN in a dataclass": (Page("u", [float("nan")]), "not finite"),  # type: ignore[list-item]
    "NaN in a struct": (Point(float("nan")), "not finite"),  # type: ignore[arg-type]
    "NUL": ("a\x00b", "NUL"),
    "NUL inside": ({"a": ["\x00"]}, "NUL"),
    "NUL as a key": ({"\x00": 1}, "NUL"),
    "NUL after a backslash": ("\\\x00", "NUL"),
    "half a surrogate pair": ("\ud800", "surrogate"),
    "half a surrogate pair inside": ([{"\udfff": 1}], "surrogate"),
    "an integer of five thousand digits": (10**5000, "4300 digits"),
    "nested too deeply": (nested(65), "nested"),
    "nested beyond any measure": (nested(100_000), "nested"),
    "containing itself": (endless(), "nested"),
    "too large": ("x" * (256 * 1024), "262,144 are allowed"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_a_value_that_json_can_not_keep_is_refused_by_name(what: str) -> None:
    value, why = UNFIT[what]
    with pytest.raises(BadArguments, match=r"untyped: argument `value`: it .*" + why):
        untyped.bind(value)
    with pytest.raises(BadArguments, match="argument `other`"):
        untyped.bind("fine", other=value)


@pytest.mark.parametrize(
    ("given", "name", "expected"),
    [
        ({"n": "1"}, "n", "Expected `int`, got `str`"),
        ({"n": 1.5}, "n", "Expected `int`, got `float`"),
        ({"n": True}, "n", "Expected `int`, got `bool`"),
        ({"n": None}, "n", "Expected `int`, got `null`"),
        ({"text": 1}, "text", "Expected `str`, got `int`"),
        ({"flag": 1}, "flag", "Expected `bool`, got `int`"),
        ({"ratio": "1"}, "ratio", "Expected `float`, got `str`"),
        ({"when": "yesterday"}, "when", "Invalid RFC3339"),
        ({"day": 3}, "day", "Expected `date"),
        ({"id": "not-a-uuid"}, "id", "Invalid UUID"),
        ({"colour": "green"}, "colour", "Invalid enum value"),
        ({"page": {"points": []}}, "page", "missing required field `url`"),
        ({"page": {"url": "u", "points": [3]}}, r"page\.points\[0\]", "Expected `object`, got `int`"),
        ({"by_number": {"one": "x"}}, "key` in `by_number", "Expected `int`, got `str`"),
        ({"by_number": {1: 2}}, r"by_number\[...\]", "Expected `str`, got `int`"),
        ({"choice": "c"}, "choice", "Invalid enum value"),
        ({"pair": (1, "", 2)}, "pair", "Expected `array` of length 2"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_by_name(given: dict[str, Any], name: str, expected: str) -> None:
    with pytest.raises(BadArguments, match=f"typed: argument `{name}`: .*{expected}"):
        typed.bind(**given)


@pytest.mark.parametrize(
    ("args", "kwargs", "named"),
    [
        ((), {}, "'value'"),
        ((1,), {"valeu": 2}, "'valeu'"),
        ((1, 2, 3), {}, "too many positional arguments"),
        ((1,), {"value": 2}, "'value'"),
    ],
)
def test_arguments_that_do_not_fit_the_signature_are_refused(args: Any, kwargs: Any, named: str) -> None:
    with pytest.raises(BadArguments, match=rf"untyped: .*{named}.*\(it takes \(value, other=None\)"):
        untyped.bind(*args, **kwargs)


def test_the_context_is_no_argument() -> None:
    @app.task
    def takes_context(ctx: JobContext, n: int) -> None: ...

    with pytest.raises(BadArguments, match="'ctx'"):
        takes_context.bind(n=1, ctx=3)  # type: ignore[call-arg]
    assert takes_context.bind(1).new.args == b'{"n":1}'


def test_what_can_be_kept_is_kept_as_it_was_written() -> None:
    value = {
        "max": 2**64, "min": -(2**64), "huge": -(10**1000), "float": 0.1 + 0.2, "text": 'é\u2028"\\u0000\U0001f600',
        "null": None,
        "deep": nested(60), "brackets": "[[[[{{{{" * 20, "empty": ["", {}, []],
    }  # fmt: skip
    assert msgspec.json.decode(untyped.bind(value).new.args) == {"value": value}


class Model(pydantic.BaseModel):
    n: int


FOREIGN = {
    "set": {1}, "tuple": (1, 2), "bytes": b"x", "datetime": datetime(2030, 1, 2, tzinfo=UTC), "date": date(2030, 1, 2),
    "Decimal": Decimal("1.10"), "UUID": uuid.UUID(int=7), "Colour": Colour.BLUE, "Point": Point(1), "Model": Model(n=1),
}  # fmt: skip


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_json_would_hand_over_as_something_else_needs_a_hint(kind: str) -> None:
    @app.task(name=f"loose {kind}")
    def loose(entries: dict[str, Any], rest: list[Any] | None = None) -> None: ...

    value = FOREIGN[kind]
    why = f"a `{kind}` would arrive as something else; say in the type hint"
    for wrong in (value, [value], {"a": [1, {"b": value}]}):
        with pytest.raises(BadArguments, match=f"untyped: argument `value`: {why}"):
            untyped.bind(wrong)
    with pytest.raises(BadArguments, match=f"argument `entries`: {why}"):
        loose.bind({"a": value})
    with pytest.raises(BadArguments, match=f"argument `rest`: {why}"):
        loose.bind({}, [value])
    assert loose.bind({"a": [1, None]}, rest=["x"]).new.args == b'{"entries":{"a":[1,null]},"rest":["x"]}'


def test_keys_that_json_would_turn_into_text_need_a_hint() -> None:
    @app.task
    def keyed(by_number: dict[int, Any], loose: dict) -> None: ...  # type: ignore[type-arg]

    with pytest.raises(BadArguments, match="argument `loose`: keys that are not text would arrive as text"):
        keyed.bind({1: 1}, {1: 1})
    with pytest.raises(BadArguments, match="argument `by_number`: a `set` would"):
        keyed.bind({1: {1}}, {})
    assert keyed.bind({1: "x"}, {"1": "x"})


def test_defaults_are_left_to_the_handler_that_will_run() -> None:
    assert typed.bind().new.args == b"{}"


def test_the_limit_of_arguments_is_a_setting() -> None:
    small = Holdfast("sqlite:///never-opened.db", max_args=100)

    @small.task
    def take(a: str, b: str) -> None: ...

    assert take.bind("x" * 40, "x" * 40)
    with pytest.raises(BadArguments, match="take: argument `b`: it takes 102 bytes"):
        take.bind("x", "x" * 100)
    with pytest.raises(BadArguments, match=r"take: the arguments: it takes 1\d\d bytes"):
        take.bind("x" * 60, "x" * 60)  # neither is too large by itself


def test_nothing_is_enqueued_when_arguments_are_bad(hf: Holdfast) -> None:
    task = hf.task(untyped.function)
    for value, _ in UNFIT.values():
        with pytest.raises(BadArguments):
            task.enqueue(value)
    with pytest.raises(BadArguments):
        hf.enqueue_many([task.bind(1), *(task.bind(value) for value in (2, object()))])
    with pytest.raises(BadArguments):
        hf.enqueue_many(task.bind(value) for value in (1, 2, object(), 4))
    assert hf.jobs() == []


def test_extreme_values_survive_the_database(hf: Holdfast) -> None:
    value = {"huge": 10**1000, "min": -(2**64), "float": 1.7976931348623157e308, "text": "\u2028\U0001f600\\u0000"}
    got = []

    @hf.task
    def take(value: dict[str, Any]) -> Any:
        got.append(value)
        return value

    job = take.enqueue(value)
    assert hf.drain() == 1
    assert got == [value]
    assert job.refresh().result == value


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda *values: None, "takes any arguments"),
        (lambda **values: None, "takes any arguments"),
    ],
)
def test_a_handler_that_takes_anything_is_refused(function: Any, why: str) -> None:
    with pytest.raises(BadSettings, match=why):
        app.task(name="any")(function)


def test_hints_that_can_not_be_kept_or_resolved_are_refused() -> None:
    def unresolvable(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(BadSettings, match="can't be resolved"):
        app.task(unresolvable)


class Plain: ...


class Mixed(enum.Enum):
    TEXT = "text"
    NUMBER = 1


@dataclass
class Private:
    _hidden: int


@attrs.define
class Reserved:
    _hidden: int


class Other(pydantic.BaseModel):
    n: int


UNFIT_HINTS: dict[str, tuple[Any, str]] = {
    "a class": (Plain, "`Plain` has no JSON form"),
    "a class inside": (dict[str, list[Plain | None]], "`Plain` has no JSON form"),
    "a path": (Path, "`Path` has no JSON form"),
    "an iterator": (Iterator[int], "`Iterator` has no JSON form"),
    "two objects": (Point | Page, "more than one"),
    "two models": (Model | Other, "more than one custom type"),
    "a model or a number": (Model | int, "may not contain any additional types"),
    "a date or text": (date | str, "more than one str-like type"),
    "a set or a list": (set[int] | list[int], "more than one array-like"),
    "an enum of text and numbers": (Mixed, "all str or all int"),
    "bytes as a choice": (Literal[b"x"], "Literal may only contain"),
    "tuples as keys": (dict[tuple[int, int], str], "JSON has text as keys"),
    "text or numbers as keys": (list[dict[int | str, str]], "JSON has text as keys"),
    "a private field": (list[Private], "private field `_hidden` of `Private`"),
    "a private attribute": (Reserved, "private field `_hidden` of `Reserved`"),
}


@pytest.mark.parametrize("what", UNFIT_HINTS)
def test_a_hint_that_can_not_be_kept_is_refused_when_the_task_is_declared(what: str) -> None:
    hint, why = UNFIT_HINTS[what]
    fresh = Holdfast("sqlite:///never-opened.db")

    def take(fine: int, wrong: Any = None) -> None: ...

    def give(fine: int) -> Any: ...

    take.__annotations__["wrong"] = hint
    give.__annotations__["return"] = hint
    with pytest.raises(BadSettings, match=rf"task take: parameter `wrong` can't be kept as JSON: .*{why}"):
        fresh.task(take)
    with pytest.raises(BadSettings, match=rf"task give: what it returns can't be kept as JSON: .*{why}"):
        fresh.task(give)
    assert not fresh.tasks


def test_a_method_is_refused_when_it_is_declared() -> None:
    with pytest.raises(BadSettings, match="task sell: it is a method, and a worker has no object to call it on"):

        class Shop:
            @app.task
            def sell(self, x: int) -> None: ...

    class Kiosk:
        @app.task
        @staticmethod
        def hand_out(x: int) -> None: ...

    assert Kiosk.hand_out.bind(1).new.args == b'{"x":1}'


def test_a_context_that_does_not_come_first_is_refused() -> None:
    def by_name(x: int, ctx) -> None: ...  # type: ignore[no-untyped-def]

    def by_hint(x: int, *, me: JobContext) -> None: ...

    for function, name in ((by_name, "ctx"), (by_hint, "me")):
        with pytest.raises(BadSettings, match=f"the context must be its first parameter; move `{name}` there"):
            app.task(function)


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(BadSettings, match="a lambda has no name to store its jobs under"):
        app.task(lambda x: None)
    assert app.task(name="named")(lambda x: None).name == "named"


def test_what_is_no_function_is_refused() -> None:
    untyped: Any = app.task()
    for handler in (Plain, partial(max, 1), 5):
        with pytest.raises(BadSettings, match="HF1111 @task is for functions, not for "):
            untyped(handler)
    with pytest.raises(BadSettings, match="HF1111 task max: its parameters can't be told"):
        untyped(max)
