"""Charts of counts: what a figure has to draw, and to tell in a table where it is not drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from holdfast.model.durations import short_duration
from holdfast.model.series import MATURE, Line, Series, Span

TITLES: dict[Span, str] = {"hour": "Hour", "day": "Day", "week": "Week", "month": "Month"}
SELDOM: dict[Span, float] = {"hour": 0.0, "day": 20.0, "week": 60.0, "month": 60.0}  # seconds between two reads
WIDTH, HEIGHT = 90, 22  # of a sparkline


@dataclass(frozen=True)
class Chart:
    """`unit`: what the values are, `jobs` a minute or `ms`. `colours`: the number of each line's colour.
    `empty`: why there are no lines, if there are none."""

    id: str
    title: str
    unit: str
    at: list[datetime]
    lines: list[Line]  # those in which anything happened
    colours: list[int]
    empty: str

    @property
    def drawn(self) -> bool:
        return bool(self.lines)

    @property
    def data(self) -> str:
        """For the script that draws it."""
        return json.dumps(
            {
                "unit": self.unit,
                "at": [int(at.timestamp()) for at in self.at],
                "lines": [
                    {"name": line.name, "colour": colour, "values": _rounded(line.values)}
                    for line, colour in zip(self.lines, self.colours, strict=True)
                ],
            },
            separators=(",", ":"),
        )

    @property
    def rows(self) -> list[tuple[datetime, list[float | None]]]:
        """For a table, the newest first; without those in which nothing happened."""
        columns = [line.values for line in self.lines]
        rows = [(at, [values[index] for values in columns]) for index, at in enumerate(self.at)]
        return [row for row in reversed(rows) if any(row[1])]


def charts(series: Series) -> list[Chart]:
    """A queue has the same colour in all of them, whatever is left out."""

    def chart(id: str, title: str, unit: str, lines: Sequence[Line]) -> Chart:
        colours = [colour for colour, line in enumerate(lines) if any(line.values)]
        return Chart(id, title, unit, series.at, [lines[colour] for colour in colours], colours, empty)

    empty = "Nothing happened in this time."
    if any(line.values[-1] is None for line in series.jobs) and any(any(line.values) for line in series.run):
        empty = f"Nothing to draw yet: a rate is known once {short_duration(series.seconds * MATURE)} were counted."

    by = "by queue" if series.by == "queue" else "by outcome"
    share = "p95 by queue" if series.by == "queue" else "p50 and p95"
    return [
        chart("chart-jobs", f"Jobs a minute, {by}", "jobs", series.jobs),
        chart("chart-wait", f"Wait until an attempt starts, {share}", "ms", series.wait),
        chart("chart-run", f"Run time of attempts, {share}", "ms", series.run),
    ]


def spark(values: Sequence[float | None]) -> str:
    """The path of a small line without axes; empty: nothing to draw."""
    known = [value or 0.0 for value in values if value is not None]
    top = max(known, default=0.0)
    if not top or len(known) < 2:
        return ""
    step = WIDTH / (len(known) - 1)
    points = [f"{index * step:.1f},{HEIGHT - 1 - value / top * (HEIGHT - 2):.1f}" for index, value in enumerate(known)]
    return "M" + "L".join(points)


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 2) for value in values]
