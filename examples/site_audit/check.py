"""What a check is, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Literal

from selectolax.lexbor import LexborNode

from examples.site_audit.page import LONGEST_ELEMENT, Page, start_tag

Category = Literal["performance", "seo", "accessibility", "security"]
Severity = Literal["critical", "serious", "moderate", "minor", "info"]

MOST_FINDINGS = 50  # of one check; the last one then says how many more there are
LONGEST_TEXT = 300


class DoesNotApply(Exception):
    """There is nothing on the page that this check is about: it counts neither for nor against."""


@dataclass(frozen=True)
class Found:
    """What a check's function says."""

    severity: Severity
    text: str
    node: LexborNode | str | None = None  # the offending element, or its source


@dataclass(frozen=True)
class Finding:
    check: str
    category: Category
    severity: Severity
    text: str
    element: str | None


@dataclass(frozen=True)
class Outcome:
    """What became of one check."""

    check: str
    applies: bool
    findings: list[Finding]


@dataclass(frozen=True)
class Check:
    name: str
    category: Category
    weight: int
    title: str
    why: str


CHECKS: dict[str, Check] = {}
ON_PAGES: dict[str, Callable[[Page], Iterator[Found]]] = {}  # those that need no browser and no other page


def declare(name: str, category: Category, weight: int, title: str, why: str) -> Check:
    """A check that a tier of its own carries out."""
    assert name not in CHECKS
    CHECKS[name] = Check(name, category, weight, title, why)
    return CHECKS[name]


def check(
    category: Category, weight: int, title: str, why: str
) -> Callable[[Callable[[Page], Iterator[Found]]], Callable[[Page], Iterator[Found]]]:
    """Declares a check of one page: a function that yields what is wrong, and is called after the check."""

    def declared(function: Callable[[Page], Iterator[Found]]) -> Callable[[Page], Iterator[Found]]:
        name = function.__name__.replace("_", "-")
        declare(name, category, weight, title, why)
        ON_PAGES[name] = function
        return function

    return declared


def outcome(check: Check, found: Iterator[Found]) -> Outcome:
    """Go through what a check finds."""
    findings: list[Finding] = []
    more = 0
    try:
        for one in found:
            if len(findings) < MOST_FINDINGS:
                findings.append(_finding(check, one))
            else:
                more += 1
    except DoesNotApply:
        return Outcome(check.name, False, [])
    if more:
        findings.append(_finding(check, Found("info", f"… and {more:,} more of this kind")))
    return Outcome(check.name, True, findings)


def _finding(check: Check, found: Found) -> Finding:
    element = found.node if isinstance(found.node, str) or found.node is None else start_tag(found.node)
    return Finding(
        check.name, check.category, found.severity, cut(found.text, LONGEST_TEXT),
        None if element is None else cut(element, LONGEST_ELEMENT),
    )  # fmt: skip


def moment(date: str) -> float | None:
    """Of a header, in seconds since 1970. None: it is no date."""
    try:
        return parsedate_to_datetime(date.replace("-", " ")).timestamp()
    except (ValueError, OverflowError):
        return None


def cut(text: str, longest: int) -> str:
    """As it may be stored and shown: on one line, without what JSON in a database can't hold."""
    plain = " ".join(text[: longest * 4].replace("\0", "").split())
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
