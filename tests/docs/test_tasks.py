"""The page on tasks names every option there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import BadSettings, Holdfast
from holdfast.work.options import Options

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()


def test_every_option_of_a_task_is_on_the_page() -> None:
    with pytest.raises(BadSettings) as refused:
        Holdfast("sqlite:///never-opened.db").task(nonsense=1)(lambda: None)  # type: ignore[call-overload]
    options = re.findall(r"\w+", str(refused.value).partition("it takes ")[2])
    table = PAGE.partition("| option | default | meaning |")[2].partition("\n\n")[0]
    named = [
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition("|")[2].partition("|")[0])
    ]
    assert sorted(named) == sorted(options)


def test_every_option_of_an_enqueue_is_on_the_page() -> None:
    text = PAGE.partition("Options of `using`")[2].partition("\n\n")[0]
    assert set(Options.__annotations__) <= set(re.findall(r"`(\w+)`", text))
