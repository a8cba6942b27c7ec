"""When crons fall due, and which missed ticks are made up for: against a brute force over every minute."""

from __future__ import annotations

import time
import zoneinfo
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import BadSettings
from holdfast.model import cron
from holdfast.model.cron import MOST_MISSED, CronRecord, Schedule, correlation_of, next_step, tick_of

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")


def at(text: str, zone: str = "UTC", fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


# -- next fires, by brute force ----------------------------------------------------------------------------------------


def brute(fields: dict[str, set[int]], fixed: bool, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """Every minute of the clock on the wall is looked at, one by one. A fixed time that is skipped in spring counts
    when the gap ends, one that comes twice in autumn counts once."""
    found = set[datetime]()
    moment = after.replace(second=0, microsecond=0) - 3 * HOUR
    tz = ZoneInfo(zone)
    seen = set[datetime]()
    previous: datetime | None = None
    while moment <= until:
        wall = moment.astimezone(tz).replace(tzinfo=None)
        skipped = [wall]
        if previous is not None and wall - previous > MINUTE:  # the gap: what lay in it counts now
            skipped += [previous + n * MINUTE for n in range(1, int((wall - previous) / MINUTE))]
        for local in skipped if fixed else [wall]:
            fits = (
                local.minute in fields["minute"]
                and local.hour in fields["hour"]
                and local.day in fields["day"]
                and local.month in fields["month"]
                and local.isoweekday() % 7 in fields["weekday"]
            )
            if fits and not (fixed and local in seen):
                found.add(moment)
        seen.add(wall)
        previous = wall
        moment += MINUTE
    return sorted(tick for tick in found if after < tick <= until)


def field(least: int, most: int) -> st.SearchStrategy[tuple[str, set[int]]]:
    whole = set(range(least, most + 1))
    some = st.sets(st.integers(least, most), min_size=1, max_size=4)
    return st.one_of(
        st.just(("*", whole)),
        st.integers(2, 20).map(lambda step: (f"*/{step}", set(range(least, most + 1, step)))),
        some.map(lambda values: (",".join(map(str, sorted(values))), values)),
        st.tuples(st.integers(least, most), st.integers(least, most)).map(
            lambda pair: (f"{min(pair)}-{max(pair)}", set(range(min(pair), max(pair) + 1)))
        ),
    )


# Around the changes of 2030: in Berlin on 31 March and 27 October, in New York on 10 March and 3 November.
STARTS = st.one_of(
    st.datetimes(datetime(2030, 3, 30), datetime(2030, 4, 1)),
    st.datetimes(datetime(2030, 10, 26), datetime(2030, 10, 28)),
    st.datetimes(datetime(2030, 3, 9), datetime(2030, 3, 11)),
    st.datetimes(datetime(2030, 11, 2), datetime(2030, 11, 4)),
    st.datetimes(datetime(2030, 1, 1), datetime(2030, 12, 31)),
).map(lambda moment: moment.replace(tzinfo=UTC))


@settings(max_examples=150, deadline=None)
@given(
    minute=field(0, 59), hour=field(0, 23), weekday=field(0, 6), zone=st.sampled_from(ZONES), start=STARTS
)  # fmt: skip
def test_ticks_are_those_a_brute_force_over_minutes_finds(
    minute: tuple[str, set[int]], hour: tuple[str, set[int]], weekday: tuple[str, set[int]], zone: str, start: datetime
) -> None:
    expression = f"{minute[0]} {hour[0]} * * {weekday[0]}"
    until = start + timedelta(hours=30)
    fields = {
        "minute": minute[1], "hour": hour[1], "weekday": weekday[1],
        "day": set(range(1, 32)), "month": set(range(1, 13)),
    }  # fmt: skip
    fixed = not minute[0].startswith("*") and not hour[0].startswith("*")
    expected = brute(fields, fixed, zone, start, until)
    schedule = Schedule(expression, zone)
    assert schedule.first(len(expected), start) == expected
    assert schedule.after(expected[-1] if expected else start) > until
    assert schedule.newest(3, start + timedelta(microseconds=1), until) == expected[-3:]
    assert schedule.newest(1, start + timedelta(microseconds=1), until) == expected[-1:]


@settings(max_examples=100, deadline=None)
@given(
    zone=st.sampled_from(ZONES), start=STARTS, expression=st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 */3 * * *"])
)
def test_from_wherever_one_looks_the_ticks_are_the_same(zone: str, start: datetime, expression: str) -> None:
    """A worker that looks in the middle of a repeated hour sees no tick that another saw an hour before."""
    schedule = Schedule(expression, zone)
    ticks = schedule.first(10, start)
    assert ticks == sorted(set(ticks))
    for minutes in range(0, 300, 17):
        later = start + minutes * MINUTE
        assert schedule.after(later) == next(tick for tick in schedule.ticks(start) if tick > later)


# -- daylight saving, written out --------------------------------------------------------------------------------------

SPRING = {"Europe/Berlin": "2030-03-31", "America/New_York": "2030-03-10"}
AUTUMN = {"Europe/Berlin": "2030-10-27", "America/New_York": "2030-11-03"}
REPEATED = {"Europe/Berlin": 2, "America/New_York": 1}  # the hour that comes twice; 2 is the one skipped in both


@pytest.mark.parametrize("zone", SPRING)
def test_a_fixed_time_that_spring_skips_is_run_when_the_gap_ends(zone: str) -> None:
    day = SPRING[zone]
    first, second = Schedule("30 2 * * *", zone).first(2, at(f"{day}T00:00", zone))
    assert first == at(f"{day}T03:00", zone)
    assert second.astimezone(ZoneInfo(zone)).strftime("%H:%M") == "02:30"
    assert second - first == timedelta(hours=23, minutes=30)


@pytest.mark.parametrize("zone", AUTUMN)
def test_a_fixed_time_that_autumn_repeats_is_run_once_the_first_time(zone: str) -> None:
    day, hour = AUTUMN[zone], REPEATED[zone]
    schedule = Schedule(f"30 {hour} * * *", zone)
    first, second = schedule.first(2, at(f"{day}T00:00", zone))
    assert first == at(f"{day}T0{hour}:30", zone, fold=0)
    assert second - first == timedelta(hours=25)
    assert schedule.after(at(f"{day}T0{hour}:10", zone, fold=1)) == second, "seen from within the repeated hour"


@pytest.mark.parametrize("zone", AUTUMN)
def test_what_recurs_within_the_hour_goes_by_elapsed_time(zone: str) -> None:
    for day in (SPRING[zone], AUTUMN[zone]):
        ticks = Schedule("*/30 * * * *", zone).first(12, at(f"{day}T00:00", zone))
        assert {b - a for a, b in pairwise(ticks)} == {timedelta(minutes=30)}


@pytest.mark.parametrize("zone", AUTUMN)
@pytest.mark.parametrize("expression", ["0 30 {hour} * * *", "*/30 {hour} * * *"])
def test_with_seconds_or_a_star_the_clock_on_the_wall_is_followed_as_it_is(zone: str, expression: str) -> None:
    """A time that does not exist is not run, one that comes twice is run twice."""

    def ran(hour: int, day: str) -> int:
        begin = at(f"{day}T00:00", zone)
        schedule = Schedule(expression.format(hour=hour), zone)
        return len([tick for tick in schedule.first(9, begin) if tick < at(f"{day}T23:00", zone)])

    usual = ran(2, "2030-06-01")
    assert ran(2, SPRING[zone]) == 0
    assert ran(REPEATED[zone], AUTUMN[zone]) == 2 * usual


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "zone", "said"),
    [
        ("* * *", "UTC", "wrong number of fields"),
        ("61 * * * *", "UTC", "bad minute"),
        ("every day", "UTC", "minute, hour, day of month, month and day of week"),
        ("", "UTC", "is not a cron expression"),
        ("9" * 5000 + " * * * *", "UTC", "is not a cron expression"),
        ("0 0 30 2 *", "UTC", "is not a cron expression"),
        ("0 0 * 2 MON#5", "Nowhere", "timezone='Nowhere' is not known here"),
        ("0 0 * * *", "Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("0 0 * * *", "Europe", "is not known here"),
        ("0 0 * * *", "../etc/passwd", "is not known here"),
        ("0 0 * * *", "", "timezone must be a name"),
        (5, "UTC", "cron must be a text"),
    ],
)
def test_what_is_no_schedule_is_refused_with_what_to_do(expression: Any, zone: Any, said: str) -> None:
    with pytest.raises(BadSettings, match=r"(?s).*") as refused:
        Schedule(expression, zone)
    assert said in str(refused.value)
    assert len(str(refused.value)) < 400


def test_for_unknown_time_zones_the_system_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes milliseconds, and a page of schedules may have many."""
    looked: list[None] = []

    def known() -> set[str]:
        looked.append(None)
        return {"Europe/Berlin"}

    monkeypatch.setattr(zoneinfo, "available_timezones", known)
    cron._zones.cache_clear()
    for name in ("Europe/Berln", "Mars/Olympus"):
        with pytest.raises(BadSettings, match="is not known here"):
            Schedule("0 0 * * *", name)
    cron._zones.cache_clear()
    assert len(looked) == 1


def test_shorthands_are_understood() -> None:
    assert Schedule("@daily").after(at("2030-01-01T12:00")) == at("2030-01-02T00:00")
    assert Schedule("@Hourly").after(at("2030-01-01T12:00")) == at("2030-01-01T13:00")


# -- what is to be done now --------------------------------------------------------------------------------------------


def a_cron(**given: Any) -> CronRecord:
    usual = {
        "name": "c", "task": "c", "expression": "0 * * * *", "timezone": "UTC", "catch_up": "latest", "queue": "q",
        "priority": 0, "max_attempts": 3, "tags": (), "next_at": at("2030-01-01T01:00"), "now": at("2030-01-01T00:30"),
    }  # fmt: skip
    return CronRecord(**{**usual, **given})


def done(cron: CronRecord) -> tuple[list[datetime], CronRecord]:
    """Take steps until nothing is due."""
    ticks = []
    while step := next_step(cron):
        assert step.next_at > cron.next_at
        if step.tick is not None:
            ticks.append(step.tick)
        cron = replace(cron, next_at=step.next_at, last_at=step.tick or cron.last_at)
    return ticks, cron


def test_nothing_is_due_before_its_time_and_the_tick_itself_is() -> None:
    assert next_step(a_cron()) is None
    ticks, after = done(a_cron(now=at("2030-01-01T01:00")))
    assert (ticks, after.next_at) == ([at("2030-01-01T01:00")], at("2030-01-01T02:00"))


def test_after_a_downtime_the_latest_all_or_none_of_the_missed_ticks_are_made_up_for() -> None:
    late = at("2030-01-01T05:30")
    assert done(a_cron(now=late))[0] == [at("2030-01-01T05:00")]
    assert done(a_cron(now=late, catch_up="all"))[0] == [at(f"2030-01-01T0{n}:00") for n in range(1, 6)]
    ticks, after = done(a_cron(now=late, catch_up="none"))
    assert (ticks, after.next_at) == ([], at("2030-01-01T06:00"))
    on_time = at("2030-01-01T05:00") + timedelta(seconds=30)
    assert done(a_cron(now=on_time, catch_up="none"))[0] == [at("2030-01-01T05:00")], "late by less than a minute"


def test_all_is_bounded_to_the_newest() -> None:
    ticks, _ = done(a_cron(now=at("2030-12-01T00:30"), catch_up="all"))
    assert len(ticks) == MOST_MISSED
    assert ticks[-1] == at("2030-12-01T00:00")
    step = next_step(a_cron(now=at("2030-12-01T00:30"), catch_up="all"))
    assert step is not None
    assert step.skipped_from == at("2030-01-01T01:00"), "and what was let go is told"


def test_a_cron_of_every_second_that_stood_still_for_a_year_is_soon_decided() -> None:
    began = time.perf_counter()
    ticks, _ = done(a_cron(expression="* * * * * *", next_at=at("2029-01-01T00:00"), now=at("2030-01-01T00:00")))
    assert ticks == [at("2030-01-01T00:00")]
    assert time.perf_counter() - began < 10, "tick by tick it would be minutes"


def test_ticks_in_a_pause_are_let_go_also_when_it_ended_by_itself() -> None:
    paused = {"paused_at": at("2030-01-01T00:15"), "now": at("2030-01-01T03:30")}
    ticks, after = done(a_cron(**paused))
    assert (ticks, after.next_at) == ([], at("2030-01-01T04:00"))
    ticks, after = done(a_cron(**paused, paused_until=at("2030-01-01T03:10")))
    assert (ticks, after.next_at) == ([], at("2030-01-01T04:00"))
    assert done(a_cron(**paused, paused_until=at("2030-01-01T02:10")))[0] == [at("2030-01-01T03:00")]


def test_a_clock_that_was_set_back_repeats_no_tick() -> None:
    """An hour of skew: the same instants come again, their ticks don't."""
    taken = at("2030-01-01T05:00")
    for now in ("2030-01-01T04:00", "2030-01-01T04:59", "2030-01-01T05:00", "2030-01-01T05:59"):
        ticks, after = done(a_cron(now=at(now), next_at=at("2030-01-01T04:00"), last_at=taken))
        assert (ticks, after.next_at) == ([], at("2030-01-01T06:00"))


def test_a_job_knows_its_tick_by_its_correlation_id() -> None:
    tick = at("2030-03-31T03:00", "Europe/Berlin")
    assert tick_of("report", correlation_of("report", "report", tick)) == tick
    assert tick_of("other", correlation_of("report", "report", tick)) is None
    assert tick_of("report", correlation_of("report", "report", None)) is None
    for name in ("nightly", "a:b@c", "@", "other"):
        assert tick_of("report", correlation_of(name, "report", tick)) == tick
        assert tick_of(name, correlation_of(name, "report", tick)) is None
        assert tick_of("report", correlation_of(name, "report", None)) is None
    assert tick_of("report", "cron:report:a@2030-01-01") is None
    assert tick_of("report", "cron:report@soon") is None
    assert tick_of("report", None) is None
