"""Each figure is read several times; the median is reported, and how far the readings lie apart."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

Reading = float | dict[str, float]


class Readings:
    def __init__(self) -> None:
        self._all: dict[str, list[Any]] = {}

    def add(self, name: str, reading: Reading) -> None:
        self._all.setdefault(name, []).append(reading)

    def medians(self) -> dict[str, Any]:
        return self._each(statistics.median)

    def spread(self) -> dict[str, Any]:
        return self._each(lambda values: {"min": min(values), "max": max(values)})

    def _each(self, of: Callable[[Sequence[float]], Any]) -> dict[str, Any]:
        return {
            name: {part: of([reading[part] for reading in readings]) for part in readings[0]}
            if isinstance(readings[0], dict)
            else of(readings)
            for name, readings in self._all.items()
        }
