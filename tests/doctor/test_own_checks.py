"""What only the application knows of, it checks itself."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import Holdfast
from holdfast.doctor import Level
from holdfast.settings import Settings


def test_the_applications_own_checks_come_last(healthy: Settings) -> None:
    with Holdfast(healthy.url, schema=healthy.schema) as hf:

        @hf.doctor_check
        def tools() -> Iterator[str]:
            yield "soffice is not installed"
            yield "its fonts are missing"

        @hf.doctor_check
        def disk() -> str:
            return "/mnt is full"

        @hf.doctor_check
        def broken() -> None:
            raise OSError("no such host")

        @hf.doctor_check
        def nothing() -> None: ...

        found = hf.doctor()
    assert [(f.level, f.code, f.found) for f in found[-5:]] == [
        (Level.ERROR, "HF4601", "tools: soffice is not installed"),
        (Level.ERROR, "HF4601", "tools: its fonts are missing"),
        (Level.ERROR, "HF4601", "disk: /mnt is full"),
        (Level.WARNING, "HF4601", "broken could not look: OSError: no such host"),
        (Level.OK, "HF4601", "nothing: nothing is wrong"),
    ]
    assert all(f.code != "HF4601" for f in found[:-5])


def test_they_are_asked_even_if_the_database_is_away() -> None:
    hf = Holdfast("sqlite:////nowhere/jobs.db")
    hf.doctor_check(lambda: "the templates are gone")
    assert [f.level for f in hf.doctor()] == [Level.ERROR, Level.ERROR]
