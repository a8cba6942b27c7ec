"""One event per verb: each verb of the state machine is done for real, and heard of."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Cancel, Holdfast, Job, JobContext, Retry, Snooze, State, events
from holdfast.model.job import ClaimedJob
from holdfast.model.lifecycle import IN_PLACE, TRANSITIONS
from holdfast.model.outcome import Outcome
from holdfast.store.base import Exchanged
from holdfast.tasks.attempt import Attempt
from holdfast.worker import retention
from holdfast.worker.in_flight import InFlight
from holdfast.worker.mandate import Meters
from holdfast.worker.outbox import Outbox, RoundTrip
from tests.running import HASTY, Heard, MakeApp, working
from tests.waiting import wait_until

BESIDES = {"enqueue", "renew", "purge", "add_pause", "drop_pause", "let_go"}  # verbs that are no transition of one job


def work(ctx: JobContext, how: str) -> str:
    match how:
        case "fail":
            raise ZeroDivisionError("no")
        case "reschedule":
            raise Retry("later", after=3600)
        case "release":
            raise Snooze(3600)
        case "stop":
            raise Cancel("unwanted")
        case "checkpoint":
            ctx.checkpoint({"n": 1}, pending=3)
        case "step":
            ctx.step("add", sum, [1, 2])
        case "progress":
            ctx.progress(2, total=5)
            wait_until(lambda: ctx.job.id in SEEN)
        case "park":
            SEEN.add("begun")  # asked before that, it would be given back, not parked
            wait_until(lambda: ctx.should_stop())
            ctx.checkpoint(None)
        case "renew":
            wait_until(lambda: "renewed" in SEEN)
    return "done"


SEEN: set[str] = set()  # what a handler waits for


def by_handler(how: str) -> Callable[[Holdfast], Job[Any]]:
    def act(app: Holdfast) -> Job[Any]:
        job: Job[Any] = (
            app.find_task("work").using(correlation_id="c-1", max_attempts=3 - 2 * (how == "fail")).enqueue(how)
        )
        app.drain()
        return job

    return act


def watched(how: str, until: str) -> Callable[[Holdfast], Job[Any]]:
    """Done by a worker that runs, until the event was heard."""

    def act(app: Holdfast) -> Job[Any]:
        heard: list[str] = []
        unsubscribe = events.subscribe(lambda name, fields: heard.append(name))
        SEEN.clear()
        try:
            with working(app):
                job: Job[Any] = app.find_task("work").enqueue(how)
                if how == "park":
                    wait_until(lambda: "begun" in SEEN)
                    job.pause()
                wait_until(lambda: until in heard)
                SEEN.update({until, job.id})
        finally:
            unsubscribe()
        return job

    return act


def queued(app: Holdfast) -> Job[Any]:
    job: Job[Any] = app.find_task("work").using(delay=3600).enqueue("succeed")
    return job


def asked(*verbs: str) -> Callable[[Holdfast], Job[Any]]:
    """People do this to a queued job."""

    def act(app: Holdfast) -> Job[Any]:
        job = queued(app)
        for verb in verbs:
            getattr(job, verb)(**({"priority": 3} if verb == "change" else {}))
        return job

    return act


def rescued(app: Holdfast) -> Job[Any]:
    job: Job[Any] = app.find_task("work").enqueue("succeed")
    worker = app.worker()
    app.store.exchange([], _wants())
    app.pause_task("work")
    worker.watchdog._rescuer.rescue_from(["gone"])
    return job


def _wants() -> Any:
    from tests.factories import wants

    return wants(1, tasks=("work",), worker="gone")


def expired(app: Holdfast) -> Job[Any]:
    job: Job[Any] = app.find_task("work").using(expires=0).enqueue("succeed")
    app.worker().watchdog.catch_up()
    return job


def purged(app: Holdfast) -> Job[Any]:
    job = by_handler("succeed")(app)
    app.reconfigure(keep_finished=0.0)
    app.worker().watchdog.catch_up()
    return job


def held(app: Holdfast) -> None:
    app.pause_queue("default", by="ops", reason="provider down")


def let_go(app: Holdfast) -> None:
    held(app)
    app.resume_queue("default")


def freed(app: Holdfast) -> None:
    queued(app)
    app.pause_matching("queue:default task:work")
    app.resume_matching("queue:default task:work")


DOING: dict[str, Callable[[Holdfast], Job[Any] | None]] = {
    "enqueue": queued, "claim": by_handler("succeed"), "succeed": by_handler("succeed"), "fail": by_handler("fail"),
    "reschedule": by_handler("reschedule"), "release": by_handler("release"), "stop": by_handler("stop"),
    "checkpoint": by_handler("checkpoint"), "step": by_handler("step"), "progress": watched("progress", "progressed"),
    "park": watched("park", "parked"), "renew": watched("renew", "renewed"), "rescue": rescued, "expire": expired,
    "purge": purged, "pause": asked("pause"), "resume": asked("pause", "resume"), "cancel": asked("cancel"),
    "retry": asked("cancel", "retry"), "change": asked("change"), "delete": asked("cancel", "delete"),
    "add_pause": held, "drop_pause": let_go, "let_go": freed,
}  # fmt: skip


def test_every_verb_of_the_state_machine_has_an_event_and_its_text() -> None:
    assert events.VERBS.keys() == TRANSITIONS.keys() | IN_PLACE.keys() | BESIDES
    assert set(events.VERBS.values()) <= events.TEXTS.keys()
    assert DOING.keys() == events.VERBS.keys()


@pytest.fixture
def app(make_app: MakeApp) -> Holdfast:
    app = make_app(**HASTY)
    app.task(work)
    return app


@pytest.mark.parametrize("verb", sorted(DOING))
def test_a_verb_done_is_an_event_heard_once_and_a_line_in_the_log(
    verb: str, app: Holdfast, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "holdfast"):
        job = DOING[verb](app)
    name = events.VERBS[verb]
    found = heard.of(name)
    assert len(found) >= 1 if verb in ("claim", "renew", "progress") else len(found) == 1
    told = found[0]
    if job is not None and verb not in ("renew", "expire", "purge"):
        ids = [told["job"]] if "job" in told else [one["job"] for one in told["jobs"]]
        assert ids == [job.id]
    said = "errored" if verb == "fail" else name  # the line of the last attempt says that none are left
    assert [record for record in caplog.records if vars(record).get("holdfast", {}).get("event") == said]


def test_what_is_said_of_each_job(app: Holdfast, heard: Heard) -> None:
    done, failed = by_handler("succeed")(app), by_handler("fail")(app)
    assert done is not None
    assert failed is not None
    [told] = heard.of("succeeded")
    [one] = told["jobs"]
    assert one.pop("seconds") >= 0
    assert one == {
        "job": done.id, "task": "work", "queue": "default", "attempt": 1, "max_attempts": 3, "correlation_id": "c-1",
    }  # fmt: skip
    assert (told["count"], told["worker"]) == (1, heard.of("worker_started")[0]["worker"])
    [[error]] = [told["jobs"] for told in heard.of("failed")]
    assert (error["error_code"], error["error"]) == ("ZeroDivisionError", "no")


def test_success_recorded_by_the_handler_itself_is_told_too(app: Holdfast, heard: Heard) -> None:
    @app.task
    def own(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.set_result(1)

    job = own.enqueue()
    app.drain()
    assert [one["job"] for told in heard.of("succeeded") for one in told["jobs"]] == [job.id]


def test_many_are_told_at_once(app: Holdfast, heard: Heard) -> None:
    app.enqueue_many(app.find_task("work").bind("succeed") for _ in range(300))
    assert heard.of("enqueued") == [{"count": 300, "task": "work", "committed": True}]
    app.drain()
    assert sum(told["count"] for told in heard.of("succeeded")) == 300
    assert sum(len(told["jobs"]) for told in heard.of("claimed")) == 300
    assert len(heard.of("succeeded")) < 100


def test_an_equal_job_that_was_there_is_not_enqueued_again(app: Holdfast, heard: Heard) -> None:
    keyed = app.find_task("work").using(key="k")
    keyed.enqueue("succeed"), keyed.enqueue("succeed")
    assert len(heard.of("enqueued")) == 1


def test_a_lost_outcome_is_no_success(app: Holdfast, heard: Heard) -> None:
    @app.task
    def thief(ctx: JobContext) -> None:
        app.pause_task("thief")
        app.store.rescues.rescue(by_expiry=False, dead=[app.job(ctx.job.id).refresh().record.worker or ""])

    thief.enqueue()
    app.drain()
    assert heard.of("succeeded") == []
    assert len(heard.of("lease_lost")) == 1


def test_of_outcomes_recorded_together_only_those_that_count_are_told(app: Holdfast, heard: Heard) -> None:
    outbox = Outbox("w1", app.store, InFlight(), Meters(), quarantine_after=3)
    mine, lost, already, failed = (Outcome("succeed" if n < 3 else "fail", n, "fence") for n in range(4))
    trip = RoundTrip([mine, lost, already, failed], None, [])
    outbox.recorded(trip, Exchanged(lost=[lost], already=[already]))
    assert [(told["count"], told["jobs"]) for told in heard.of("succeeded")] == [(1, [{"job": "0"}])]
    assert [told["job"] for told in heard.of("failed")] == ["3"]
    assert [told["job"] for told in heard.of("lease_lost")] == ["1"]


@pytest.mark.parametrize(("begun", "outcome"), [(True, "released"), (False, None)])
def test_what_can_not_be_stopped_is_given_back_with_a_line_of_history_if_it_has_begun(
    app: Holdfast, begun: bool, outcome: str | None
) -> None:
    """Also where its handler runs in another process, which tells only at the end that it began."""

    class Elsewhere:
        def stop_requested(self, attempt: Attempt) -> None: ...

        def has_begun(self, attempt: Attempt) -> bool:
            return begun

        def has_recorded(self, attempt: Attempt) -> bool:
            return False

    outbox = Outbox("w1", app.store, InFlight(), Meters(), quarantine_after=3)
    outbox.give_back(Attempt(ClaimedJob(1, "fence", "task", "default", b"{}", 1, 3), remote=Elsewhere()))
    assert [given_back.attempt for given_back in outbox.outcomes] == [outcome]


def test_nothing_is_said_of_single_jobs_when_nobody_listens(monkeypatch: pytest.MonkeyPatch, app: Holdfast) -> None:
    def never(*_: object) -> dict[str, Any]:
        raise AssertionError("made for nobody")

    monkeypatch.setattr("holdfast.worker.outbox.ended_fields", never)
    monkeypatch.setattr("holdfast.worker.outbox.job_fields", never)
    assert not events.wanted("succeeded")
    jobs = [by_handler(how)(app) for how in ("succeed", "fail", "reschedule")]
    assert [job.refresh().state for job in jobs] == [State.SUCCEEDED, State.FAILED, State.QUEUED]


assert retention.EVERY > 60  # purges in these tests are those that are asked for
