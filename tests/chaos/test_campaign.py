"""A short round of the campaign on each engine, as `make chaos` runs it for minutes: nothing is lost, doubled, charged
wrongly or left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import run
from tests.chaos.liveness import BY_LOAD

ROOT = Path(__file__).parents[2]
SECONDS = 25.0  # under fire
SLACK = 6.0  # bars for time are for a machine that has nothing else to do: `make chaos` judges by them as they are


@pytest.mark.parametrize(("engine", "seed"), [("sqlite", 1), ("postgres", 2)])
def test_a_short_round_finds_nothing(engine: str, seed: int, tmp_path: Path) -> None:
    result = run(engine, seed, SECONDS, tmp_path / "round", ROOT, slack=SLACK)
    assert not [violation for violation in result.violations if violation.rule not in BY_LOAD], result.page
