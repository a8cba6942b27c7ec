"""`hf.schedule`: schedules that are made, changed and removed while workers run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import BadArguments, BadSettings, Holdfast, JobContext, UnknownTask
from holdfast.errors import HoldfastError
from holdfast.worker import cron as worker_cron
from tests.running import Heard, working
from tests.waiting import wait_until
from tests.work.test_cron import EVERY_SECOND, RARELY, the_cron


def set_back(app: Holdfast, name: str, seconds: float) -> None:
    """As if nobody had looked since that long ago. (A changed schedule brings its own next tick.)"""
    cron = the_cron(app, name)
    past = cron.now.replace(microsecond=0) - timedelta(seconds=seconds)
    app.store.crons.schedule(replace(cron, timezone="Etc/GMT", next_at=past))
    app.store.crons.schedule(replace(cron, next_at=past))


def test_workers_take_up_schedules_that_are_made_while_they_run(make_app: Callable[..., Holdfast]) -> None:
    app = make_app(lease=1.0)
    seen: list[tuple[str, datetime | None]] = []

    @app.task(queue="audits")
    def audit(ctx: JobContext, url: str) -> None:
        seen.append((url, ctx.job.tick))

    def ticks(url: str) -> list[datetime]:
        return [tick for seen_url, tick in seen if seen_url == url and tick is not None]

    with working(app), working(app):
        made = app.schedule("a", audit.bind("a"), cron=EVERY_SECOND, catch_up="all")
        assert (made.name, made.task, made.queue, made.declared) == ("a", "audit", "audits", False)
        app.schedule("b", audit.using(priority=3, tags=["x"]).bind("b"), cron=EVERY_SECOND, catch_up="all")
        wait_until(lambda: len(ticks("a")) >= 2 and len(ticks("b")) >= 2)
        app.schedule("a", audit.bind("changed"), cron=EVERY_SECOND, catch_up="all")
        wait_until(lambda: len(ticks("changed")) >= 2)
        assert app.unschedule("b")
        gone = len(app.jobs("tag:cron:b", limit=500))
        later = len(ticks("changed"))
        wait_until(lambda: len(ticks("changed")) >= later + 2)
        assert len(app.jobs("tag:cron:b", limit=500)) == gone
    for urls in (("a", "changed"), ("b",)):
        found = sorted(tick for url in urls for tick in ticks(url))
        assert len(found) == len(set(found)), "no tick has two jobs"
        assert found[-1] - found[0] == timedelta(seconds=len(found) - 1), "and none is missing"
    assert {(job.record.priority, job.record.tags) for job in app.jobs("tag:cron:b")} == {(3, ("x", "cron:b"))}


def test_a_drain_fires_what_is_due_of_thousands_in_a_few_transactions(
    hf: Holdfast, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[int] = []

    @hf.task
    def note(n: int) -> None:
        ran.append(n)

    monkeypatch.setattr(worker_cron, "AT_ONCE", 20)
    for n in range(50):
        hf.schedule(f"s{n}", note.bind(n), cron="0 0 * * *" if n < 45 else RARELY)
    for n in range(45):
        set_back(hf, f"s{n}", 86400 * 2)
    assert hf.drain() == 45
    assert sorted(ran) == list(range(45)), "the newest missed tick of each, once"
    assert len(heard.of("fired")) == 45
    assert hf.drain() == 0


def test_a_worker_without_the_task_leaves_it_to_others(make_app: Callable[..., Holdfast]) -> None:
    mine, other = make_app(), make_app()

    @mine.task
    def audit(url: str) -> None: ...

    other.task(name="else")(lambda: None)
    mine.schedule("a", audit.bind("x"), cron="0 0 * * *")
    set_back(mine, "a", 86400 * 2)
    assert other.drain() == 0
    assert [cron.name for cron in other.crons()] == ["a"], "it can be seen everywhere"
    assert mine.drain() == 1


def test_it_is_listed_paused_resumed_and_run_as_other_crons(hf: Holdfast) -> None:
    ran: list[int] = []

    @hf.task
    def note(n: int) -> None:
        ran.append(n)

    hf.task(cron=RARELY, name="declared")(lambda: None)
    hf.schedule("made", note.bind(7), cron="0 0 * * *", timezone="Europe/Berlin", catch_up="all")
    assert [(cron.name, cron.declared) for cron in hf.crons()] == [("declared", True), ("made", False)]
    hf.store.pauses.add("cron", "made", by="ops")
    set_back(hf, "made", 86400 * 5)
    assert the_cron(hf, "made").paused
    assert hf.drain() == 0
    job = hf.run_cron("made")
    assert (job.task, hf.drain(), ran) == ("note", 1, [7])
    assert hf.unschedule("made")
    assert hf.pauses() == []
    with pytest.raises(UnknownTask, match="there is no cron 'made'"):
        hf.run_cron("made")
    assert not hf.unschedule("made")
    assert not hf.unschedule("declared")


app = Holdfast("sqlite:///never-opened.db")


@app.task
def audit(url: str) -> None: ...


BOUND = audit.bind("x")
BAD: list[tuple[dict[str, Any], type[HoldfastError], str]] = [
    ({"cron": "often"}, BadSettings, "schedule a: cron='often' is not a cron expression"),
    ({"cron": None}, BadSettings, "schedule a: cron must be a text"),
    ({"cron": "0 0 30 2 *"}, BadSettings, "schedule a: cron='0 0 30 2"),
    ({"timezone": "Europe/Berln"}, BadSettings, "did you mean 'Europe/Berlin'"),
    ({"timezone": None}, BadSettings, "timezone must be a name"),
    ({"catch_up": "some"}, BadSettings, "catch_up is one of none, latest, all"),
    ({"name": ""}, BadArguments, "its name must be a text"),
    ({"name": "a\x1bb"}, BadArguments, "control character"),
    ({"bound": audit}, BadArguments, r"takes a task with its arguments, as in task\.bind"),
    ({"bound": audit.using(delay=5).bind("x")}, BadArguments, "delay can't be given to each of its jobs"),
    ({"bound": audit.using(key="k", expires=0).bind("x")}, BadArguments, "expires, key can't be given"),
    ({"bound": audit.using(run_at=datetime.now(UTC)).bind("x")}, BadArguments, "run_at can't be given"),
    ({"bound": audit.using(conn=object()).bind("x")}, BadArguments, "conn can't be given"),
]


@pytest.mark.parametrize(("given", "error", "why"), BAD)
def test_what_could_not_be_fired_is_refused_when_it_is_made(
    hf: Holdfast, given: dict[str, Any], error: type[HoldfastError], why: str
) -> None:
    usual: dict[str, Any] = {"name": "a", "bound": BOUND, "cron": "0 3 * * *"}
    with pytest.raises(error, match=why):
        hf.schedule(**usual | given)
    assert hf.crons() == []


def test_a_name_that_a_task_declares_is_refused_and_the_other_way_round(
    make_app: Callable[..., Holdfast], heard: Heard
) -> None:
    first, second = make_app(), make_app()
    task = first.task(cron=RARELY, name="nightly")(lambda: None)
    with pytest.raises(BadArguments, match="a task declares a cron of this name"):
        first.schedule("nightly", task.bind(), cron=RARELY)
    other = second.task(name="other")(lambda: None)
    second.schedule("nightly", other.bind(), cron=RARELY)
    first.drain()
    assert [fields["cron"] for fields in heard.of("cron_unknown")] == ["nightly"]
    assert the_cron(second, "nightly").task == "other", "what people made stays"
    second.unschedule("nightly")
    first.drain()
    with pytest.raises(BadArguments, match="a task declares a cron of this name"):
        second.schedule("nightly", other.bind(), cron=RARELY)
