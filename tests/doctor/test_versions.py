"""Which versions are told."""

from __future__ import annotations

import pytest

from holdfast.doctor import Level, postgres, sqlite


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ((3, 40, 1), Level.WARNING), ((3, 44, 5), Level.WARNING), ((3, 44, 6), Level.OK), ((3, 45, 0), Level.WARNING),
        ((3, 50, 6), Level.WARNING), ((3, 50, 7), Level.OK), ((3, 51, 2), Level.WARNING), ((3, 51, 3), Level.OK),
        ((3, 53, 0), Level.OK),
    ],
)  # fmt: skip
def test_libraries_with_the_wal_reset_bug_are_told(version: tuple[int, ...], level: Level) -> None:  # F36
    assert sqlite.judged(version).level is level


@pytest.mark.parametrize(("version", "level"), [(150004, Level.ERROR), (160000, Level.OK), (180004, Level.OK)])
def test_servers_before_16_are_too_old(version: int, level: Level) -> None:
    assert postgres.judged(version, "x").level is level
