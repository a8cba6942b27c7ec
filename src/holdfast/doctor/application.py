"""Checks that the application brings itself."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.finding import Finding, error, ok, warning
from holdfast.tasks.hooks import DoctorCheck


def own(check: DoctorCheck) -> Iterator[Finding]:
    """What a check of the application says. One that raises has found nothing, and the others go on."""
    name = getattr(check, "__name__", repr(check))
    try:
        said = check()
        problems = [said] if isinstance(said, str) else list(said or ())
    except Exception as trouble:  # noqa: BLE001 - it is reported
        yield warning("HF4601", f"{name} could not look: {type(trouble).__name__}: {trouble}")
        return
    yield from (error("HF4601", f"{name}: {problem}") for problem in problems)
    if not problems:
        yield ok("HF4601", f"{name}: nothing is wrong")
