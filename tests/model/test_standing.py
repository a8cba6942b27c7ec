"""The filter of a pause: what it may say, and its one text."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model.filter import BadFilter, parse
from holdfast.model.pause_filter import LONGEST, meant, text


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("args.customer:42", "args.customer:42"),
        ("args.b:1 queue:news,mail task:sync args.a:2", "task:sync queue:mail,news args.a:2 args.b:1"),
        ('args.name:"Ana, \\"Bo\\""', 'args.name:"Ana, \\"Bo\\""'),
        ("args.user.id:7 args.user.id:7", "args.user.id:7"),
        ({"n": 42, "dry": True, "no": None, "name": "a b"}, 'args.dry:true args.n:42 args.name:"a b" args.no:null'),
        ({"user.id": "x"}, "args.user.id:x"),
    ],
)  # fmt: skip
def test_a_filter_written_otherwise_is_the_same_pause(given: Any, kept: str) -> None:
    filter = meant(given)
    assert text(filter) == kept
    assert meant(kept) == filter == meant(text(filter))
    assert parse(kept).args == filter.args


def test_queue_and_task_beside_it_are_part_of_it() -> None:
    assert text(meant("args.a:1", queue="mail", task="sync")) == "task:sync queue:mail args.a:1"
    assert text(meant({}, queue="mail", task="a b")) == 'task:"a b" queue:mail'
    with pytest.raises(BadFilter, match="queue is given in the filter and beside it"):
        meant("queue:mail", queue="mail")


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("", "'' says nothing"),
        ({}, "says nothing"),
        ("state:failed args.a:1", "by args.NAME:, task: and queue:, and 'state:failed args.a:1' has more than that"),
        ("since:1h", "has more than that"),
        ("agrs.a:1", "there is no qualifier"),
        (42, "where is a filter"),
        ({"a": [1]}, "'a' is compared with a text, a number"),
        ({"no name": 1}, "is no filter"),
    ],
)
def test_what_a_pause_can_not_mean_is_said(given: Any, complaint: str) -> None:
    with pytest.raises(BadFilter, match=complaint):
        meant(given)


def test_a_filter_too_long_for_an_index_is_refused() -> None:
    with pytest.raises(BadFilter, match=f"at most {LONGEST} characters, this one {LONGEST + 1}"):
        text(meant({"a": "x" * (LONGEST - 6)}))
    assert len(text(meant({"a": "x" * (LONGEST - 7)}))) == LONGEST
