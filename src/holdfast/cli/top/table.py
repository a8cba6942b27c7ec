"""Tables for a screen of any width: numbers are shown whole or not at all, texts are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

BAR = 12  # characters
GAP = 2  # between two columns
READABLE = 16  # characters a text is cut to before columns are left out

Row = dict[str, Any]
Cell = Text | ProgressBar | str


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    cell: Callable[[Row], Cell]
    right: bool = False
    elastic: bool = False  # a text, which may be cut where there is no room
    drop: int = 0  # columns with the highest number are left out first where there is no room; 0: never


@dataclass(frozen=True, slots=True)
class Section:
    title: str  # of its first column: what the rows are
    columns: Sequence[Column]
    rows: Sequence[Row]
    in_all: int | None = None  # if the rows are not all there are

    def table(self, most: int, width: int) -> Table:
        shown = self.rows[:most]
        in_all = len(self.rows) if self.in_all is None else max(self.in_all, len(self.rows))
        first = f"{in_all:,} {self.title}" if len(shown) == in_all else f"{len(shown):,} of {in_all:,} {self.title}"
        titles = [first, *(column.title for column in self.columns[1:])]
        cells = [[column.cell(row) for row in shown] for column in self.columns]
        natural = [max(_width(cell) for cell in [title, *column]) for title, column in zip(titles, cells, strict=True)]
        widths = fit(self.columns, natural, width)
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        for number, cut in widths.items():
            table.add_column(
                titles[number], justify="right" if self.columns[number].right else "left", no_wrap=True,
                overflow="ellipsis", width=cut,
            )  # fmt: skip
        for row in range(len(shown)):
            table.add_row(*(cells[number][row] for number in widths))
        return table


def fit(columns: Sequence[Column], natural: Sequence[int], width: int) -> dict[int, int]:
    """Which columns are shown, and how wide. Numbers are shown whole or not at all; texts are cut, the longest most."""
    kept = list(range(len(columns)))

    def least(number: int) -> int:
        return min(natural[number], READABLE) if columns[number].elastic else natural[number]

    def too_wide(widths: Iterable[int]) -> int:
        return sum(widths) + GAP * (len(kept) - 1) - width

    while too_wide(map(least, kept)) > 0 and any(columns[number].drop for number in kept):
        kept.remove(max(kept, key=lambda number: columns[number].drop))
    widths = {number: natural[number] for number in kept}
    for _ in range(too_wide(widths.values())):
        widest = max(kept, key=lambda number: (widths[number] > least(number), widths[number]))
        widths[widest] = max(1, widths[widest] - 1)
    return widths


def _width(cell: Cell) -> int:
    return BAR if isinstance(cell, ProgressBar) else cell_len(str(cell))
