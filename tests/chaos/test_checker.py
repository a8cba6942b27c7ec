"""The checker finds what it is there for: for each rule histories that break it, made by hand, beside one in order."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import RULES, History, judge
from tests.chaos.evidence import Asked, Evidence, Happening, Line, Version
from tests.chaos.liveness import BARS, measure
from tests.chaos.report import shortest, timeline

START = 1_000_000.0
ENDING = "ending runner process {} because of a job that does not stop: 1 others that run there are given back"


class Story:
    """Evidence, told step by step; each step is a second after the one before."""

    def __init__(self) -> None:
        self.evidence = Evidence()
        self.at = START
        self._rows: dict[str, dict[str, Any]] = {}
        self._pids: dict[tuple[str, str], int] = {}  # each claim runs in a process of its own, unless it is said

    def _version(self, op: str, job: str, **changes: Any) -> None:
        self.at += 1
        row = self._rows[job] = {**self._rows.get(job, {}), **changes}
        self.evidence.versions.append(Version(len(self.evidence.versions) + 1, self.at, op, job, row))

    def job(self, job: str = "1", task: str = "quick", asked: bool = True, token: str = "", **row: Any) -> Story:
        token = token or f"p-{job}"
        if asked:
            self.asked(task, token, ids=[job])
        plain = {
            "state": "queued", "task": task, "queue": "default", "priority": 0, "attempt": 0, "max_attempts": 3,
            "life": 1, "crashes": 0, "fence": None, "worker": None, "key": None, "run_at": moment(START),
            "expires_at": None, "pause_requested": False, "cancel_requested": False, "error_code": None,
            "correlation_id": None, "args": {"token": token}, "result": None,
        }  # fmt: skip
        self._version("insert", job, **{**plain, **row})
        return self

    def asked(
        self, task: str, *tokens: str, how: str = "single", answer: str = "ok", ids: Any = (), error: str = "it broke"
    ) -> Story:
        fields = {"how": how, "jobs": [{"task": task, "token": token} for token in tokens]}
        self.evidence.enqueues.append(Asked(self.at, fields, answer, self.at, {"ids": list(ids), "error": error}))
        return self

    def to(self, state: str, job: str = "1", **changes: Any) -> Story:
        self._version("update", job, state=state, **changes)
        return self

    def claim(self, fence: str = "a", job: str = "1", *, begin: bool = True, pid: int = 0, **more: Any) -> Story:
        self._pids[job, fence] = pid or 100 + len(self._pids)
        attempt = self._rows[job]["attempt"] + 1
        self.to("running", job, fence=fence, worker=f"w0.1~{fence}", attempt=attempt)
        return self.told("begin", fence, job, **more) if begin else self

    def told(self, what: str, fence: str = "a", job: str = "1", **more: Any) -> Story:
        row = self._rows[job]
        line = {"what": what, "job": job, "fence": fence, "attempt": row["attempt"], "task": row["task"]}
        self.evidence.effects.append({**line, "pid": self._pids.get((job, fence), 1), "at": self.at, **more})
        return self

    def succeed(self, fence: str = "a", job: str = "1") -> Story:
        result = self._rows[job]["args"]["token"]
        return self.told("end", fence, job).to("succeeded", job, result=result)

    def give_back(self, outcome: str, fence: str = "a", job: str = "1", **changes: Any) -> Story:
        """Back to the queue; charged unless its outcome says that it is not."""
        row = self._rows[job]
        attempt = row["attempt"] - (outcome in ("lost", "released", "snoozed"))
        code = {"lost": "LOST", "crashed": "CRASHED"}.get(outcome)
        self.attempt(outcome, fence, job, code)
        return self.to("queued", job, **{"attempt": attempt, "fence": None, "error_code": code, **changes})

    def attempt(self, outcome: str, fence: str = "a", job: str = "1", code: str | None = None) -> Story:
        told = {"job_id": job, "fence": fence, "outcome": outcome, "error_code": code, "error_message": "so it was"}
        self.evidence.attempts.append(told)
        return self

    def people(self, verb: str, job: str | None = "1", answer: str = "ok", state: str = "", **more: Any) -> Story:
        self.evidence.actions.append(
            Asked(self.at, {"verb": verb, "job": job, **more}, answer, self.at, {"state": state})
        )
        return self

    def event(self, what: str, at: float | None = None, **fields: Any) -> Story:
        self.evidence.events.append({"what": what, "at": self.at if at is None else at, **fields})
        return self

    def logged(self, text: str, worker: str = "w0.1") -> Story:
        self.evidence.log.append(Line(worker, self.at, text))
        return self

    def later(self, seconds: float) -> Story:
        self.at += seconds
        return self

    def broken(self) -> set[str]:
        history = History(self.evidence)
        return {found.rule for found in judge(history) + measure(history)[1]}


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def in_order() -> Story:
    """One of each that could be taken for a fault, and is none."""
    story = Story()
    story.job("1").claim().succeed()
    story.job("2").claim("a", "2").give_back("crashed", "a", "2", crashes=1).claim("b", "2").succeed("b", "2")
    story.job("3", "ledger").claim("a", "3").give_back("lost", "a", "3").claim("b", "3").succeed("b", "3")
    story.evidence.ledger.append(("3", "b", 1, "p-3"))
    story.job("4", "hopeless").claim("a", "4").attempt("errored", "a", "4", "NO_USE").to(
        "failed", "4", error_code="NO_USE"
    )
    story.people("retry", "4").to("queued", "4", life=2, attempt=0, fence=None)
    story.claim("b", "4").attempt("errored", "b", "4", "NO_USE").to("failed", "4", error_code="NO_USE")
    story.job("5").people("cancel", "5", state="cancelled").to("cancelled", "5", error_code="CANCELLED")
    story.job("6", "outside").claim("a", "6").told("effect", "a", "6").give_back("lost", "a", "6")
    story.claim("b", "6").told("effect", "b", "6").succeed("b", "6")
    story.job("7", "keyed", key="k").claim("a", "7").succeed("a", "7")
    story.job("8", "keyed", key="k").claim("a", "8").succeed("a", "8")
    story.job("9", "parent").claim("a", "9")
    story.job("10", "child", asked=False, token="p-9/child").succeed("a", "9")
    story.evidence.ledger.append(("9", "a", 1, "p-9"))
    story.claim("a", "10").succeed("a", "10")
    story.asked("quick", "p-gone", how="rollback", answer="fail")
    story.asked("quick", "p-unknown", answer="info")
    story.job("11", "checkpoints").claim("a", "11", saved=0).told("kept", "a", "11", number=2).give_back(
        "lost", "a", "11"
    )
    story.claim("b", "11", saved=2).succeed("b", "11")
    story.job("12", "expiring", expires_at=moment(START + 5)).to("cancelled", "12", error_code="EXPIRED")
    story.job("13", queue="side").people("hold", None, queue="side").later(1)
    story.people("let_go", None, queue="side")
    story.claim("a", "13").succeed("a", "13")
    story.event("started", role="worker", name="w0.1", pid=1).event("settled", seconds=3.0, unfinished=0)
    story.event("ended", role="worker", name="w0.1", status=0, asked="term", asked_at=story.at - 1)
    return story


def test_a_history_in_order_is_not_accused() -> None:
    story = in_order()
    assert judge(History(story.evidence)) == []
    assert story.broken() == set()


# Each breaks the rule that it is named after.
BROKEN: dict[str, list[Callable[[], Story]]] = {
    "what_happened_is_counted": [
        lambda: _counted(enqueued=1, started=1, wait=1, run=1),
        lambda: _counted(enqueued=2, started=1, wait=1, run=1, succeeded=1),
        lambda: _counted(enqueued=1, started=1, wait=1, run=1, succeeded=1, rescued=1),
    ],
    "an_acknowledged_job_exists": [lambda: Story().asked("quick", "p-1", ids=["1"])],
    "what_was_not_kept_is_not_there": [
        lambda: Story().asked("quick", "p-1", how="rollback", answer="fail").job(asked=False).claim().succeed()
    ],
    "many_are_kept_all_or_none": [
        lambda: Story().asked("quick", "p-1", "p-2", how="bulk", answer="info").job(asked=False).claim().succeed()
    ],
    "no_job_comes_from_nowhere": [
        lambda: Story().job(asked=False).claim().succeed(),
        lambda: Story().job().claim().succeed().job("2", asked=False, token="p-1").claim("b", "2").succeed("b", "2"),
    ],
    "a_follow_up_comes_with_the_success": [
        lambda: Story().job(task="parent").claim().succeed(),
        lambda: Story().job(task="enqueuer").claim().told("enqueued", child="77", token="x").succeed(),
    ],
    "jobs_move_as_the_lifecycle_says": [
        lambda: Story().job().claim().succeed().to("queued", fence=None, life=2, attempt=0).claim("b").succeed("b"),
        lambda: Story().job().claim().to("failed", error_code="CRASHED").to("queued", fence=None),
        lambda: Story().job().claim().to("failed", error_code="CRASHED").to("queued", fence=None, life=2, attempt=0),
        lambda: Story().job().claim().to("failed", error_code="CRASHED").people("pause", state="failed"),
    ],
    "a_job_has_one_holder": [
        lambda: Story().job().claim("a").to("running", fence="b", attempt=1).succeed("b"),
        lambda: Story().job().claim("a").give_back("lost").claim("a").succeed("a"),
        lambda: Story().job().claim("a").told("end").to("succeeded", fence="b"),
    ],
    "success_is_of_its_holder": [
        lambda: Story().job().claim("a").give_back("lost").claim("b").told("end", "a").to("succeeded", result="p-1"),
        lambda: Story().job().claim("a").told("end").to("succeeded", result="p-2"),
        lambda: Story().job().claim("a").to("succeeded", result="p-1").later(1).told("end"),
    ],
    "an_end_is_of_its_holder": [
        lambda: Story().job().claim().later(2).to("failed", error_code="CRASHED"),
        lambda: Story().job().claim().later(2).to("queued", fence=None),
    ],
    "who_lost_a_job_keeps_nothing": [
        lambda: _saved(3).claim("b", saved=3).told("kept", "a", number=4, asked=START + 30),
        lambda: _a_step_of_a_zombie(),
        lambda: _went_back("checkpoint"),
        lambda: _went_back("done"),
    ],
    "unknown_tasks_wait": [lambda: Story().job(task="unheard_of").claim()],
    "handlers_run_under_a_claim": [
        lambda: Story().job().told("begin", "z").claim().succeed(),
        lambda: Story().job().claim().told("begin").succeed(),
    ],
    "everything_ends": [lambda: Story().job(), lambda: Story().job().claim(), lambda: Story().job().to("paused")],
    "jobs_end_as_they_should": [
        lambda: Story().job().claim().to("failed", error_code="OperationalError"),
        lambda: Story().job().to("cancelled"),
    ],
    "effects_committed_with_success_happen_once": [
        lambda: Story().job(task="ledger").claim().succeed(),
        lambda: _with_ledger(Story().job(task="ledger").claim().succeed(), "a", "a"),
        lambda: _with_ledger(Story().job(task="ledger").claim().give_back("lost").claim("b").succeed("b"), "a"),
        lambda: _with_ledger(Story().job(task="ledger").claim().to("failed", error_code="CRASHED"), "a"),
    ],
    "outside_effects_happen_at_least_once": [
        lambda: Story().job(task="outside").claim().succeed(),
        lambda: Story().job(task="outside").claim().told("effect").told("effect").succeed(),
    ],
    "a_step_is_done_once": [lambda: _a_step_again()],
    "a_checkpoint_is_there_for_the_next": [
        lambda: _saved(3).claim("b", saved=2).succeed("b")
    ],
    "attempts_are_counted": [
        lambda: Story().job(max_attempts=1).claim().give_back("crashed", crashes=1).claim("b").succeed("b"),
        lambda: Story().job().to("running", fence="a", worker="w0.1~a").told("begin").succeed(),
        lambda: Story().job().claim().give_back("lost", attempt=-1).claim("b").succeed("b"),
    ],
    "an_attempt_is_charged_by_its_outcome": [
        lambda: Story().job().claim().give_back("released", attempt=1).claim("b").succeed("b"),
        lambda: Story().job().claim().give_back("errored", attempt=0).claim("b").succeed("b"),
    ],
    "nobody_is_robbed": [
        lambda: Story().job().claim().give_back("lost").claim("b").told("kept", "a", number=1),
        lambda: _after_an_outage().give_back("lost").claim("b").told("kept", "a", number=1),
    ],
    "only_its_own_errors_are_charged": [
        lambda: Story().job().claim().attempt("errored", code="OperationalError").to("queued", fence=None)
    ],
    "a_crash_is_charged_to_whoever_was_alone": [lambda: _gone("lost", 3), lambda: _charged_in_company()],
    "three_crashes_quarantine": [
        lambda: _gone("crashed", 3, max_attempts=9),
        lambda: Story().job().claim().to("failed", error_code="QUARANTINED", crashes=1),
        lambda: Story().job(crashes=3),
        lambda: Story().job().claim().give_back("errored", crashes=1).claim("b").succeed("b"),
    ],
    "nothing_goes_round_in_circles": [lambda: _gone("released", 60).claim("z").succeed("z")],
    "nothing_starts_before_it_is_due": [lambda: Story().job(run_at=moment(START + 10)).claim().succeed()],
    "nothing_starts_after_its_expiry": [
        lambda: _expiring(1.5).claim().succeed(),
        lambda: _expiring(3).claim(begin=False).later(5).told("begin").succeed(),
    ],
    "equal_jobs_are_one": [
        lambda: Story().job("1", "keyed", key="k").job("2", "keyed", key="k").claim().succeed()
    ],
    "a_tick_has_one_job": [
        lambda: Story().job("1", "tick", correlation_id="tick@5").job("2", "tick", correlation_id="tick@5")
    ],
    "a_cancel_is_kept": [
        lambda: Story().job().people("cancel", state="cancelled").claim().succeed(),
        lambda: Story().job().claim().to("running", cancel_requested=True).give_back("errored").claim("b").succeed("b"),
        lambda: Story().job().claim().to("running", pause_requested=True).give_back("released").claim("b").succeed("b"),
    ],
    "a_pause_holds": [
        lambda: Story().job(queue="side").people("hold", None, queue="side").claim().later(9),
        lambda: Story().job(task="doze").people("hold", None, task="doze").claim(),
        lambda: Story().job(task="nap", token="t").people("hold", None, task="nap", where={"token": "t"}).claim(),
    ],
    "who_stops_gives_its_grace": [
        lambda: _given_back_at_once(), lambda: _given_back_at_once(ended=8), lambda: _given_back_at_once(worker="w0.2"),
    ],
    "producers_meet_no_error_of_their_own": [
        lambda: Story().asked("quick", "p-1", answer="fail", error="StoreError: refused"),
        lambda: Story().event("ended", role="producer", name="p0.1", status=1, asked=""),
    ],
    "nothing_is_left_behind": [
        lambda: _with(Story(), leases=[{"fence": "a", "worker": "w"}]),
        lambda: _with(Story(), left=[99]),
        lambda: Story().event("outlived", program=5, runner=4, job="1"),
    ],
    "workers_end_as_asked": [
        lambda: _ended(-15, "term").event("at work", name="w0.1"), lambda: _ended(-15, ""),
        lambda: _ended(-15, "term").logged("INFO worker w0.1 starts"), lambda: _ended(2, ""), lambda: _ended(0, ""),
        lambda: Story().event("would not end", role="worker", name="w0.1", seconds=20.0),
    ],
    "the_log_tells_the_truth": [
        lambda: _with_ledger(Story().job(task="ledger").claim().succeed(), "a").logged(
            "WARNING job 1 (ledger) attempt 1 of 3 failed after 0.120 s: NOT_COMMITTED: so it seems; runs again in 1 s"
        ),
        lambda: Story().job().claim().succeed().logged("WARNING job 1 was taken over by another worker; …"),
    ],
    "workers_meet_no_error_of_their_own": [
        lambda: Story().logged("ERROR oh\nTraceback (most recent call last):\n  File\nBrokenPipeError: [Errno 32]")
    ],
    "rescues_are_quick": [lambda: _slow_rescues()],
    "nothing_stands_still": [
        lambda: _served().job("1").job("2").claim().later(30).claim("a", "2").succeed("a", "2")
    ],
    "silence_costs_the_lease": [lambda: _kept_in_silence()],
    "priorities_go_first": [lambda: _low_ones_first()],
    "nobody_starves": [lambda: _served().job().later(100).claim().succeed()],
    "workers_stop_in_time": [lambda: _ended(0, "term", took=9.0)],
    "everything_settles": [lambda: Story().event("settled", seconds=99.0, unfinished=3)],
}  # fmt: skip


def _with(story: Story, **evidence: Any) -> Story:
    for name, value in evidence.items():
        setattr(story.evidence, name, value)
    return story


def _with_ledger(story: Story, *fences: str) -> Story:
    story.evidence.ledger += [("1", fence, 1, "p-1") for fence in fences]
    return story


def _a_step_again() -> Story:
    story = Story().job(task="steps").claim().told("step", name="one")
    story.evidence.steps.append({"job_id": "1", "name": "one", "ended_at": moment(story.at + 0.1), "result": '"a"'})
    return story.give_back("lost").claim("b").told("step", "b", name="one").succeed("b")


def _a_step_of_a_zombie() -> Story:
    story = Story().job(task="steps").claim().told("step", name="one").give_back("lost").claim("b").later(2)
    story.evidence.steps.append({"job_id": "1", "name": "one", "ended_at": moment(story.at), "result": '"a"'})
    return story.succeed("b")


def _went_back(column: str) -> Story:
    story = Story().job().claim()
    for number in (1, 4, 3):
        story.to("running", "1", **{column: number})
    return story.succeed()


def _after_an_outage() -> Story:
    story = Story().job().claim().event("fault", fault="server stopped", stops_all=True, number=1)
    return story.later(4).event("over", number=1)


def _given_back_at_once(ended: int = 0, worker: str = "w0.1") -> Story:
    """By a worker that was just asked to stop, and that ends this process because of another job in it."""
    story = Story().job(task="nap").claim(pid=7)
    asked_at = story.at
    if ended or worker != "w0.1":
        story.logged(ENDING.format(ended or 7), worker)
    story.give_back("released").claim("b").succeed("b")
    return story.event("ended", role="worker", name="w0.1", status=0, asked="term", asked_at=asked_at)


def _kept_in_silence() -> Story:
    story = _served()
    for number in ("1", "2"):
        story.job(number).claim("a", number).event("fault", fault="freeze worker", whom="w0.1", number=number)
        story.later(9).event("over", number=number).succeed("a", number)
    return story


def _low_ones_first() -> Story:
    story = _served()
    for number in range(24):
        story.job(str(number), priority=5 if number % 2 else -5, run_at=moment(story.at))
    for number in (*range(0, 24, 2), *range(1, 24, 2)):
        story.claim("a", str(number)).succeed("a", str(number))
    return story


def _gone(outcome: str, times: int, **row: Any) -> Story:
    """Claimed and given back, again and again."""
    story = Story().job(**row)
    for number in range(times):
        story.claim(f"f{number}").give_back(outcome, f"f{number}")
    return story


def _saved(number: int) -> Story:
    return Story().job(task="checkpoints").claim(saved=0).told("kept", number=number).give_back("lost")


def _expiring(seconds: float) -> Story:
    return Story().job(task="expiring", expires_at=moment(START + seconds))


def _charged_in_company() -> Story:
    story = Story().job("1").job("2").claim("a", "1", pid=10).claim("a", "2", pid=10)
    story.give_back("crashed", "a", "1")
    story.at -= 0.95
    return story.give_back("crashed", "a", "2").claim("b", "1").succeed("b", "1").claim("b", "2").succeed("b", "2")


def _ended(status: int, asked: str, took: float = 1.0) -> Story:
    story = Story().event("started", role="worker", name="w0.1", pid=1).later(took)
    return story.event("ended", role="worker", name="w0.1", status=status, asked=asked, asked_at=story.at - took)


def _slow_rescues() -> Story:
    story = _served()
    for number in range(12):
        job = str(number)
        story.job(job).claim("a", job).later(20).event("fault", fault="kill worker", whom="w0.1", number=number)
        story.event("over", number=number).later(6).give_back("lost", "a", job, run_at=moment(START)).claim("b", job)
        story.succeed("b", job).later(20)
    return story


def _counted(**counts: int) -> Story:
    """A job that succeeded, and what the counters say."""
    story = Story().job().claim().succeed()
    counted = Counter({Happening("default", "quick", what): n for what, n in counts.items()})
    story.evidence.counted = {"minute": counted, "total": counted}
    return story


def test_who_shared_a_process_with_a_job_that_does_not_stop_has_had_its_grace() -> None:
    assert "who_stops_gives_its_grace" not in _given_back_at_once(ended=7).broken()


def test_sigterm_ends_a_worker_that_has_not_begun() -> None:
    assert "workers_end_as_asked" not in _ended(-15, "term").broken()


def test_counts_of_all_that_happened_break_no_rule() -> None:
    assert "what_happened_is_counted" not in _counted(enqueued=1, started=1, wait=1, run=1, succeeded=1).broken()


def _served() -> Story:
    """By a worker that lives through it all."""
    story = Story().event("at work", name="w0.9").later(5)
    ended = story.at + 1000
    return story.event("ended", at=ended, role="worker", name="w0.9", status=0, asked="term", asked_at=ended - 1)


@pytest.mark.parametrize(
    ("rule", "number"), [(rule, n) for rule, stories in BROKEN.items() for n in range(len(stories))]
)
def test_a_history_that_breaks_a_rule_is_accused_of_it(rule: str, number: int) -> None:
    assert rule in BROKEN[rule][number]().broken()


def test_every_rule_has_a_history_that_breaks_it() -> None:
    assert set(BROKEN) == {*RULES, *BARS}


def test_the_shortest_history_is_told_in_order() -> None:
    story = (
        Story()
        .job("1")
        .claim("a", "1")
        .give_back("lost", "a", "1")
        .job("2", "ledger")
        .claim("a", "2")
        .succeed("a", "2")
    )
    history = History(story.evidence)
    assert shortest(history, judge(history)) in ("1", "2")
    told = timeline(history, "2")
    assert [line.split()[1] for line in told] == ["insert", "update", "handler:", "handler:", "update"]
    assert [line.split()[0] for line in told] == sorted(line.split()[0] for line in told)


def test_what_judges_imports_nothing_of_ours() -> None:
    judges = "import sys, tests.chaos.checker, tests.chaos.evidence, tests.chaos.liveness, tests.chaos.report"
    code = f"{judges}; sys.exit(any(name.split('.')[0] == 'holdfast' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
