"""Crons as workers fire them: what a handler sees, what is refused, deploys, pauses, and that waiting costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import BadSettings, Holdfast, JobContext, State, UnknownTask
from holdfast.model.cron import CronRecord
from tests.running import Heard, working
from tests.waiting import wait_until

EVERY_SECOND = "* * * * * *"
RARELY = "0 0 1 1 *"


def the_cron(app: Holdfast, name: str) -> CronRecord:
    [found] = [cron for cron in app.crons() if cron.name == name]
    return found


def set_back(app: Holdfast, name: str, seconds: float) -> CronRecord:
    """As if nobody had looked since that long ago. (A schedule that is declared anew brings its own next tick.)"""
    cron = the_cron(app, name)
    past = cron.now.replace(microsecond=0) - timedelta(seconds=seconds)
    app.store.crons.declare(replace(cron, timezone="Etc/GMT", next_at=past))
    app.store.crons.declare(replace(cron, next_at=past))
    return the_cron(app, name)


def test_a_worker_fires_each_tick_once_and_the_handler_sees_which(hf: Holdfast, heard: Heard) -> None:
    seen: list[tuple[datetime | None, str | None]] = []

    @hf.task(cron=EVERY_SECOND, queue="reports", tags=["nightly"], catch_up="all")
    async def report(ctx: JobContext, size: int = 3) -> int:
        seen.append((ctx.job.tick, ctx.job.correlation_id))
        return size

    with working(hf), working(hf):
        wait_until(lambda: len(seen) >= 3)
    ticks = [tick for tick, _ in seen if tick is not None]
    assert len(ticks) == len(seen)
    assert {later - earlier for earlier, later in pairwise(sorted(ticks))} == {timedelta(seconds=1)}
    assert {tick.microsecond for tick in ticks} == {0}
    assert seen[0][1] == f"cron:report@{ticks[0].isoformat()}"
    record = next(job.record for job in hf.jobs() if job.state is State.SUCCEEDED)
    assert (record.queue, record.tags, record.args, record.result) == (
        "reports",
        ("nightly", "cron:report"),
        b"{}",
        b"3",
    )
    assert record.run_at in ticks
    assert record.started_at is not None
    assert timedelta(0) <= record.started_at - record.run_at < timedelta(seconds=2)
    assert {fields["cron"] for fields in heard.of("fired")} == {"report"}
    assert len(heard.of("fired")) == len({fields["tick"] for fields in heard.of("fired")})


def test_a_job_that_was_enqueued_by_hand_has_no_tick(hf: Holdfast) -> None:
    seen: list[Any] = []

    @hf.task(cron=RARELY)
    def report(ctx: JobContext) -> None:
        seen.append(ctx.job.tick)

    report.enqueue()
    report()
    hf.run_cron("report")
    assert hf.drain() == 2
    assert seen == [None] * 3


def test_waiting_for_a_tick_costs_no_statement(
    make_app: Callable[..., Holdfast], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watchdog's look, which comes anyway, tells when the next one falls due."""
    app = make_app(lease=0.4)
    app.task(cron=RARELY, name="rarely")(lambda: None)
    calls: Counter[str] = Counter()

    def counted(part: object, name: str) -> None:
        original = getattr(part, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(part, name, call)

    for name in ("next_tick", "due", "all"):
        counted(app.store.crons, name)
    counted(app.store, "look")
    with working(app):
        wait_until(lambda: calls["look"] > 5)
    assert calls["next_tick"] == 2, "before and after it said what it declares"
    assert calls["due"] == calls["all"] == 0


def test_a_drain_fires_what_is_due(hf: Holdfast) -> None:
    """Where only drains run, nobody else would."""
    hf.task(cron=RARELY, name="rarely")(lambda: None)
    hf.task(cron="0 0 * * *", name="daily")(lambda: None)
    assert hf.drain() == 0
    set_back(hf, "daily", 86400 * 3)
    assert hf.drain() == 1
    [job] = hf.jobs()
    assert (job.task, job.record.run_at) == (
        "daily",
        job.record.created_at.replace(hour=0, minute=0, second=0, microsecond=0),
    )
    assert hf.drain() == 0


def test_what_the_schedule_of_before_still_owes_is_fired_before_it_changes(make_app: Callable[..., Holdfast]) -> None:
    old, new = make_app(), make_app()
    old.task(cron="0 0 * * *", name="report")(lambda: None)
    old.drain()
    set_back(old, "report", 86400)
    new.task(cron=RARELY, name="report")(lambda: None)
    assert new.drain() == 1
    assert the_cron(new, "report").expression == RARELY


def test_in_a_rolling_deploy_the_newest_start_decides_and_all_follow(make_app: Callable[..., Holdfast]) -> None:
    old, new = make_app(lease=1.0), make_app(lease=1.0)
    ran: list[str] = []
    old.task(cron=RARELY, name="report")(lambda: ran.append("old"))
    new.task(cron=EVERY_SECOND, name="report")(lambda: ran.append("new"))
    with working(old):
        wait_until(lambda: old.store.crons.all())
        with working(new):
            wait_until(lambda: len(ran) >= 2)
            assert the_cron(old, "report").expression == EVERY_SECOND
            assert the_cron(old, "report").workers == 2
        before = len(ran)
        wait_until(lambda: len(ran) > before + 1)  # the worker of before fires the schedule it does not declare
        assert the_cron(old, "report").expression == EVERY_SECOND, "it does not flap"
    ticks = [job.record.run_at for job in old.jobs(limit=200)]
    assert len(ticks) == len(set(ticks))


def test_a_cron_that_no_worker_declares_any_more_is_not_fired_and_shown_as_such(
    make_app: Callable[..., Holdfast],
) -> None:
    before, after = make_app(lease=1.0), make_app(lease=1.0)
    before.task(cron="0 0 * * *", name="report")(lambda: None)
    before.drain()
    set_back(before, "report", 86400)
    after.task(name="report")(lambda: None)  # the task stays, its cron is gone
    after.task(cron=RARELY, name="rarely")(lambda: None)
    with working(after):
        wait_until(lambda: the_cron(after, "rarely").workers == 1)
        assert after.drain() == 0
        assert (the_cron(after, "report").workers, the_cron(after, "report").last_at) == (0, None)
    assert after.jobs() == []


def test_pausing_lets_ticks_go_and_resuming_goes_on_with_the_next(hf: Holdfast) -> None:
    hf.task(cron="0 0 * * *", name="daily", catch_up="all")(lambda: None)
    hf.pause_cron("daily", by="ops", reason="provider down", until=timedelta(hours=1))
    cron = the_cron(hf, "daily")
    assert (cron.paused, cron.paused_by, cron.paused_reason) == (True, "ops", "provider down")
    assert [(pause.kind, pause.name) for pause in hf.pauses()] == [("cron", "daily")]
    set_back(hf, "daily", 86400 * 5)
    assert hf.drain() == 0
    assert the_cron(hf, "daily").next_at > cron.now, "a worker lets go of what falls into the pause"
    set_back(hf, "daily", 86400 * 5)
    assert hf.resume_cron("daily")
    assert not hf.resume_cron("daily")
    assert hf.drain() == 0, "and so does who ends it"
    set_back(hf, "daily", 86400 * 5)
    assert hf.drain() in (5, 6)


def test_who_ends_a_pause_that_is_over_lets_go_of_what_fell_into_it_alone(hf: Holdfast) -> None:
    hf.task(cron="0 0 * * *", name="daily", catch_up="all")(lambda: None)
    cron = the_cron(hf, "daily")
    hf.store.pauses.add("cron", "daily", until=cron.now - timedelta(days=3))
    set_back(hf, "daily", 86400 * 5)
    assert hf.resume_cron("daily")
    assert hf.drain() == 3


def test_a_renamed_cron_goes_on_where_it_was_and_ticks_once(make_app: Callable[..., Holdfast]) -> None:
    old, new = make_app(lease=1.0), make_app(lease=1.0)
    old.task(cron=EVERY_SECOND, name="digest", catch_up="all")(lambda: None)
    new.task(cron=EVERY_SECOND, name="daily_digest", aliases=["digest"], catch_up="all")(lambda: None)
    with working(old):
        wait_until(lambda: old.jobs())
        with working(new):
            wait_until(lambda: len(new.jobs(task="daily_digest", limit=200)) >= 2)
        assert [cron.name for cron in new.store.crons.all()] == ["daily_digest"]
    ticks = [job.record.run_at for job in new.jobs(limit=200)]
    assert sorted(ticks) == sorted(set(ticks)), "no tick has two jobs"
    assert max(ticks) - min(ticks) == timedelta(seconds=len(ticks) - 1), "and none is missing"


def test_a_renamed_cron_keeps_its_pause_and_what_it_owes(make_app: Callable[..., Holdfast]) -> None:
    old, new = make_app(), make_app()
    for name in ("paused", "owing"):
        old.task(cron="0 0 * * *", name=name, catch_up="all")(lambda: None)
        new.task(cron=RARELY, name=f"new_{name}", aliases=[f"never_{name}", name])(lambda: None)
    old.drain()
    old.pause_cron("paused", by="ops")
    set_back(old, "owing", 86400 * 2)
    assert new.drain() == 2
    assert [(job.task, job.refresh().state) for job in new.jobs()] == [("new_owing", State.SUCCEEDED)] * 2
    assert [(cron.name, cron.expression, cron.paused_by) for cron in new.store.crons.all()] == [
        ("new_owing", RARELY, None), ("new_paused", RARELY, "ops"),
    ]  # fmt: skip


def test_a_task_with_its_own_name_among_its_aliases_keeps_its_cron(hf: Holdfast) -> None:
    hf.task(cron="0 0 * * *", name="digest", aliases=["digest", "news"], catch_up="all")(lambda: None)
    hf.drain()
    set_back(hf, "digest", 86400 * 2)
    assert hf.drain() in (2, 3), "what it owed"
    hf.pause_cron("digest", by="ops")
    hf.drain()
    assert the_cron(hf, "digest").paused_by == "ops"


def test_people_may_be_the_first_to_know_a_cron_by_its_new_name(make_app: Callable[..., Holdfast]) -> None:
    old, new = make_app(), make_app()
    old.task(cron="0 0 * * *", name="digest", catch_up="all")(lambda: None)
    new.task(cron="0 0 * * *", name="daily_digest", aliases=["digest"], catch_up="all")(lambda: None)
    old.drain()
    old.pause_cron("digest", by="ops")
    set_back(old, "digest", 86400 * 2)
    assert new.run_cron("daily_digest").task == "daily_digest"
    [cron] = new.store.crons.all()
    assert (cron.name, cron.paused_by) == ("daily_digest", "ops")
    assert old.drain() == 0, "it goes by the new name alone"
    assert new.resume_cron("daily_digest")
    assert new.drain() == 1, "the one that was asked for: who ends a pause lets go of what fell into it"


def test_a_cron_that_is_not_there_is_told_with_those_that_are(hf: Holdfast) -> None:
    hf.task(cron=RARELY, name="rarely")(lambda: None)
    for act in (hf.run_cron, hf.pause_cron, hf.resume_cron):
        with pytest.raises(UnknownTask, match=r"there is no cron 'rarly' in .*; there are: rarely"):
            act("rarly")


def test_crons_of_the_application_are_known_before_any_worker_ran(hf: Holdfast) -> None:
    hf.task(cron="30 6 * * MON-FRI", timezone="Europe/Berlin", name="report")(lambda: None)
    [cron] = hf.crons()
    assert (cron.workers, cron.last_at, str(cron.schedule)) == (0, None, "30 6 * * MON-FRI (Europe/Berlin)")
    assert len(cron.upcoming(5)) == 5
    assert hf.store.crons.all() == []
    hf.run_cron("report")
    assert [cron.name for cron in hf.store.crons.all()] == ["report"]


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_what_can_not_be_a_cron_is_refused_where_it_is_declared(hf: Holdfast) -> None:
    def with_arguments(day: str, size: int = 1) -> None: ...

    with pytest.raises(
        BadSettings, match="task with_arguments: nobody passes arguments to a cron's job; give day a def"
    ):
        hf.task(cron=RARELY)(with_arguments)
    with pytest.raises(BadSettings, match=r"task x: cron='0 25 .*bad hour.*write minute, hour"):
        hf.task(cron="0 25 * * *", name="x")(lambda: None)
    with pytest.raises(BadSettings, match="task x: timezone='Berlin' is not known here"):
        hf.task(cron=RARELY, timezone="Berlin", name="x")(lambda: None)
    with pytest.raises(BadSettings, match="catch_up is one of none, latest, all, not 'yes'"):
        hf.task(cron=RARELY, catch_up="yes", name="x")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(BadSettings, match="timezone and catch_up are of use with cron only"):
        hf.task(timezone="Europe/Berlin", name="x")(lambda: None)
    assert hf.tasks == {}, "and leaves nothing behind"


def test_a_schedule_this_host_can_not_read_is_told_and_keeps_no_other_from_its_ticks(
    hf: Holdfast, heard: Heard
) -> None:
    """A newer worker declared it, in a zone that is not installed here."""
    hf.task(cron="0 0 * * *", name="a_strange_one")(lambda: None)
    hf.task(cron="0 0 * * *", name="daily")(lambda: None)
    worker = hf.worker()
    worker.crons.step()
    strange = replace(the_cron(hf, "a_strange_one"), timezone="Mars/Olympus", next_at=datetime(2020, 1, 1, tzinfo=UTC))
    hf.store.crons.declare(strange)
    set_back(hf, "daily", 86400)
    wait = worker.crons.step()
    assert wait is not None
    assert wait > 0, "the other one's next tick is waited for"
    assert [fields["cron"] for fields in heard.of("cron_unknown")] == ["a_strange_one"]
    assert [fields["cron"] for fields in heard.of("fired")] == ["daily"]


def test_a_tick_whose_job_can_not_be_enqueued_is_not_taken(hf: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both or neither: the job and the mark that it was enqueued."""
    hf.task(cron="0 0 * * *", name="daily")(lambda: None)
    worker = hf.worker()
    worker.crons.step()
    before = set_back(hf, "daily", 86400)
    with monkeypatch.context() as patch:
        patch.setattr(hf.store.crons, "_enqueue", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            worker.crons.step()
    assert the_cron(hf, "daily").next_at == before.next_at
    worker.crons.step()
    assert len(hf.jobs()) == 1


def test_what_was_missed_and_is_not_made_up_for_is_told(hf: Holdfast, heard: Heard) -> None:
    hf.task(cron=RARELY, name="rarely", catch_up="none")(lambda: None)
    worker = hf.worker()
    worker.crons.step()
    set_back(hf, "rarely", 86400 * 400)
    worker.crons.step()
    [told] = heard.of("ticks_missed")
    assert (told["cron"], told["catch_up"]) == ("rarely", "none")
    assert hf.jobs() == []
