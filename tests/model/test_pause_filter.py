"""The filter of a pause: what it may say, its one text, and which jobs it means."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.model.filter import BadFilter, parse
from holdfast.model.pause_filter import LONGEST, PauseFilter, meant, pause_meaning, pause_name, pause_of


@pytest.mark.parametrize(
    ("given", "args", "kept"),
    [
        ("args.customer:42", {}, "args.customer:42"),
        ("args.b:1 queue:news,mail task:sync args.a:2", {}, "task:sync queue:mail,news args.a:2 args.b:1"),
        ('args.name:"Ana, \\"Bo\\""', {}, 'args.name:"Ana, \\"Bo\\""'),
        ("args.user.id:7 args.user.id:7", {}, "args.user.id:7"),
        ("", {"n": 42, "dry": True, "no": None, "s": "a b"}, 'args.dry:true args.n:42 args.no:null args.s:"a b"'),
        ('task:"a b"', {"user.id": "x"}, 'task:"a b" args.user.id:x'),
    ],
)  # fmt: skip
def test_a_filter_written_otherwise_is_the_same_pause(given: str, args: dict[str, Any], kept: str) -> None:
    filter = meant(given, args)
    assert pause_name(filter) == kept
    assert meant(kept) == filter == meant(pause_name(filter))
    assert parse(kept).args == filter.args


@pytest.mark.parametrize(
    ("given", "args", "complaint"),
    [
        ("", {}, "'' says nothing"),
        (
            "state:failed args.a:1",
            {},
            "by args.NAME:, task: and queue:, and 'state:failed args.a:1' has more than that",
        ),
        ("since:1h", {}, "has more than that"),
        ("agrs.a:1", {}, "there is no qualifier"),
        (42, {}, "a filter is a text"),
        ("", {"a": [1]}, "'a' is compared with a text, a number"),
        ("", {"no name": 1}, "is no filter"),
    ],
)
def test_what_a_pause_can_not_mean_is_said(given: Any, args: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadFilter, match=complaint):
        meant(given, args)


def test_a_filter_too_long_for_an_index_is_refused() -> None:
    with pytest.raises(BadFilter, match=f"at most {LONGEST} characters, this one {LONGEST + 1}"):
        pause_name(meant("", {"a": "x" * (LONGEST - 6)}))
    assert len(pause_name(meant("", {"a": "x" * (LONGEST - 7)}))) == LONGEST


def means(name: str, args: bytes, queue: str = "mail", task: str = "sync") -> bool:
    pause = PauseFilter.named(name)
    assert pause is not None
    return pause.means(queue, task, args)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (b'{"a":42}', True),
        (b'{"a":"42"}', True),
        (b'{ "b":{}, "a" : 42 }', True),
        (b'{"a":42.0}', False),
        (b'{"a":[42]}', False),
        (b'{"a":{"a":42}}', False),
        (b'{"A":42}', False),
        (b"{}", False),
        (b"[]", False),
        (b"42", False),
        (b"", False),
        (b"{", False),
        (b'{"a":42', False),
        (b'{"a":42,"b":"\\ud800"}', False),
        (b"\xff", False),
        (b'{"a":' * 5000, False),
    ],
)  # fmt: skip
def test_which_arguments_are_meant(args: bytes, expected: bool) -> None:
    assert means("args.a:42", args) is expected


def test_a_path_leads_into_objects_and_lists() -> None:
    assert means("args.a.b.c:x", b'{"a":{"b":{"c":"x"}}}')
    assert means("args.a.1:x", b'{"a":["y","x"]}')
    assert means("args.a.1:x", b'{"a":{"1":"x"}}')
    assert not means("args.a.2:x", b'{"a":["y","x"]}')
    assert not means("args.a.b:x", b'{"a":["x"]}')


def test_queue_and_task_must_be_among_those_named() -> None:
    for name, expected in {
        "queue:mail,news args.a:1": True, "queue:news args.a:1": False, "task:sync queue:mail": True,
        "task:other queue:mail": False,
    }.items():  # fmt: skip
        assert means(name, b'{"a":1}') is expected


def test_of_several_the_one_whose_name_comes_first_holds() -> None:
    pauses = [pause for name in ("args.b:1", "args.a:1", "args.c:1") if (pause := PauseFilter.named(name))]
    found = pause_meaning("q", "t", b'{"c":1,"b":1}', pauses)
    assert found is not None
    assert found.hold == "pause:args.b:1"
    assert pause_of(found.hold) == "args.b:1"
    assert pause_meaning("q", "t", b'{"d":1}', pauses) is None


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True)


@given(path=st.lists(names, min_size=1, max_size=4), value=scalars, others=st.dictionaries(names, scalars, max_size=3))
def test_a_job_with_the_value_at_the_path_is_meant_and_with_another_is_not(
    path: list[str], value: Any, others: dict[str, Any]
) -> None:
    text_or_value = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    assume(text_or_value and "\x00" not in text_or_value)
    document: Any = value
    for name in reversed(path):
        document = {**others, name: document}
    pause = PauseFilter.named(pause_name(meant("", {".".join(path): value})))
    assert pause is not None
    assert pause.means("q", "t", msgspec.json.encode(document))
    other: Any = "another " + text_or_value
    for name in reversed(path):
        other = {**others, name: other}
    assert not pause.means("q", "t", msgspec.json.encode(other))


@given(args=st.binary(max_size=200))
def test_whatever_the_arguments_are_judging_them_raises_nothing(args: bytes) -> None:
    assert means("args.a.b:42", args) in (True, False)
