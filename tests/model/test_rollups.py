"""How histograms are made and read."""

from __future__ import annotations

import pytest

from holdfast.model.rollups import BOUNDS, LABELS, Bucket, Count, bucket, histogram, percentile


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
    assert histogram(counts, "run") == {"30": (5, 100.0)}


def spread(**buckets: tuple[int, float]) -> dict[str, Bucket]:
    """Buckets, given as how many durations each holds and their mean."""
    return {label.strip("_"): Bucket(n, n * mean) for label, (n, mean) in buckets.items()}


@pytest.mark.parametrize(
    ("buckets", "p", "expected"),
    [
        (spread(_30=(100, 20.0)), 50, 20.0),
        (spread(_30=(100, 20.0)), 95, 29.0),
        (spread(_30=(50, 20.0), _100=(50, 65.0)), 50, 30.0),
        (spread(_30=(50, 20.0), _100=(50, 65.0)), 95, 93.0),
        (spread(_1=(10, 0.5)), 0, 0.0),
        (spread(_100000=(3, 31_000.0)), 95, 31_900.0),
        (spread(_100000=(3, 99_000.0)), 5, 98_100.0),
        (spread(_30=(1, 20.0), inf=(99, 7_200_000.0)), 100, 10_800_000.0),
        (spread(_30=(1, 9.9)), 95, 10.0),
    ],
)
def test_percentiles_lie_around_the_mean_of_their_bucket(buckets: dict[str, Bucket], p: float, expected: float) -> None:
    """Of three attempts of 31 s each, none took 97 s, although the bucket reaches so far."""
    assert percentile(buckets, p) == pytest.approx(expected)


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile({}, 95) is None
