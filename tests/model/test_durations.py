"""Durations are read and written in one way everywhere."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.durations import parse_duration, to_seconds
from holdfast.model.durations import dated, relative_to, running_duration, short_duration

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5h", 5400), ("30s", 30), ("15m", 900), ("1h 30m", 5400), ("7d", 604800), ("2w", 1209600)],
)  # fmt: skip
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "m", "1x", "-5s", "-1", "nan", "inf", "1h-", "6000w", "1 2", "1y", "1e300", "99999999999d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - callers say what was meant
        parse_duration(text)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("90s", 90), ("3h", 10800), ("1h30m", 5400), ("1h 30m", 5400), ("2d", 172800), ("500ms", 0.5), ("1.5m", 90),
        ("1w", 604800), (90, 90), (0.5, 0.5), (timedelta(minutes=2), 120), ("0s", 0),
    ],
)  # fmt: skip
def test_python_takes_text_numbers_and_timedeltas(given: Any, seconds: float) -> None:
    assert to_seconds(given) == seconds


@pytest.mark.parametrize(
    "wrong",
    ["", "3", "3 hours", "h", "-3h", -1, None, True, "3h and more", float("nan"), float("inf"), "m5", b"5m"],
)
def test_python_refuses_what_is_no_duration(wrong: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - callers say what was meant
        to_seconds(wrong)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.35, "350ms"),
     (1, "1s"), (60, "1m"), (90, "90s"), (120, "2m"), (5400, "90m"), (10_800, "3h"), (86_400, "1d")],
)  # fmt: skip
def test_a_duration_is_one_number_and_a_unit(seconds: float, text: str) -> None:
    assert short_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (9.94, "9.9s"), (59.9, "59s"), (61, "1:01"), (3599, "59:59"), (3660, "1h 01m"), (90_000, "1d 1h")],
)  # fmt: skip
def test_a_duration_on_a_screen_keeps_its_width(seconds: float, text: str) -> None:
    assert running_duration(seconds) == text


def test_a_moment_is_told_from_now() -> None:
    assert relative_to(NOW, NOW) == "0s ago"
    assert relative_to(NOW, NOW + timedelta(minutes=5)) == "in 5m"
    assert dated(NOW - timedelta(hours=3), NOW) == "2030-01-31 09:00:00 UTC (3h ago)"
