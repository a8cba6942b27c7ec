"""Draws what `top` shows: tables one below the other, as many rows and columns of each as there is room for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from holdfast.cli.frame import Document
from holdfast.cli.sections import sections_of
from holdfast.cli.table import Section
from holdfast.harmless import harmless

SORTS = ("age", "name", "size")
ENDLESS = 100_000  # rows of a screen that has no end


@dataclass(slots=True)
class View:
    """How it is looked at: what people chose, and what is to be said beside the data."""

    sort: str = SORTS[0]
    said: str = ""  # in the first line
    trouble: str = ""
    keys: str = ""
    bars: bool = True


def draw(frame: Document | None, view: View, width: int, height: int = ENDLESS) -> Group:
    """The whole screen. Sections share its height: each gets the same, and what one does not need the others have."""
    lines: list[Text | Table] = [_first_line(frame, view, width if height < ENDLESS else 0)]
    below = [_line(view.keys, "dim")] if view.keys else []
    sections: list[Section] = []
    if frame is not None:
        sections = [section for section in sections_of(frame, view.sort, bars=view.bars) if section.rows]
        if not any(worker["alive"] for worker in frame["workers"]):
            lines.append(_line("no worker is up" if sections else "nothing waits, and no worker is up", "bold red"))
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
    """Rows for each: none gets more than it wants, and none goes short while another has more than it."""
    given = [0] * len(wanted)
    while room > 0 and (hungry := [number for number, rows in enumerate(wanted) if given[number] < rows]):
        for number in hungry[:room]:
            given[number] += 1
        room -= min(room, len(hungry))
    return given


def _first_line(frame: Document | None, view: View, width: int) -> Text:
    words = ["holdfast top"]
    if frame is not None:
        at = datetime.fromisoformat(frame["at"])
        slots = sum(worker["slots"] for worker in frame["workers"] if worker["alive"])
        words += [f"{at:%H:%M:%S} UTC", f"{frame['running_in_all']:,} running, {slots:,} slots"]
    words += [view.said] if view.said else []
    words += [frame["url"]] if frame is not None else []
    line = _line("  ".join(words), "reverse" if width else "bold")
    if width:
        line.truncate(width, overflow="ellipsis", pad=True)
    return line


def _line(text: str, style: str) -> Text:
    return Text(harmless(text), style=style, no_wrap=True, overflow="ellipsis")
