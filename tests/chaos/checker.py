"""Judges what a campaign has left behind. Imports nothing of Holdfast: what must hold is written here once more, from
the documentation. Each rule is a function of the history that yields what it finds wrong."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from tests.chaos.evidence import FINISHED, Asked, Evidence, Happening, Version, instant
from tests.chaos.kinds import CRASHES, KINDS, Kind

EPSILON = 0.02  # seconds: what is told in milliseconds, by two clocks of one machine
QUARANTINE = 3  # charged crashes in a row that fail a job
FREE_LOSSES = 2  # losses in company, in a row, that cost nothing
FORGOTTEN = 10.0  # seconds around a crash of the server in which handlers may run under claims that it forgot
ALIVE = 0.5  # seconds that a process lives on after its job was taken back, to be robbed of it
HELD_UP = 8.0  # seconds around a fault that may have kept a worker from renewing its leases
MANY_CLAIMS = 40  # of one job in one life: something goes round in circles
LEASE, GRACE = 3.0, 5.0  # seconds: what workers are given
LATE = 1.0  # seconds: a version of a row is written before it is committed, and seen by others only then


class Violation(NamedTuple):
    rule: str
    text: str
    job: str | None = None


@dataclass
class Claim:
    """From the version that says running to the one that ends it."""

    job: str
    taken: Version
    ended: Version | None = None
    outcome: str | None = None  # of the history of attempts: crashed, lost, errored, …
    told: list[dict[str, Any]] = field(default_factory=list)  # lines its handler left

    @property
    def fence(self) -> str:
        return str(self.taken.fence)

    @property
    def worker(self) -> str:
        """The name its worker was given."""
        return str(self.taken.row.get("worker") or "").partition("~")[0]

    def said(self, what: str) -> list[dict[str, Any]]:
        return [line for line in self.told if line["what"] == what]


class History:
    """The evidence, put in order by job."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.jobs: dict[str, list[Version]] = defaultdict(list)
        for version in evidence.versions:
            self.jobs[version.job].append(version)
        self.claims: dict[str, list[Claim]] = defaultdict(list)
        self.by_fence: dict[tuple[str, str], Claim] = {}
        for job, versions in self.jobs.items():
            self._find_claims(job, versions)
        for row in evidence.attempts:
            if claim := self.by_fence.get((row["job_id"], row["fence"])):
                claim.outcome = row["outcome"]
        self.stray: list[dict[str, Any]] = []  # lines of handlers under a claim that never was
        for line in evidence.effects:
            claim = self.by_fence.get((line["job"], line["fence"]))
            (self.stray if claim is None else claim.told).append(line)

    def _find_claims(self, job: str, versions: list[Version]) -> None:
        before: Version | None = None
        for version in versions:
            running = version.op != "delete" and version.state == "running"
            if running and (before is None or before.state != "running" or before.fence != version.fence):
                claim = Claim(job, version)
                self.claims[job].append(claim)
                self.by_fence[job, claim.fence] = claim
            elif not running and before is not None and before.state == "running":
                self.claims[job][-1].ended = version
            before = version

    def steps(self) -> Iterator[tuple[Version, Version]]:
        """Two versions of a job, one after the other."""
        for versions in self.jobs.values():
            live = [version for version in versions if version.op != "delete"]
            yield from pairwise(live)

    def all_claims(self) -> Iterator[Claim]:
        for claims in self.claims.values():
            yield from claims

    def last(self, job: str) -> Version:
        return self.jobs[job][-1]

    def kind(self, job: str) -> Kind:
        return KINDS.get(self.jobs[job][0].task, Kind())

    @cached_property
    def tokens(self) -> dict[str, list[str]]:
        """token -> jobs that carry it"""
        found: dict[str, list[str]] = defaultdict(list)
        for job, versions in self.jobs.items():
            if token := token_of(versions[0]):
                found[token].append(job)
        return found

    @cached_property
    def retries(self) -> dict[str, list[Asked]]:
        found: dict[str, list[Asked]] = defaultdict(list)
        for action in self.evidence.actions:
            if action.fields["verb"] == "retry" and action.answer != "fail":
                found[action.fields["job"]].append(action)
        return found


def arguments_of(version: Version) -> dict[str, Any]:
    args = version.row.get("args")
    found = json.loads(args) if isinstance(args, str) else args
    return found if isinstance(found, dict) else {}


def token_of(version: Version) -> str | None:
    return arguments_of(version).get("token")


Rule = Callable[[History], Iterator[Violation]]
RULES: dict[str, Rule] = {}


def rule(check: Rule) -> Rule:
    RULES[check.__name__] = check
    return check


def judge(history: History) -> list[Violation]:
    return [found for check in RULES.values() for found in check(history)]


# -- enqueued ----------------------------------------------------------------------------------------------------


@rule
def an_acknowledged_job_exists(history: History) -> Iterator[Violation]:
    for asked in history.evidence.enqueues:
        if asked.answer != "ok":
            continue
        for job in asked.told["ids"]:
            if job not in history.jobs:
                yield Violation(
                    "an_acknowledged_job_exists", f"enqueued {asked.fields['jobs']}, and there is no job {job}", job
                )


@rule
def what_was_not_kept_is_not_there(history: History) -> Iterator[Violation]:
    """A rollback, or an enqueue that was refused, leaves no job."""
    for asked in history.evidence.enqueues:
        if asked.answer != "fail":
            continue
        for wanted in asked.fields["jobs"]:
            for job in history.tokens.get(wanted["token"], []):
                text = f"{asked.fields['how']} of {wanted} ended with {asked.told.get('error')}, and job {job} is there"
                yield Violation("what_was_not_kept_is_not_there", text, job)


@rule
def many_are_kept_all_or_none(history: History) -> Iterator[Violation]:
    for asked in history.evidence.enqueues:
        if asked.answer == "fail" or len(asked.fields["jobs"]) < 2:
            continue
        unkeyed = [wanted["token"] for wanted in asked.fields["jobs"] if "key" not in wanted]
        there = [token for token in unkeyed if token in history.tokens]
        if there and len(there) != len(unkeyed):
            missing = sorted(set(unkeyed) - set(there))
            yield Violation(
                "many_are_kept_all_or_none", f"of {asked.fields['how']} {len(unkeyed)}, {missing} are missing"
            )


@rule
def no_job_comes_from_nowhere(history: History) -> Iterator[Violation]:
    known = {wanted["token"] for asked in history.evidence.enqueues for wanted in asked.fields["jobs"]}
    for token, jobs in history.tokens.items():
        if token.partition("/")[0] not in known:
            yield Violation("no_job_comes_from_nowhere", f"nobody asked for {token!r}", jobs[0])
        elif len(jobs) > 1:
            yield Violation("no_job_comes_from_nowhere", f"{token!r} was asked for once, and is jobs {jobs}", jobs[1])


@rule
def a_follow_up_comes_with_the_success(history: History) -> Iterator[Violation]:
    """What a handler enqueued on its own transaction exists if, and only if, the handler's job has succeeded; what it
    enqueued otherwise, and was told of, exists."""
    for job, versions in history.jobs.items():
        if versions[0].task == "parent":
            token = token_of(versions[0])
            children = len(history.tokens.get(f"{token}/child", []))
            if children != (history.last(job).state == "succeeded"):
                state = history.last(job).state
                yield Violation("a_follow_up_comes_with_the_success", f"it is {state} and has {children} children", job)
    for line in history.evidence.effects:
        if line["what"] == "enqueued" and line["child"] not in history.jobs:
            yield Violation("a_follow_up_comes_with_the_success", f"its child {line['child']} is gone", line["job"])


# -- moved -------------------------------------------------------------------------------------------------------

ALLOWED = {
    "queued": {"queued", "running", "paused", "cancelled"},
    "running": {"running", "queued", "succeeded", "failed", "paused", "cancelled"},
    "paused": {"paused", "queued", "cancelled"},
    "failed": {"failed", "queued", "cancelled"},
    "cancelled": {"cancelled", "queued"},
    "succeeded": {"succeeded"},
}


@rule
def jobs_move_as_the_lifecycle_says(history: History) -> Iterator[Violation]:
    name = "jobs_move_as_the_lifecycle_says"
    for before, after in history.steps():
        if after.state not in ALLOWED[before.state]:
            yield Violation(name, f"{before.state} -> {after.state}", after.job)
        elif before.finished and after.state == "queued":
            if after.life != before.life + 1 or after.attempt != 0:
                yield Violation(name, f"it came back from {before.state} without another life", after.job)
            elif not any(asked.at <= after.at + EPSILON for asked in history.retries.get(after.job, [])):
                yield Violation(name, f"it came back from {before.state}, and nobody had asked for it", after.job)
        elif after.life != before.life:
            yield Violation(name, f"another life from {before.state}", after.job)
    for job, versions in history.jobs.items():
        if any(version.op == "delete" for version in versions):
            yield Violation(name, "it was deleted", job)
    for action in history.evidence.actions:
        if action.fields["verb"] == "pause" and action.answer == "ok" and action.told.get("state") in FINISHED:
            yield Violation(name, f"a pause was taken, and it is {action.told['state']}", action.fields["job"])


@rule
def a_job_has_one_holder(history: History) -> Iterator[Violation]:
    """Only a claim gives a new fence, only to a job that was queued, and never one that the job has had before."""
    for job, versions in history.jobs.items():
        had: set[str | None] = set()
        before: Version | None = None
        for version in versions:
            if version.op == "delete":
                continue
            claimed = version.state == "running" and (before is None or before.state != "running")
            given_back = version.fence is None and version.state in ("queued", "paused", "cancelled")
            if before is not None and version.fence != before.fence and not claimed and not given_back:
                text = f"its fence changed while it went from {before.state} to {version.state}"
                yield Violation("a_job_has_one_holder", text, job)
            elif claimed and version.fence in had:
                yield Violation("a_job_has_one_holder", f"fence {version.fence} came twice", job)
            had.add(version.fence)
            before = version


@rule
def success_is_of_its_holder(history: History) -> Iterator[Violation]:
    """Whoever brought the success had come to the end of the handler by then, under the fence that the row has."""
    for job in history.jobs:
        last = history.last(job)
        if last.state != "succeeded" or last.op == "delete":
            continue
        claim = history.by_fence.get((job, str(last.fence)))
        ended = last if claim is None or claim.ended is None else claim.ended
        if claim is None or not any(line["at"] <= ended.at + EPSILON for line in claim.said("end")):
            yield Violation("success_is_of_its_holder", f"nobody had come to the end under fence {last.fence}", job)
        elif history.kind(job).token and last.row["result"] is not None:
            result = last.row["result"]
            told = json.loads(result) if isinstance(result, str) and result.startswith('"') else result
            if told != token_of(history.jobs[job][0]):
                yield Violation("success_is_of_its_holder", f"its result is {told!r}, another job's", job)


@rule
def an_end_is_of_its_holder(history: History) -> Iterator[Violation]:
    """A handler that began, and whose job did not succeed, leaves a line in the history of attempts under its own
    fence. If there is none, someone else has ended the job: who had lost it, say. (A worker that was asked to stop may
    not know what has begun when it gives back the rest.)"""
    stopped = _asked_to_stop(history)
    for claim in history.all_claims():
        if claim.ended is None or claim.ended.op == "delete" or claim.ended.state == "succeeded":
            continue
        if claim.ended.at > stopped.get(claim.worker, float("inf")):
            continue
        if claim.outcome is None and any(line["at"] < claim.ended.at - LATE for line in claim.said("begin")):
            text = f"it went from running to {claim.ended.state}, and no outcome of fence {claim.fence} is known"
            yield Violation("an_end_is_of_its_holder", text, claim.job)


def _asked_to_stop(history: History) -> dict[str, float]:
    """Workers that were asked to end in good order, and when."""
    ends = [event for event in history.evidence.events if event["what"] == "ended"]
    return {event["name"]: event["asked_at"] for event in ends if event["asked"] == "term"}


@rule
def who_lost_a_job_keeps_nothing(history: History) -> Iterator[Violation]:
    """Checkpoints, steps and progress are taken only from the holder."""
    name = "who_lost_a_job_keeps_nothing"
    for claim in history.all_claims():
        if claim.ended is None or claim.outcome is None:
            continue
        for line in claim.told:
            if line.get("asked", 0.0) > claim.ended.at + LATE:
                late = line["asked"] - claim.ended.at
                yield Violation(name, f"{line['what']} asked for {late:.3f} s after its claim had ended", claim.job)
    for kept in history.evidence.steps:
        step_of = history.by_fence.get((kept["job_id"], str(kept["result"]).strip('"')))
        ended = instant(kept["ended_at"]) or 0.0
        if step_of and step_of.ended and step_of.outcome and ended > step_of.ended.at + LATE:
            yield Violation(name, f"step {kept['name']} was kept after its claim had ended", kept["job_id"])
    for claim in history.all_claims():
        for column in ("checkpoint", "done"):
            told = [float(value) for value in _written(history, claim, column)]
            if told != sorted(told):
                yield Violation(name, f"{column} went back: {told}", claim.job)


def _written(history: History, claim: Claim, column: str) -> Iterator[Any]:
    """What was written to this column under a claim; not what it found there."""
    versions = [v for v in history.jobs[claim.job] if v.fence == claim.fence and v.op != "delete"]
    for before, after in pairwise(versions):
        if after.row.get(column) not in (None, before.row.get(column)):
            yield after.row[column]


@rule
def unknown_tasks_wait(history: History) -> Iterator[Violation]:
    for job, versions in history.jobs.items():
        if versions[0].task == "unheard_of" and len(versions) > 1:
            yield Violation("unknown_tasks_wait", f"no worker knows its task, and it is {versions[-1].state}", job)


@rule
def handlers_run_under_a_claim(history: History) -> Iterator[Violation]:
    crashes = [event["at"] for event in history.evidence.events if event.get("fault") == "server stopped"]
    for line in history.stray:
        # Claims are committed without waiting for the disk: a server that is stopped at once may forget the last ones.
        # Who runs under such a claim has no say any more, as the other rules show.
        if any(-FORGOTTEN < line["at"] - at < FORGOTTEN for at in crashes):
            continue
        text = f"{line['task']} told {line['what']!r} under a claim that was never committed, fence {line['fence']}"
        yield Violation("handlers_run_under_a_claim", text, line["job"])
    for claim in history.all_claims():
        begun = claim.said("begin")
        if len(begun) > 1:
            yield Violation("handlers_run_under_a_claim", f"it was started {len(begun)} times by one claim", claim.job)
        if any(line["at"] < claim.taken.at - EPSILON for line in begun):
            yield Violation("handlers_run_under_a_claim", "it was started before it was claimed", claim.job)


@rule
def everything_ends(history: History) -> Iterator[Violation]:
    for job in history.jobs:
        last = history.last(job)
        if not last.finished and last.op != "delete" and last.task != "unheard_of":
            yield Violation("everything_ends", f"{last.task} is {last.state} for ever", job)


@rule
def jobs_end_as_they_should(history: History) -> Iterator[Violation]:
    """Each in a state that its kind can end in; a crash may fail any, and people may cancel any."""
    cancelled = {
        a.fields["job"] for a in history.evidence.actions if a.fields["verb"] == "cancel" and a.answer != "fail"
    }
    for job in history.jobs:
        last, kind = history.last(job), history.kind(job)
        state, code = last.state, last.row["error_code"]
        if not last.finished or state in kind.ends or (state == "cancelled" and job in cancelled):
            continue
        if not (state == "failed" and code in CRASHES):
            yield Violation("jobs_end_as_they_should", f"{last.task} ended {state} ({code})", job)


# -- effects -----------------------------------------------------------------------------------------------------


@rule
def effects_committed_with_success_happen_once(history: History) -> Iterator[Violation]:
    name = "effects_committed_with_success_happen_once"
    rows: dict[str, list[tuple[str, str, int, str]]] = defaultdict(list)
    for row in history.evidence.ledger:
        rows[row[0]].append(row)
    for job in history.jobs:
        last, found = history.last(job), rows.pop(job, [])
        if not history.kind(job).ledger:
            continue
        if len(found) != (last.state == "succeeded"):
            yield Violation(name, f"it is {last.state} and has {len(found)} rows in the ledger", job)
        for _, fence, attempt, _ in found:
            if fence != str(last.fence) or attempt != last.attempt:
                yield Violation(name, f"the ledger's row is of fence {fence}, the success of {last.fence}", job)
    for job in rows:
        yield Violation(name, "a row in the ledger without a job", job)


@rule
def outside_effects_happen_at_least_once(history: History) -> Iterator[Violation]:
    name = "outside_effects_happen_at_least_once"
    for job, versions in history.jobs.items():
        if versions[0].task not in ("outside", "aoutside"):
            continue
        done = Counter(line["fence"] for claim in history.claims[job] for line in claim.said("effect"))
        if history.last(job).state == "succeeded" and not done:
            yield Violation(name, "it succeeded and did nothing", job)
        for fence, count in done.items():
            if count > 1:
                yield Violation(name, f"{count} times under one claim, {fence}", job)


@rule
def a_step_is_done_once(history: History) -> Iterator[Violation]:
    """A step whose result was kept is not run again."""
    calls: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in history.evidence.effects:
        if line["what"] == "step":
            calls[line["job"], line["name"]].append(line["at"])
    for kept in history.evidence.steps:
        ended = instant(kept["ended_at"]) or 0.0
        if any(at > ended + EPSILON for at in calls[kept["job_id"], kept["name"]]):
            yield Violation("a_step_is_done_once", f"step {kept['name']} ran again after it was kept", kept["job_id"])


@rule
def a_checkpoint_is_there_for_the_next(history: History) -> Iterator[Violation]:
    for job, claims in history.claims.items():
        newest = life = 0
        for claim in claims:
            if claim.taken.life != life:
                newest, life = 0, claim.taken.life
            for line in claim.said("begin"):
                if "saved" in line and line["saved"] < newest:
                    text = f"it had saved {newest}, and the next attempt found {line['saved']}"
                    yield Violation("a_checkpoint_is_there_for_the_next", text, job)
            # What was saved after the claim had ended would have been refused.
            newest = max([newest, *(line["number"] for line in claim.said("kept"))])


# -- attempts and crashes ----------------------------------------------------------------------------------------


@rule
def attempts_are_counted(history: History) -> Iterator[Violation]:
    """One with each claim; given back or kept when it ends; never more than allowed."""
    for before, after in history.steps():
        change = after.attempt - before.attempt
        if after.attempt > int(after.row["max_attempts"]):
            yield Violation(
                "attempts_are_counted", f"attempt {after.attempt} of {after.row['max_attempts']}", after.job
            )
        if after.life != before.life:
            continue
        if after.state == "running" and before.state != "running":
            allowed: tuple[int, ...] = (1,)
        elif before.state == "running" and after.state not in ("running", "succeeded"):
            allowed = (0, -1)
        else:
            allowed = (0,)
        if change not in allowed:
            text = f"{before.state} -> {after.state}: attempt {before.attempt} -> {after.attempt}"
            yield Violation("attempts_are_counted", text, after.job)


FREE = ("lost", "released", "snoozed", "parked")
CHARGED = ("crashed", "errored", "timed_out")


@rule
def an_attempt_is_charged_by_its_outcome(history: History) -> Iterator[Violation]:
    """What was given back, parked, snoozed or lost in company is free; an error, a timeout and a crash alone cost."""
    for claim in history.all_claims():
        if claim.ended is None or claim.ended.life != claim.taken.life:
            continue
        cost = 1 + claim.ended.attempt - claim.taken.attempt
        if (claim.outcome in FREE and cost != 0) or (claim.outcome in CHARGED and cost != 1):
            text = f"{claim.outcome}: attempt {claim.taken.attempt} -> {claim.ended.attempt} ({claim.ended.state})"
            yield Violation("an_attempt_is_charged_by_its_outcome", text, claim.job)


@rule
def nobody_is_robbed(history: History) -> Iterator[Violation]:
    """A job is taken back only from who is dead, or was silent for as long as the lease. Here: its worker and its
    process lived on, and neither they nor the database had been held up."""
    events = history.evidence.events
    over = {event["number"]: event["at"] for event in events if event["what"] == "over"}
    faults = [(event, over.get(event["number"], event["at"])) for event in events if event["what"] == "fault"]
    last_line: dict[int, float] = {}
    for line in history.evidence.effects:
        last_line[line["pid"]] = line["at"]
    lived = {event["name"]: event["at"] for event in events if event["what"] == "ended"}
    for claim in history.all_claims():
        if claim.outcome not in ("lost", "crashed") or claim.ended is None:
            continue
        at = claim.ended.at
        held_up = any(begin < at < end for begin, end in _held(faults, claim.worker))
        if held_up or lived.get(claim.worker, float("inf")) < at + ALIVE:
            continue
        pids = {line["pid"] for line in claim.said("begin")}
        if pids and all(last_line[pid] > at + ALIVE for pid in pids):
            yield Violation("nobody_is_robbed", f"taken from {claim.worker}, which was alive and well", claim.job)


def _held(faults: list[tuple[dict[str, Any], float]], worker: str) -> Iterator[tuple[float, float]]:
    """When its leases may run out though it lives. After an outage everyone has one more lease to be heard."""
    for event, end in faults:
        if event.get("stops_all"):
            yield end + LEASE - LATE, end + HELD_UP
        elif event["fault"] in ("freeze runner", "cut backends") or (
            event["fault"] == "freeze worker" and event["whom"] == worker
        ):
            yield event["at"] - HELD_UP, end + HELD_UP


@rule
def only_its_own_errors_are_charged(history: History) -> Iterator[Violation]:
    """An attempt is charged for what its handler raised or a crash; not for an outage, a cut connection, a shutdown."""
    for row in history.evidence.attempts:
        job, code = row["job_id"], row["error_code"]
        if job not in history.jobs or code is None or row["outcome"] == "cancelled":
            continue
        kind = history.kind(job)
        if code not in kind.codes | {"CRASHED", "LOST", "QUARANTINED"}:
            told = f"{row['outcome']} {code}: {row.get('error_message')}"
            yield Violation("only_its_own_errors_are_charged", f"{history.last(job).task}: {told}", job)


@rule
def a_crash_is_charged_to_whoever_was_alone(history: History) -> Iterator[Violation]:
    """In company twice in a row for free, the third time charged; charged at once who had the process to itself."""
    name = "a_crash_is_charged_to_whoever_was_alone"
    lost_with: dict[int, list[Claim]] = defaultdict(list)
    for claim in history.all_claims():
        for line in claim.said("begin"):
            if claim.outcome in ("lost", "crashed"):
                lost_with[line["pid"]].append(claim)
    company: set[int] = set()
    for claims in lost_with.values():
        for claim in claims:
            if any(_together(claim, other) for other in claims if other is not claim):
                company.add(id(claim))
    for job, claims in history.claims.items():
        # Losses in company in a row: since the last other end, and since the last that tells what the job does.
        # What was given back may count as the one or the other.
        low = high = life = 0
        for claim in claims:
            if claim.taken.life != life:
                low, high, life = 0, 0, claim.taken.life
            if claim.outcome == "lost":
                low, high = low + 1, high + 1
                if low > FREE_LOSSES:
                    yield Violation(name, f"it was there {low} times in a row when its process died, uncharged", job)
            elif claim.outcome == "crashed":
                if id(claim) in company and high < FREE_LOSSES:
                    yield Violation(name, f"charged for a crash in company, after {high} free ones", job)
            else:
                low = 0
                if claim.outcome in ("errored", "timed_out", "cancelled"):
                    high = 0


def _together(one: Claim, other: Claim) -> bool:
    """Did both run when their process died? Both had begun, neither had ended, and the end was told at one time."""
    if one.ended is None or other.ended is None or one.job == other.job:
        return False
    if one.said("end") or other.said("end"):
        return False
    return abs(one.ended.at - other.ended.at) < 0.2


@rule
def three_crashes_quarantine(history: History) -> Iterator[Violation]:
    name = "three_crashes_quarantine"
    for job, versions in history.jobs.items():
        for version in versions:
            crashes = int(version.row.get("crashes") or 0)
            quarantined = version.row.get("error_code") == "QUARANTINED"
            if crashes >= QUARANTINE and version.state in ("queued", "running", "paused"):
                yield Violation(name, f"{crashes} crashes in a row, and it is {version.state}", job)
                break
            if quarantined and version.state == "failed" and crashes < QUARANTINE:
                yield Violation(name, f"quarantined after {crashes} crashes", job)
                break
        life = streak = 0
        for claim in history.claims[job]:
            if claim.taken.life != life:
                streak, life = 0, claim.taken.life
            if claim.outcome == "crashed":
                streak += 1
                if streak >= QUARANTINE and claim.ended and claim.ended.state == "queued":
                    yield Violation(name, f"{streak} charged crashes in a row, and it is tried again", job)
            elif claim.outcome in ("errored", "timed_out", "snoozed"):
                streak = 0
            if claim.outcome in ("errored", "timed_out") and claim.ended and claim.ended.state == "queued":
                crashes = int(claim.ended.row.get("crashes") or 0)
                if crashes:
                    yield Violation(name, f"it ended in words, and {crashes} crashes before that are remembered", job)


@rule
def nothing_goes_round_in_circles(history: History) -> Iterator[Violation]:
    for job, claims in history.claims.items():
        for life, count in Counter(claim.taken.life for claim in claims).items():
            if count > MANY_CLAIMS:
                yield Violation("nothing_goes_round_in_circles", f"claimed {count} times in life {life}", job)


# -- when --------------------------------------------------------------------------------------------------------


@rule
def nothing_starts_before_it_is_due(history: History) -> Iterator[Violation]:
    for before, after in history.steps():
        if after.state == "running" and before.state != "running":
            due = instant(before.row["run_at"]) or 0.0
            if after.at < due - EPSILON:
                text = f"claimed {due - after.at:.3f} s before it was due"
                yield Violation("nothing_starts_before_it_is_due", text, after.job)


@rule
def nothing_starts_after_its_expiry(history: History) -> Iterator[Violation]:
    """What has begun once expires no more."""
    for job, claims in history.claims.items():
        expiry = instant(history.jobs[job][0].row["expires_at"])
        if expiry is None:
            continue
        for claim in claims:
            if claim.taken.life > 1:
                break
            if claim.taken.at > expiry + EPSILON:
                text = f"claimed {claim.taken.at - expiry:.3f} s after its expiry"
                yield Violation("nothing_starts_after_its_expiry", text, job)
            begun = claim.said("begin")
            if begun and begun[0]["at"] > expiry + 0.1:
                late = begun[0]["at"] - expiry
                yield Violation("nothing_starts_after_its_expiry", f"begun {late:.3f} s after its expiry", job)
            if begun or claim.outcome is not None:
                break


@rule
def equal_jobs_are_one(history: History) -> Iterator[Violation]:
    """At every step of the audit at most one unfinished job of a task has a key."""
    holders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for version in history.evidence.versions:
        key = version.row.get("key")
        if key is None or version.op == "delete":
            continue
        at_once = holders[version.task, key]
        if version.finished:
            at_once.discard(version.job)
        else:
            at_once.add(version.job)
            if len(at_once) > 1:
                yield Violation(
                    "equal_jobs_are_one", f"jobs {sorted(at_once)} of key {key} are unfinished at once", version.job
                )


@rule
def a_tick_has_one_job(history: History) -> Iterator[Violation]:
    ticks: dict[str, list[str]] = defaultdict(list)
    for job, versions in history.jobs.items():
        if versions[0].task == "tick" and versions[0].row["correlation_id"]:
            ticks[versions[0].row["correlation_id"]].append(job)
    for tick, jobs in ticks.items():
        if len(jobs) > 1:
            yield Violation("a_tick_has_one_job", f"{tick} has jobs {jobs}", jobs[1])


# -- what people asked -------------------------------------------------------------------------------------------


@rule
def a_cancel_is_kept(history: History) -> Iterator[Violation]:
    """Taken while the job waits, it never runs; while it runs, it ends cancelled or succeeded. A pause of a running job
    does not let it go back to the queue."""
    for before, after in history.steps():
        if before.state != "running" or after.state == "running":
            continue
        if before.row["cancel_requested"] and after.state not in ("cancelled", "succeeded"):
            yield Violation("a_cancel_is_kept", f"cancelled while it ran, and it is {after.state}", after.job)
        elif before.row["pause_requested"] and after.state == "queued":
            yield Violation("a_cancel_is_kept", "paused while it ran, and it is queued", after.job)
    for action in history.evidence.actions:
        fields = action.fields
        if fields["verb"] != "cancel" or action.answer != "ok" or action.told.get("state") != "cancelled":
            continue
        job = fields["job"]
        brought_back = [asked.at for asked in history.retries.get(job, []) if asked.until >= action.at]
        for claim in history.claims[job]:
            if claim.taken.at > action.until + EPSILON and not any(at <= claim.taken.at for at in brought_back):
                yield Violation("a_cancel_is_kept", "cancelled, and claimed after that", job)


@rule
def a_pause_holds(history: History) -> Iterator[Violation]:
    """From when a pause is taken until its end is asked for, nothing it means is claimed, or started if it pauses jobs
    by their arguments: workers judge those after the claim, and give back as held what one means."""
    actions = history.evidence.actions
    claims = sorted(history.all_claims(), key=lambda claim: claim.taken.at)
    for hold in actions:
        if hold.fields["verb"] != "hold" or hold.answer != "ok":
            continue
        what: dict[str, Any] = {name: hold.fields[name] for name in ("queue", "task", "where") if name in hold.fields}
        ends = [a.at for a in actions if a.fields["verb"] == "let_go" and a.at > hold.at and _same(a, what)]
        end = min(ends, default=history.evidence.settled)
        for claim in claims:
            if hold.until + EPSILON < claim.taken.at < end and _means(what, claim.taken):
                if "where" not in what:
                    yield Violation("a_pause_holds", f"claimed while {what} was paused", claim.job)
                elif claim.said("begin"):
                    yield Violation("a_pause_holds", f"claimed and started while {what} was paused", claim.job)


def _same(action: Asked, what: dict[str, Any]) -> bool:
    return all(action.fields.get(name) == value for name, value in what.items())


def _means(what: dict[str, Any], version: Version) -> bool:
    named = all(version.row[name] == what[name] for name in ("queue", "task") if name in what)
    return named and all(arguments_of(version).get(name) == value for name, value in what.get("where", {}).items())


@rule
def who_stops_gives_its_grace(history: History) -> Iterator[Violation]:
    """Asked once to stop, a worker gives back what runs only when the grace is over. (Who looks, at a checkpoint or
    between two steps, stops there; who meets an absent database is given back as well, and so is who shared a process
    with a job that had not stopped long before.)"""
    asked = _asked_to_stop(history)
    ended = r"ending runner process (\d+) because of a job that does not stop"
    found = [(line.worker, re.search(ended, line.text)) for line in history.evidence.log]
    shared = {(worker, int(process[1])) for worker, process in found if process}
    for event in history.evidence.events:
        if event["what"] == "fault" and event.get("again"):
            asked.pop(event["whom"], None)
    for claim in history.all_claims():
        at = asked.get(claim.worker)
        looks = claim.taken.task not in ("nap", "doze", "spawner", "keyed")
        begun = claim.said("begin")
        if at is None or looks or claim.outcome != "released" or claim.ended is None or not begun:
            continue
        if any((claim.worker, line["pid"]) in shared for line in begun):
            continue
        if at < claim.ended.at < at + GRACE - LATE:
            text = f"given back {claim.ended.at - at:.1f} s after its worker was asked to stop"
            yield Violation("who_stops_gives_its_grace", text, claim.job)


# -- when all is over --------------------------------------------------------------------------------------------


@rule
def nothing_is_left_behind(history: History) -> Iterator[Violation]:
    evidence = history.evidence
    if evidence.leases:
        yield Violation("nothing_is_left_behind", f"{len(evidence.leases)} leases: {evidence.leases[:3]}")
    if evidence.left:
        yield Violation("nothing_is_left_behind", f"processes {evidence.left} live on")
    for event in evidence.events:
        if event["what"] == "outlived":
            text = f"program {event['program']} lives on after process {event['runner']} that started it"
            yield Violation("nothing_is_left_behind", text, event["job"])


@rule
def what_happened_is_counted(history: History) -> Iterator[Violation]:
    """Once, for ever, by minute and by hour."""
    expected = Counter(_happenings(history))
    for grain, counted in (history.evidence.counted or {}).items():
        for one in sorted({*expected, *counted}):
            if one.what != "lost_claim" and counted[one] != expected[one]:  # those leave no trace in jobs
                name = f"by {grain}, {one.what} {one.detail} of {one.task} in {one.queue}"
                text = f"{name}: {counted[one]}, not {expected[one]}"
                yield Violation("what_happened_is_counted", text)


def _happenings(history: History) -> Iterator[Happening]:
    for versions in history.jobs.values():
        if versions[0].op == "insert":
            yield _happening(versions[0], "enqueued")
    for before, after in history.steps():
        if before.state == after.state:
            continue
        if after.state in FINISHED:
            told = {"failed": after.row["error_code"] or "", "cancelled": before.state}
            yield _happening(after, after.state, told.get(after.state, ""))
        if before.finished and after.state != "cancelled":
            yield _happening(after, "restarted", before.state)
    for claim in history.all_claims():
        yield _happening(claim.taken, "started")
        yield _happening(claim.taken, "wait")
        if claim.ended is None or claim.ended.op == "delete":
            continue
        rescued = claim.outcome in ("crashed", "lost")
        again = claim.ended.state in ("queued", "paused")
        failed = claim.outcome in ("errored", "timed_out")
        if rescued:
            yield _happening(claim.taken, "rescued")
        elif again and failed:
            yield _happening(claim.taken, "retried", str(claim.taken.attempt))
        elif again:
            yield _happening(claim.taken, "released")
        if not rescued and (failed or not again) and not _was_released(claim):
            yield _happening(claim.taken, "run")
        if (rescued or failed) and (again or claim.ended.state == "failed"):
            yield _happening(claim.taken, "error")


def _was_released(claim: Claim) -> bool:
    """Given back, and cancelled because people had asked for that."""
    assert claim.ended is not None
    return claim.ended.attempt < claim.taken.attempt


def _happening(version: Version, what: str, detail: str = "") -> Happening:
    return Happening(str(version.row["queue"]), version.task, what, detail)


@rule
def workers_end_as_asked(history: History) -> Iterator[Violation]:
    """Killed by us, or with status 0 after SIGTERM; with 5 where the database was away when it started. SIGTERM itself
    ends who has not come so far as to say a word."""
    at_work = {event["name"] for event in history.evidence.events if event["what"] == "at work"}
    away = [event["at"] for event in history.evidence.events if event.get("stops_all")]
    started = {event["name"]: event["at"] for event in history.evidence.events if event["what"] == "started"}
    heard = at_work | {line.worker for line in history.evidence.log}
    for event in history.evidence.events:
        if event["what"] == "would not end" and event["role"] == "worker":
            text = f"{event['name']} did not end within {event['seconds']:g} s"
            yield Violation("workers_end_as_asked", text)
        if event["what"] == "ended" and event["role"] == "worker":
            expected = {"kill": -9, "term": 0}.get(event["asked"])
            begun = started.get(event["name"], 0.0)
            if (
                event["status"] == 5
                and event["name"] not in at_work
                and any(begun - 5 < at < event["at"] for at in away)
            ):
                continue
            if event["status"] == -15 and event["asked"] == "term" and event["name"] not in heard:
                continue
            if event["status"] != expected:
                asked = event["asked"] or "nothing"
                yield Violation("workers_end_as_asked", f"{event['name']} ended with {event['status']}, asked: {asked}")


REFUSED = ("StoreError", "CheckViolation", "NotNullViolation", "UniqueViolation", "IntegrityError")


@rule
def producers_meet_no_error_of_their_own(history: History) -> Iterator[Violation]:
    """An enqueue fails because we roll it back or because the database is away, and not because it is refused."""
    name = "producers_meet_no_error_of_their_own"
    for asked in history.evidence.enqueues:
        error = str(asked.told.get("error", ""))
        if asked.answer == "fail" and error.startswith(REFUSED):
            yield Violation(name, f"{asked.fields['how']} of {asked.fields['jobs'][:3]}: {error}")
    for event in history.evidence.events:
        if event["what"] == "ended" and event["role"] == "producer" and event["status"] == 1:
            yield Violation(name, f"{event['name']} ended with an error")


@rule
def the_log_tells_the_truth(history: History) -> Iterator[Violation]:
    name = "the_log_tells_the_truth"
    for line in history.evidence.log:
        if found := re.search(r"job (\d+) \(\w+\) attempt (\d+) of \d+ failed.*: NOT_COMMITTED", line.text):
            job, attempt = found[1], int(found[2])
            if any(v.state == "succeeded" and v.attempt == attempt for v in history.jobs.get(job, [])):
                yield Violation(name, f"{line.worker}: {line.text[:200]}", job)
        if found := re.search(r"job (\d+) was taken over by another worker", line.text):
            held = [c for c in history.claims.get(found[1], []) if c.worker == line.worker]
            begun = [claim for claim in held if claim.taken.at <= line.at + EPSILON]
            if begun and all(claim.ended and claim.ended.state == "succeeded" for claim in begun):
                yield Violation(name, f"{line.worker}: {line.text[:200]}", found[1])


@rule
def workers_meet_no_error_of_their_own(history: History) -> Iterator[Violation]:
    for line in history.evidence.log:
        unexpected = "unexpected error in " in line.text
        if "Traceback (most recent call last)" in line.text or unexpected or "Fatal Python error" in line.text:
            if re.search(r" job \d+ \(\w+\) attempt \d+ of \d+ failed", line.text.splitlines()[0]):
                continue  # what a handler raised is shown with its traceback
            # A dump is written piece by piece: lines of other processes may come between it and the handler's name.
            dumped = [line, *(o for o in history.evidence.log if o.worker == line.worker and 0 <= o.at - line.at < 5)]
            if any("in poison_segv" in part.text for part in dumped):
                continue
            yield Violation("workers_meet_no_error_of_their_own", f"{line.worker}: {line.text[-700:]}")
