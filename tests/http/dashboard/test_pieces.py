"""Pure parts of pages: how tracebacks are taken apart, and lines drawn."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.http.dashboard import errors, render
from holdfast.http.dashboard.tracebacks import Part, parts
from holdfast.model.access import Access

NOW = datetime(2026, 11, 19, 12, 30, tzinfo=UTC)


def told(text: str) -> list[tuple[str, int]]:
    return [("mine" if part.mine else "folded" if part.folded else "text", part.folded) for part in parts(text)]


def raised() -> str:
    try:
        json.loads("{")
    except json.JSONDecodeError:
        return traceback.format_exc()
    raise AssertionError


def test_calls_of_the_standard_library_are_folded_and_the_users_stand_out() -> None:
    assert told(raised()) == [("text", 0), ("mine", 0), ("folded", 3), ("text", 0)]


def test_nothing_of_a_traceback_is_lost() -> None:
    text = raised()
    assert "\n".join(part.text for part in parts(text)) == text.rstrip("\n")


@pytest.mark.parametrize(
    "path",
    [
        "/srv/venv/lib/python3.12/site-packages/requests/api.py",
        "/usr/lib/python3/dist-packages/yaml.py",
        "/opt/python/lib/python3.11/json/decoder.py",
        r"C:\venv\Lib\site-packages\x.py",
        "<frozen importlib._bootstrap>",
    ],
)
def test_calls_of_installed_packages_are_folded_wherever_they_ran(path: str) -> None:
    text = (
        'Traceback (most recent call last):\n  File "/srv/app.py", line 1, in go\n    call()\n'
        f'  File "{path}", line 2, in call\n    raise ValueError\nValueError'
    )
    assert told(text) == [("text", 0), ("mine", 0), ("folded", 1), ("text", 0)]


def test_a_traceback_without_calls_of_the_user_is_not_folded() -> None:
    text = 'Traceback (most recent call last):\n  File "<string>", line 1, in x\n    y\nValueError: z'
    assert not any(part.folded for part in parts(text))
    assert "\n".join(part.text for part in parts(text)) == text


def test_groups_of_exceptions_and_texts_that_are_no_tracebacks_are_kept() -> None:
    try:
        raise ExceptionGroup("several", [ValueError("one"), KeyError("two")])
    except ExceptionGroup:
        text = traceback.format_exc()
    assert "\n".join(part.text for part in parts(text)) == text.rstrip("\n")
    assert any(part.mine for part in parts(text))
    for odd in ("", "\n", "boom", '  File "x", line 1, in y', "a\n\n  b\n" * 50):
        assert [part.text for part in parts(odd)] == [odd.rstrip("\n")]
    assert parts("boom") == [Part("boom")]


def test_a_sparkline_has_a_point_for_each_hour_and_its_peak_on_top() -> None:
    hour = NOW.replace(minute=0)
    drawn = errors.spark(Counter({hour: 10, hour - timedelta(hours=23): 5, hour - timedelta(hours=24): 99}), NOW)
    points = [tuple(map(float, point.split())) for point in drawn.removeprefix("M").split("L")]
    assert [points[0], points[1], points[-1]] == [(0, 11), (3.9, 20), (90, 2)]
    assert len(points) == 24
    assert errors.spark(Counter(), NOW) == ""


def test_instants_in_a_text_become_times_that_stay_true() -> None:
    made = render.instants(_context(), "due at 2026-11-19 12:31:00 UTC (in 60s); <b>")  # type: ignore[arg-type]
    assert made == (
        'due at 2026-11-19 12:31:00 UTC (<time datetime="2026-11-19T12:31:00+00:00" '
        'title="2026-11-19 12:31:00 UTC">in 1m</time>); &lt;b&gt;'
    )


def _context() -> dict[str, object]:
    return {"now": NOW, "whole": True, "access": Access("viewer")}
