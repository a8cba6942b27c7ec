"""Draws the screen of `top`: tables one below the other, each with as many rows and columns as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast.cli.top.document import Document
from holdfast.cli.top.sections import sections_of
from holdfast.cli.top.table import Section
from holdfast.harmless import harmless

SORTS = ("age", "name", "size")
MOST_ALERTS = 3  # that get a line each
ENDLESS = 100_000  # rows, where the output is no screen


@dataclass(slots=True)
class View:
    """What the user chose, and what to show beside the data."""

    sort: str = SORTS[0]
    status: str = ""  # in the first line
    trouble: str = ""
    keys: str = ""
    bars: bool = True


def draw(document: Document | None, view: View, width: int, height: int = ENDLESS) -> Group:
    """Draw the whole screen. Sections share its height equally; what one does not need, the others get."""
    lines: list[Text | Table] = [_first_line(document, view, width if height < ENDLESS else 0)]
    below = [_line(view.keys, "dim")] if view.keys else []
    sections: list[Section] = []
    if document is not None:
        sections = [section for section in sections_of(document, view.sort, bars=view.bars) if section.rows]
        if not any(worker["alive"] for worker in document["workers"]):
            lines.append(_line("no worker is up" if sections else "nothing waits, and no worker is up", "bold red"))
        alerts = document["alerts"]
        lines += [_line(f"alert: {alert['text']}", "bold red") for alert in alerts[:MOST_ALERTS]]
        if len(alerts) > MOST_ALERTS:
            lines.append(_line(f"and {len(alerts) - MOST_ALERTS} more alerts", "bold red"))
    if view.trouble:
        lines.append(_line(view.trouble, "bold red"))
    room = height - len(lines) - len(below)
    while sections and room < 3 * len(sections):  # a blank line, the titles, and a row
        sections.pop()
    room -= 2 * len(sections)
    shares = share(room, [len(section.rows) for section in sections])
    for section, most in zip(sections, shares, strict=True):
        lines += [Text(), section.table(most, width)]
    if below:  # at the foot of the screen
        lines += [Text()] * (room - sum(shares))
    return Group(*lines, *below)


def share(room: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each section gets: no more than it wants, and none gets less than another unless it wants less."""
    given = [0] * len(wanted)
    while room > 0 and (wanting := [number for number, rows in enumerate(wanted) if given[number] < rows]):
        for number in wanting[:room]:
            given[number] += 1
        room -= min(room, len(wanting))
    return given


def _first_line(document: Document | None, view: View, width: int) -> Text:
    words = ["holdfast top"]
    if document is not None:
        at = datetime.fromisoformat(document["at"])
        slots = sum(worker["slots"] for worker in document["workers"] if worker["alive"])
        words += [f"{at:%H:%M:%S} UTC", f"{document['running_in_all']:,} running, {slots:,} slots"]
    words += [view.status] if view.status else []
    words += [document["url"]] if document is not None else []
    line = _line("  ".join(words), "reverse" if width else "bold")
    if width:
        line.truncate(width, overflow="ellipsis", pad=True)
    return line


def _line(text: str, style: str) -> Text:
    return Text(harmless(text), style=style, no_wrap=True, overflow="ellipsis")
