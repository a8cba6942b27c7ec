"""Attempts that wait for a slot: filled by the desk, emptied by slots; each is taken out once, by who comes first."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from holdfast.tasks.attempt import Attempt


class Waiting:
    """What runners share that keep such a line themselves."""

    def __init__(self) -> None:
        self._waiting: deque[Attempt] = deque()

    def waiting_since(self) -> float | None:
        try:
            return self._waiting[0].taken
        except IndexError:
            return None

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        back: list[Attempt] = []
        with suppress(IndexError):  # that was all
            while most is None or len(back) < most:
                back.append(self._waiting.pop())
        return back
