"""The bunk score: one number from the four subscores.

`0.4 HE + 0.25 AT + 0.25 MO + 0.10 PV`, rounded to the nearest half, ties up. All in whole numbers: 9,832 of the 194,481
possible reports are ties, and with floats and `round` 4,482 of them would come out wrong."""

from __future__ import annotations


def bunk_score(he: float, at: float, mo: float, pv: float) -> float:
    """The score of subscores from 0 to 10 in steps of 0.5."""
    he2, at2, mo2, pv2 = (_halves(subscore) for subscore in (he, at, mo, pv))
    return (8 * he2 + 5 * at2 + 5 * mo2 + 2 * pv2 + 10) // 20 / 2


def _halves(subscore: float) -> int:
    halves = 2 * subscore
    if not 0 <= halves <= 20 or halves != int(halves):
        raise ValueError(f"a subscore is 0 to 10 in steps of 0.5, not {subscore}")
    return int(halves)
