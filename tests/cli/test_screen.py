"""What `top` draws fits the screen, whatever its size and whatever the data; and its figures are what they say."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from holdfast.cli.top.document import WINDOW, JobRates, document
from holdfast.cli.top.screen import SORTS, View, draw, share
from holdfast.cli.top.sections import one_line, rate
from holdfast.model.alerts import Alert
from holdfast.model.job import Depth, Pause, WorkerRecord
from holdfast.store.overview import Failure, Overview, Rates, Running

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
NAMES = (
    "default",
    "a-queue-with-a-name-that-goes-on-and-on-and-on",
    "請求書の送信",
    "[bold]markup[/]",
    "two\nlines",
    "e\u0301\U0001f468",
)


def running(id: int = 1, *, done: int | None = 30, total: int | None = 40, **given: Any) -> Running:
    values: dict[str, Any] = {
        "queue": "default", "task": "audit", "fence": "f", "worker": "w1", "attempt": 1, "max_attempts": 3,
        "started_at": NOW - 10 * SECOND, "note": None, "pause_requested": False, "cancel_requested": False,
    }  # fmt: skip
    return Running(id=str(id), done=done, total=total, **{**values, **given})


def worker(id: str, seen: float = 1.0) -> WorkerRecord:
    return WorkerRecord(id, id, "host", 7, None, ("audit",), 8, 20.0, NOW - 60 * SECOND, NOW - seen * SECOND)


def crowded(queues: int = 50) -> Overview:
    names = [f"{NAMES[n % len(NAMES)]}{n}" for n in range(queues)]
    return Overview(
        at=NOW,
        depths=[
            Depth(name, "audit", 10_001 if n == 3 else n, n % 3, {"w1": n}, n % 4, NOW - n * 100 * SECOND, n == 3)
            for n, name in enumerate(names)
        ],
        rates={name: Rates(n * 123.456, n / 7) for n, name in enumerate(names)},
        workers=[worker("w1"), worker("機械" * 20, 500.0)],
        running=[
            running(
                n, queue=names[n], task=NAMES[n % len(NAMES)], note=f"{NAMES[n % 6]} " * 5,
                total=[None, 10, 10**9, 0][n % 4], done=[None, 3, 12][n % 3],
                cancel_requested=n == 2, pause_requested=n == 3,
            )
            for n in range(20)
        ],
        failures=[
            Failure(str(n), names[n], "audit", 3, NOW - n * SECOND, "Boom", "it \x1b[31m broke\nbadly " * 9)
            for n in range(20)
        ],
        pauses=[
            Pause("queue", names[0], "ops", "because " * 20, NOW + 60 * SECOND, NOW),
            Pause("task", "x", None, None, None, NOW),
        ],
    )  # fmt: skip


NOTHING = Overview(NOW, [], {}, [], [], [], [])


def drawn(seen: Overview | None, width: int, height: int, **view: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)
    frame = None if seen is None else document(seen, JobRates(), "sqlite:///jobs.db")
    console.print(draw(frame, View(keys="q quit   s sort", **view), width, height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [1, 10, 24, 40, 62, 80, 100, 132, 200, 400])
@pytest.mark.parametrize("height", [1, 2, 5, 10, 24, 50, 300])
def test_no_screen_is_overfull(width: int, height: int) -> None:
    for seen in (None, crowded(), NOTHING):
        for trouble in ("", "away for 3 s: can't reach it"):
            lines = drawn(seen, width, height, trouble=trouble, status="every 2 s")
            assert max(map(cell_len, lines)) <= width
            assert len(lines) <= max(height, 3 + bool(trouble))  # what must be said is said
            assert not any("\x1b" in line for line in lines)


def test_numbers_are_whole_or_not_there() -> None:
    for width in range(24, 160):
        lines = drawn(crowded(), width, 40, sort="size")
        [capped] = [line for line in lines if "10,0" in line]
        assert "10,000+" in capped


def test_sections_share_the_height_and_say_what_they_leave_out() -> None:
    text = "\n".join(drawn(crowded(), 120, 40))
    assert "8 of 50 queues" in text
    assert "2 workers" in text
    assert "of 1,225 running" in text
    assert "of 20 failed lately" in text
    assert "2 paused" in text
    assert text.splitlines()[-1].startswith("q quit")
    assert len(text.splitlines()) == 40


def test_room_goes_to_whoever_can_use_it() -> None:
    assert share(10, [3, 3]) == [3, 3]
    assert share(10, [50, 2, 50]) == [4, 2, 4]
    assert share(11, [50, 2, 50]) == [5, 2, 4]
    assert share(2, [5, 5, 5]) == [1, 1, 0]
    assert share(0, [5]) == share(-3, [5]) == [0]
    assert share(5, []) == []


def test_every_order_shows_the_same_jobs() -> None:
    shown = {sort: drawn(crowded(), 200, 400, sort=sort) for sort in SORTS}
    assert len({tuple(sorted(lines)) for lines in shown.values()}) == 1
    assert len({tuple(lines) for lines in shown.values()}) == len(SORTS)


def test_what_needs_somebody_is_told() -> None:
    text = "\n".join(drawn(crowded(), 200, 100))
    assert "silent, 8:20 ago" in text
    assert "cancel asked" in text
    assert "pause asked" in text
    assert "by ops: because" in text
    assert "no worker is up" not in text
    silent = Overview(NOW, [], {}, [worker("w1", 500.0)], [], [], [])
    assert "no worker is up" in "\n".join(drawn(silent, 80, 24))


def test_other_peoples_words_give_no_orders() -> None:
    assert one_line("a\n\tb \x1b[31m\u202ec") == "a b \\x1b[31m\\u202ec"
    assert any("[bold]markup[/]" in line for line in drawn(crowded(), 200, 400))


@pytest.mark.parametrize(
    ("per_second", "shown"), [(0, "·"), (0.001, "<0.01"), (0.166, "0.17"), (12.6, "13"), (1234, "1.23k"), (5e6, "5M")]
)
def test_rates_are_short(per_second: float, shown: str) -> None:
    assert rate(per_second) == shown


# -- how quickly a running job gets on ---------------------------------------------------------------------------------


def seen(rates: JobRates, job: Running, at: datetime) -> float | None:
    rates.add([job], at)
    return rates.of(job, at)


def test_at_first_sight_the_rate_is_that_since_it_started() -> None:
    assert seen(JobRates(), running(done=30), NOW) == 3.0
    assert seen(JobRates(), running(done=0), NOW) is None
    assert seen(JobRates(), running(done=None), NOW) is None


def test_from_then_on_it_is_that_of_late() -> None:
    """A job that goes on from a checkpoint has done much of it before this attempt."""
    rates = JobRates()
    seen(rates, running(done=1000), NOW)
    assert seen(rates, running(done=1010), NOW + 5 * SECOND) == 2.0
    for second in range(6, 100):
        last = seen(rates, running(done=1000 + 8 * second), NOW + second * SECOND)
    assert last == 8.0  # what was slower is more than the window ago
    assert len(rates._seen["1", "f"]) <= WINDOW + 2


def test_another_attempt_starts_anew_and_jobs_that_are_gone_are_forgotten() -> None:
    rates = JobRates()
    seen(rates, running(done=500), NOW)
    again = running(done=8, fence="g", started_at=NOW)
    assert seen(rates, again, NOW + 4 * SECOND) == 2.0
    assert list(rates._seen) == [("1", "g")]


def test_the_time_left_follows_from_the_rate() -> None:
    overview = Overview(NOW, [], {}, [], [running(done=30, total=40), running(2, total=None)], [], [])
    first, second = document(overview, JobRates(), "")["running"]
    assert (first["rate_per_second"], first["left_seconds"]) == (3.0, 3.333)
    assert second["left_seconds"] is None


def test_alerts_that_stand_are_told_above_all_else() -> None:
    alerts = [
        Alert(str(n), "job_age", f"q{n}", f"the oldest due job of queue q{n} waits for 2h", 1.0, NOW) for n in range(5)
    ]
    lines = drawn(replace(NOTHING, alerts=alerts), 80, 24)
    text = "\n".join(lines)
    assert "alert: the oldest due job of queue q0 waits for 2h" in text
    assert "queue q3" not in text
    assert "and 2 more alerts" in text
