"""Which versions are told."""

from __future__ import annotations

import pytest

from holdfast.doctor import Level, sqlite


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ((3, 40, 1), Level.WARNING), ((3, 44, 5), Level.WARNING), ((3, 44, 6), Level.OK), ((3, 45, 0), Level.WARNING),
        ((3, 50, 6), Level.WARNING), ((3, 50, 7), Level.OK), ((3, 51, 2), Level.WARNING), ((3, 51, 3), Level.OK),
        ((3, 53, 0), Level.OK),
    ],
)  # fmt: skip
def test_libraries_with_the_wal_reset_bug_are_told(version: tuple[int, ...], level: Level) -> None:
    assert sqlite.judged(version).level is level
