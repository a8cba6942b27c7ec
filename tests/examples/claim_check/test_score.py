"""The score of every report there can be, against exact arithmetic."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from itertools import product

import pytest

from examples.claim_check.score import bunk_score

STEPS = [n / 2 for n in range(21)]
WEIGHTS = [Decimal("0.4"), Decimal("0.25"), Decimal("0.25"), Decimal("0.10")]


def test_every_score_is_the_exact_one_rounded_to_the_nearest_half_with_ties_up() -> None:
    parts = [{step: weight * Decimal(step) for step in STEPS} for weight in WEIGHTS]
    reports = ties = wrong_with_floats = 0
    for he, at, mo, pv in product(STEPS, repeat=4):
        halves = 2 * (parts[0][he] + parts[1][at] + parts[2][mo] + parts[3][pv])
        right = float(halves.quantize(Decimal(1), ROUND_HALF_UP) / 2)
        assert bunk_score(he, at, mo, pv) == right, (he, at, mo, pv)
        reports += 1
        ties += halves % 1 == Decimal("0.5")
        wrong_with_floats += round(2 * (0.4 * he + 0.25 * at + 0.25 * mo + 0.10 * pv)) / 2 != right
    assert (reports, ties, wrong_with_floats) == (194_481, 9_832, 4_482)


@pytest.mark.parametrize("subscore", [-0.5, 10.5, 0.25, 7.3, float("nan"), float("inf")])
@pytest.mark.parametrize("place", range(4))
def test_what_is_no_subscore_has_no_score(subscore: float, place: int) -> None:
    subscores = [5.0, 5.0, 5.0, 5.0]
    subscores[place] = subscore
    with pytest.raises(ValueError, match=r"0 to 10 in steps of 0\.5"):
        bunk_score(*subscores)
