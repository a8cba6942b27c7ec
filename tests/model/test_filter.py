"""The filter grammar: what a text means, and what is said of a wrong one."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import BadArguments
from holdfast.model.filter import ALL, QUALIFIERS, BadFilter, Filter, as_json, parse


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", ALL),
        ("  ", ALL),
        ("state:failed queue:mail", Filter(states=("failed",), queues=("mail",))),
        ("state:failed,scheduled", Filter(states=("failed", "scheduled"))),
        ("task:audit tag:x tag:y", Filter(tasks=("audit",), tags=("x", "y"))),
        ("since:90m", Filter(since=timedelta(minutes=90))),
        ("since:2026-01-31", Filter(since=datetime(2026, 1, 31, tzinfo=UTC))),
        ("since:2026-01-31T12:00+02:00", Filter(since=datetime(2026, 1, 31, 10, tzinfo=UTC))),
        ('error:"connection refused"', Filter(error="connection refused")),
        (r'error:"say \"no\", \\ then"', Filter(error='say "no", \\ then')),
        ('queue:"a,b",c', Filter(queues=("a,b", "c"))),
        ("args.user_id:42 args.user.plan:x", Filter(args=((("user_id",), "42"), (("user", "plan"), "x")))),
        ("id:1,2,3 key:k worker:w1", Filter(ids=("1", "2", "3"), keys=("k",), workers=("w1",))),
        ("key:https://example.org/a?b", Filter(keys=("https://example.org/a?b",))),
    ],
)
def test_a_text_means(text: str, meant: Filter) -> None:
    assert parse(text) == meant
    assert bool(meant) == bool(text.strip())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("failed", "'failed' is no filter: write qualifier:value, perhaps 'state:failed'"),
        ("state:failed sate:x", "there is no qualifier 'sate', perhaps 'state'"),
        ("state:fialed", "there is no state 'fialed', perhaps 'failed'"),
        ("state:", "'state:' has no value"),
        ('state:""', "has no value"),
        ("state:failed state:queued", "state is given twice"),
        ("since:soon", "since:soon is no time"),
        ("since:-1h", "since:-1h is no time"),
        ("since:9999999w", "is no time"),
        ("error:a,b", "error takes one value"),
        ("args:3", "there is no qualifier 'args'"),
        ("args.:3", "names no argument"),
        ('error:"open', "is no filter"),
        ("42", "'42' is no filter: write qualifier:value, perhaps 'id:42'"),
        ("queue mail", "'queue' is no filter: write qualifier:value, as in 'queue:…'"),
        ("since:0001-01-01T00:00+14:00", "is no time"),
        ("queue:a\x00b", "not a character"),
        ("queue:\udc80", "not a character"),
        ("error:connection refused", "'refused' is no filter"),
    ],
)
def test_a_wrong_word_is_named(text: str, said: str) -> None:
    with pytest.raises(BadFilter) as caught:
        parse(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("HF1203 ")


@pytest.mark.parametrize(
    "text",
    [
        "error:" + "%_" * 1000, "tag:" + "x" * 1001, "args." + ".".join("a" * 600) + ":1", "x" * 500_000,
        "key:" + "k" * 500_000, "x" * 500_000 + ":1", " ".join(f"tag:t{n}" for n in range(101)),
        'error:"' + '\\\\' * 100_000, "queue:a queue:" + ",".join("ab" * 50_000),
    ],
)  # fmt: skip
def test_a_filter_that_is_too_long_is_refused_in_few_words(text: str) -> None:
    with pytest.raises(BadFilter) as refused:
        parse(text)
    assert len(str(refused.value)) < 400


def test_many_ids_are_a_filter() -> None:
    assert len(parse("key:" + "k" * 1000 + " id:" + ",".join(map(str, range(100_000)))).ids) == 100_000


def test_an_error_lists_the_qualifiers() -> None:
    with pytest.raises(BadArguments) as caught:
        parse("color:red")
    for qualifier in QUALIFIERS:
        assert qualifier in str(caught.value)


def test_words_beside_the_filter_narrow_it_once() -> None:
    assert parse("tag:x").narrowed(state="failed", task="audit") == parse("state:failed task:audit tag:x")
    with pytest.raises(BadFilter, match="say it once"):
        parse("queue:a").narrowed(queue="a")


@given(st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=1))
def test_any_value_can_be_quoted(value: str) -> None:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    assert parse(f'state:failed key:"{quoted}" tag:x') == Filter(states=("failed",), keys=(value,), tags=("x",))


@given(st.text())
def test_any_text_is_a_filter_or_refused_in_words(text: str) -> None:
    with suppress(BadFilter):
        parse(text)


def test_a_value_may_stand_for_a_text_or_what_it_says() -> None:
    assert as_json("42") == ('"42"', "42")
    assert as_json("true") == ('"true"', "true")
    assert as_json("x") == ('"x"',)
    assert as_json('"x"') == ('"\\"x\\""',)


def test_the_row_of_an_adopted_table() -> None:
    assert parse("source:audits row:17,18") == Filter(sources=("audits",), rows=("17", "18"))
