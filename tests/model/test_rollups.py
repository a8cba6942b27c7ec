"""How histograms are made and read."""

from __future__ import annotations

import pytest

from holdfast.model.rollups import BOUNDS, LABELS, Count, bucket, histogram, percentile


@pytest.mark.parametrize(
    ("milliseconds", "label"),
    [(0, "1"), (0.999, "1"), (1, "3"), (29_999.9, "30000"), (30_000, "100000"), (3_599_999, "3600000"), (1e12, "inf")],
)
def test_a_bucket_holds_what_took_less_than_its_bound(milliseconds: float, label: str) -> None:
    assert bucket(milliseconds) == label


def test_the_bounds_grow_and_thirty_seconds_is_one() -> None:
    assert list(BOUNDS) == sorted(set(BOUNDS))
    assert 30_000 in BOUNDS
    assert 12 <= len(LABELS) <= 16


def test_a_histogram_has_all_buckets_of_its_kind() -> None:
    counts = [
        Count(None, "q", "a", "run", "30", 2, 40.0),
        Count(None, "q", "b", "run", "30", 3, 60.0),
        Count(None, "q", "a", "wait", "30", 9, 90.0),
    ]
    found = histogram(counts, "run")
    assert list(found) == list(LABELS)
    assert {label: n for label, n in found.items() if n} == {"30": 5}


def test_percentiles_lie_on_a_line_within_the_bucket() -> None:
    assert percentile({"30": 100}, 50) == 20.0
    assert percentile({"30": 50, "100": 50}, 50) == 30.0
    assert percentile({"30": 50, "100": 50}, 95) == 93.0
    assert percentile({"1": 10}, 0) == 0.0
    assert percentile({"30": 1, "inf": 99}, 99) == 3_600_000.0
    assert percentile({}, 95) is None
    assert percentile(dict.fromkeys(LABELS, 0), 95) is None
