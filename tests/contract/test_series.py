"""What charts show is what was counted, by the stretches and lines that a chart has."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.model.outcome import Outcome
from holdfast.model.series import GRAINS, SPANS, SPLITS, Series, Span, Split, began, series
from holdfast.store.base import Store
from tests.factories import HOUR, MINUTE, Clock, claim, new_job

DAY = 24 * HOUR
AGO: dict[Span, float] = {"hour": 30 * MINUTE, "day": 20 * HOUR, "week": 6 * DAY, "month": 29 * DAY}


def read(store: Store, span: Span, by: Split = "outcome") -> Series:
    now = store.reads.now()
    grain, length, _ = GRAINS[span]
    rows = store.rollups.series(grain, length, began(span, now)[0], by_queue=by == "queue")
    return series(span, by, rows, now)


def jobs(found: Series) -> dict[str, dict[datetime, float]]:
    """How many jobs a minute each line has, where it has any."""
    return {
        line.name: {at: value for at, value in zip(found.at, line.values, strict=True) if value} for line in found.jobs
    }


def some_jobs(store: Store, clock: Clock, queue: str = "mail", count: int = 30, *, failed: int = 10) -> None:
    """Each waits for two seconds and runs for 40 ms; the first ones fail."""
    list(store.enqueue_many(new_job(queue=queue, max_attempts=1) for _ in range(count)))
    clock.advance(2)
    held = claim(store, count).jobs
    clock.advance(0.04)
    outcomes = [Outcome("fail" if n < failed else "succeed", job.id, job.fence) for n, job in enumerate(held)]
    store.exchange(outcomes, None)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("span", SPANS)
def test_a_chart_shows_when_jobs_came_and_ended(store: Store, clock: Clock, span: Span, folded: bool) -> None:
    clock.advance(90 * DAY + 7)
    some_jobs(store, clock)
    at = clock.now
    if folded:
        store.rollups.fold()
    clock.advance(AGO[span])
    seconds, count = GRAINS[span][1:]
    found = read(store, span)
    assert (len(found.at), found.at[-1] <= clock.now < found.at[-1] + timedelta(seconds=seconds)) == (count, True)
    [there] = [moment for moment in found.at if moment <= at < moment + timedelta(seconds=seconds)]
    minutes = seconds / 60
    assert jobs(found) == {
        "succeeded": {there: round(20 / minutes, 2)}, "failed": {there: round(10 / minutes, 2)}, "cancelled": {},
        "enqueued": {there: round(30 / minutes, 2)},
    }  # fmt: skip
    index = found.at.index(there)
    wait, run = ({line.name: line.values[index] for line in lines} for lines in (found.wait, found.run))
    assert wait == pytest.approx({"p50": 2000.0, "p95": 2900.0}, rel=1e-3)
    assert run == pytest.approx({"p50": 40.0, "p95": 49.0}, rel=1e-3), "near their mean, though the bucket ends at 100"
    assert all(line.values[index - 1] is None for line in (*found.wait, *found.run))


@pytest.mark.parametrize("span", SPANS)
def test_what_is_older_than_the_span_is_left_out(store: Store, clock: Clock, span: Span) -> None:
    clock.advance(90 * DAY)
    some_jobs(store, clock)
    store.rollups.fold()
    seconds, count = GRAINS[span][1:]
    clock.advance(seconds * (count + 1))
    assert not any(jobs(read(store, span)).values())


def test_queues_have_a_line_each_and_the_quietest_share_one(store: Store, clock: Clock) -> None:
    for n in range(9):
        some_jobs(store, clock, f"queue{n}", 10 + n, failed=n)
    store.rollups.fold()
    clock.advance(MINUTE)
    found = read(store, "hour", "queue")
    lines = {name: sum(values.values()) for name, values in jobs(found).items()}
    assert lines == {**{f"queue{n}": 10 + n for n in range(2, 9)}, "other queues": 10 + 11}
    assert [line.name for line in found.wait] == [line.name for line in found.run] == list(lines)
    for line in found.wait:
        assert max(value for value in line.values if value is not None) == pytest.approx(2900.0, rel=1e-3)


def test_the_stretch_that_is_not_over_is_left_out_until_its_rate_is_known(store: Store, clock: Clock) -> None:
    some_jobs(store, clock)
    [succeeded, *_] = read(store, "hour").jobs
    assert succeeded.values[-2:] == [0.0, None]
    clock.advance(28)  # it is half over
    [succeeded, *_] = read(store, "hour").jobs
    assert succeeded.values[-1] == pytest.approx(20 / 30 * 60, abs=0.1)


@pytest.mark.parametrize("by", SPLITS)
def test_nothing_is_shown_of_nothing(store: Store, by: Split) -> None:
    found = read(store, "month", by)
    assert not any(jobs(found).values())
    assert {value for line in (*found.wait, *found.run) for value in line.values} <= {None}
