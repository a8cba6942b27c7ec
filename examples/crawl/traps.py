"""Addresses without end: sites that make up new ones for whoever asks. What looks like that is skipped, and listed with
the reason, so that people can tell."""

from __future__ import annotations

import re
from collections import Counter

from examples.crawl.urls import LONGEST, Address

MOST_REPEATS = 10  # of the same part in a path: /a/b/a/b/a/b/… is a link gone wrong
MOST_PARTS = 100  # of a path
LONGEST_CHAIN = 1_000  # pages, each found on one of the same form: /page/1 leads to /page/2 leads to /page/3
LONGEST_CALENDAR = 100  # the same, of addresses that name a month or a day
MONTH = r"(?<![a-z])(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}(?![a-z])"
DATED = re.compile(
    rf"(?<!\d)(19|20|21)\d\d([-/_.]?(0?[1-9]|1[0-2]|{MONTH})(?!\d)|.*\bmonth\b)|\b(year|month|week|day|date)=",
    re.IGNORECASE,
)
VARIES = re.compile(rf"[0-9a-f]{{8}}(-?[0-9a-f]{{4,}})*|\d+|{MONTH}", re.IGNORECASE)


def shape(address: Address) -> str:
    """What addresses have in common that differ by their numbers, ids or months only."""
    return VARIES.sub("#", address.url)


def chain(address: Address, behind: dict[str, int]) -> int:
    """How many pages in a row were each found on one of the same form. `behind`: the forms of the page on which it was
    found and of the one before that, with their own numbers."""
    return behind.get(shape(address), -1) + 1


def trap(address: Address, chain: int) -> str | None:
    """Why this address is taken for one without end; None: it is not."""
    if len(address.url) > LONGEST:
        return f"the address has more than {LONGEST:,} characters"
    parts = [part for part in address.path.split("/") if part]
    if len(parts) > MOST_PARTS:
        return f"the path has more than {MOST_PARTS} parts"
    if parts and (most := Counter(parts).most_common(1)[0])[1] > MOST_REPEATS:
        return f"the path repeats {most[0]!r:.60} {most[1]} times"
    if chain > LONGEST_CALENDAR and DATED.search(address.url):
        return f"a calendar: {chain} dates in a row"
    if chain > LONGEST_CHAIN:
        return f"{chain} pages in a row that differ by a number"
    return None
