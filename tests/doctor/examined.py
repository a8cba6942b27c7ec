"""What the tests of the doctor share."""

from __future__ import annotations

from holdfast.doctor import Finding, Level, Thresholds, examine
from holdfast.settings import Settings

OF_THE_LIBRARY = "HF4002"  # says what SQLite this Python has: no fault of the database


def complaints(settings: Settings, **limits: float) -> list[Finding]:
    """What is not in order."""
    found = examine(settings, Thresholds(**limits))  # type: ignore[arg-type]
    return [finding for finding in found if finding.level is not Level.OK and finding.code != OF_THE_LIBRARY]


def only(settings: Settings, **limits: float) -> Finding:
    [finding] = complaints(settings, **limits)
    assert finding.meaning
    assert finding.fix
    return finding
