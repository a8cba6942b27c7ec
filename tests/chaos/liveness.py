"""How long things took, measured from the same evidence; and what took too long. Imports nothing of Holdfast."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.chaos.checker import GRACE, Claim, History, Violation
from tests.chaos.evidence import instant
from tests.chaos.kinds import KINDS, Kind

RESCUED = 2.0  # seconds within which nine of ten jobs of a killed process are taken back, on the same host
STANDSTILL = 10.0  # seconds without a claim while a job is due and a worker lives
STARVED = 45.0  # seconds a due job may wait while others are claimed
SETTLED = 60.0  # seconds after the last fault by which everything has ended
STOPPED = 2.0  # seconds that workers may take to stop beyond their grace
SILENT = 6.0  # seconds after which whoever is frozen has lost what it held, by a lease of 3
ENOUGH = 10  # rescues of which a share can be told
AFTER = 3.0  # seconds in which others may be busy with what another fault has left
HARMLESS = ("kill producer", "kill people", "foreign reader", "foreign snapshot")  # to a rescue
COUNTED = 0.5  # seconds: how exactly the end of a process is seen

BARS = {
    "rescues_are_quick", "nothing_stands_still", "nobody_starves", "workers_stop_in_time", "everything_settles",
    "silence_costs_the_lease", "priorities_go_first",
}  # fmt: skip
# What a machine with other work may break all the same, whatever the slack: leases run out where nobody is served.
BY_LOAD = {"nobody_is_robbed", "nothing_goes_round_in_circles"}


class Span(NamedTuple):
    start: float
    end: float

    def cut(self, other: Span) -> Span:
        return Span(max(self.start, other.start), min(self.end, other.end))

    def shared(self, other: Span) -> float:
        return max(0.0, min(self.end, other.end) - max(self.start, other.start))


class Spans:
    """What lasted from when to when, by what the fleet told."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.stops: list[Span] = []  # nobody could write
        self.frozen: dict[str, list[Span]] = defaultdict(list)
        self.alive: dict[str, Span] = {}
        over = self.over = {event["number"]: event["at"] for event in events if event["what"] == "over"}
        last = max((event["at"] for event in events), default=0.0)
        for event in events:
            if event["what"] == "fault":
                span = Span(event["at"], over.get(event["number"], last))
                if event.get("stops_all"):
                    self.stops.append(span)
                if event["fault"] == "freeze worker":
                    self.frozen[event["whom"]].append(span)
            elif event["what"] == "at work":
                self.alive[event["name"]] = Span(event["at"], last)
            elif event["what"] == "ended" and event["name"] in self.alive:
                ended = event["asked_at"] if event["asked"] == "term" else event["at"]
                self.alive[event["name"]] = Span(self.alive[event["name"]].start, ended)
        self._served = list(self._find_served())

    def _find_served(self) -> Iterator[Span]:
        """When some worker was at work, not frozen, and the database could be written to. In order, none overlap."""
        spans = [*self.alive.values(), *self.stops, *(span for some in self.frozen.values() for span in some)]
        for start, end in pairwise(sorted({at for span in spans for at in span})):
            piece = Span(start, end)
            there = [name for name, alive in self.alive.items() if alive.shared(piece)]
            able = [name for name in there if not any(span.shared(piece) for span in self.frozen[name])]
            if able and not any(stop.shared(piece) for stop in self.stops):
                yield piece

    def stopped(self, span: Span) -> float:
        return sum(span.shared(stop) for stop in self.stops)

    def served(self, span: Span) -> float:
        """Seconds of it in which a worker could have done something."""
        return sum(span.shared(piece) for piece in self._served)


def quantile(values: Iterable[float], share: float) -> float | None:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 3) if ordered else None


def summary(values: list[float]) -> dict[str, Any]:
    return {
        "count": len(values), "p50": quantile(values, 0.5), "p90": quantile(values, 0.9), "p99": quantile(values, 0.99),
        "max": quantile(values, 1.0),
    }  # fmt: skip


def measure(history: History, slack: float = 1.0) -> tuple[dict[str, Any], list[Violation]]:
    """Figures, and what took longer than it may, by so many times more where the machine has other work."""
    events = history.evidence.events
    spans = Spans(events)
    found: list[Violation] = []
    figures: dict[str, Any] = {}

    rescues = list(rescued(history, spans))
    for what in ("worker", "runner"):
        clean = [r.seconds for r in rescues if r.what == what and r.clean]
        figures[f"seconds from death of a {what} to the next claim"] = summary(clean)
        figures[f"the same beside other faults ({what})"] = summary(
            [r.seconds for r in rescues if r.what == what and not r.clean]
        )
        noticed = [r.noticed for r in rescues if r.what == what and all("kill" in other for other in r.beside)]
        p50 = quantile(noticed, 0.5)
        if p50 is not None and p50 > RESCUED * slack and len(noticed) >= ENOUGH:
            text = f"half of {len(noticed)} were taken back only {p50} s after the death of a {what}"
            found.append(Violation("rescues_are_quick", text))
        p90 = quantile(clean, 0.9)
        if p90 is not None and p90 > RESCUED * slack and len(clean) >= ENOUGH:
            found.append(Violation("rescues_are_quick", f"p90 of {len(clean)} after the death of a {what}: {p90} s"))
    figures["slowest rescues"] = [r.told() for r in sorted(rescues, key=lambda r: -r.seconds)[:8]]

    found += standstills(history, spans, slack)
    found += kept_in_silence(history, spans, slack)
    found += turned_round(history)
    waits, starved = waited(history, spans, slack)
    figures["seconds a due job waited"] = summary([w for some in waits.values() for w in some])
    figures["seconds a due job waited, by task"] = {task: summary(some) for task, some in sorted(waits.items())}
    found += starved

    stops = []
    for event in events:
        if event["what"] == "ended" and event["role"] == "worker" and event["asked"] == "term":
            span = Span(event["asked_at"], event["at"])
            stops.append(span.end - span.start)
            disturbed = spans.stopped(span) or any(f.shared(span) for f in spans.frozen[event["name"]])
            if stops[-1] > GRACE + (STOPPED + COUNTED) * slack and not disturbed:
                text = f"{event['name']} took {stops[-1]:.1f} s to stop, with a grace of {GRACE:g} s"
                found.append(Violation("workers_stop_in_time", text))
        if event["what"] == "settled":
            figures["seconds from the last fault to the end of all"] = event["seconds"]
            if event["seconds"] > SETTLED * slack:
                text = f"{event['unfinished']} jobs were not finished {event['seconds']:.0f} s after the last fault"
                found.append(Violation("everything_settles", text))
    figures["seconds from SIGTERM to the end"] = summary(stops)
    return figures, found


def kept_in_silence(history: History, spans: Spans, slack: float) -> Iterator[Violation]:
    """What a worker holds that is frozen for far longer than its lease is taken back while it is. Mostly: whoever is to
    do that gives everyone another lease where the database was slow."""
    frozen = [(name, span) for name, some in spans.frozen.items() for span in some]
    long = [(name, span) for name, span in frozen if spans.served(span) > SILENT * slack]
    kept, taken = [], 0
    for claim in history.all_claims():
        for name, span in long:
            if claim.worker == name and claim.taken.at <= span.start and claim.ended and claim.ended.at > span.start:
                if claim.ended.at > span.end:
                    kept.append(claim.job)
                else:
                    taken += 1
    if len(long) > 1 and len(kept) > taken:
        text = f"of what {len(long)} frozen workers held, {taken} were taken back and {len(kept)} were not"
        yield Violation("silence_costs_the_lease", text, kept[0])


def turned_round(history: History) -> Iterator[Violation]:
    """Where jobs of high and of low priority wait, the high ones are claimed first. Not always: some are locked, some
    wait for a process of their own. So what happened more often counts."""
    plain = [w for w in due_spans(history) if w.claimed and not KINDS.get(w.task, Kind()).isolated]
    high = [wait.span for wait in plain if wait.priority >= 3]
    low = [wait.span for wait in plain if wait.priority <= -3]
    first, last = _left_waiting(high, low), _left_waiting(low, high)
    if last > first and last >= ENOUGH:
        text = f"{last} jobs of low priority were claimed while high ones waited, {first} the other way round"
        yield Violation("priorities_go_first", text)


def _left_waiting(claimed: list[Span], waiting: list[Span]) -> int:
    """How many of the ones were claimed while others had been due for a second."""
    return sum(any(other.start < span.end - 1 and other.end > span.end for other in waiting) for span in claimed)


class Rescue(NamedTuple):
    what: str
    job: str
    task: str
    worker: str
    died: float
    seconds: float  # until the next claim
    taken_back: float  # seconds until it was queued again
    served: float  # seconds of these in which a worker could have done something
    noticed: float  # of those until it was queued again
    beside: tuple[str, ...]  # other faults at that time

    @property
    def clean(self) -> bool:
        return not self.beside and self.served > self.seconds - 0.1

    def told(self) -> dict[str, Any]:
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in self._asdict().items()}


def rescued(history: History, spans: Spans) -> Iterator[Rescue]:
    """Each job that a killed worker, or a killed runner process, had in hand: how long until it was claimed again."""
    held: dict[str, list[Claim]] = defaultdict(list)
    by_pid: dict[int, list[Claim]] = defaultdict(list)
    for claim in history.all_claims():
        held[claim.worker].append(claim)
        for line in claim.said("begin"):
            by_pid[line["pid"]].append(claim)
    faults = [event for event in history.evidence.events if event["what"] == "fault"]
    for event in faults:
        if event["fault"] in ("kill worker", "kill both"):
            what, claims = "worker", held[event["whom"]]
        elif event["fault"] in ("kill runner", "kill isolated"):
            what, claims = "runner", by_pid[event["pid"]]
        else:
            continue
        died = event["at"]
        for claim in claims:
            if claim.taken.at > died or claim.ended is None or claim.ended.at < died or claim.ended.state != "queued":
                continue
            later = [c for c in history.claims[claim.job] if c.taken.seq > claim.ended.seq]
            due = max(claim.ended.at, instant(claim.ended.row["run_at"]) or 0.0)
            if not later or due > claim.ended.at + 0.1 or _held_back(history, claim):
                continue
            span = Span(died, later[0].taken.at)
            beside = [
                other["fault"]
                for other in faults
                if other is not event and other["fault"] not in HARMLESS and Span(*_lasted(other, spans)).shared(span)
            ]
            yield Rescue(
                what, claim.job, claim.taken.task, claim.worker, died, span.end - span.start, claim.ended.at - died,
                spans.served(span), spans.served(Span(died, claim.ended.at)), tuple(beside),
            )  # fmt: skip


def _lasted(event: dict[str, Any], spans: Spans) -> tuple[float, float]:
    """Of a fault, with what it leaves to be done."""
    return event["at"] - 0.01, spans.over.get(event["number"], event["at"]) + AFTER


def _held_back(history: History, claim: Claim) -> bool:
    """Did people steer it, or pause its queue or task, after that?"""
    queue, task = claim.taken.row["queue"], claim.taken.task
    assert claim.ended is not None
    for action in history.evidence.actions:
        mine = action.fields.get("job") == claim.job
        held = action.fields["verb"] == "hold" and (
            action.fields.get("queue") == queue or action.fields.get("task") == task
        )
        if (mine or held) and action.until > claim.ended.at - 10 and action.at < claim.ended.at + 10:
            return True
    return False


class Wait(NamedTuple):
    job: str
    task: str
    priority: int
    span: Span
    claimed: bool


def due_spans(history: History) -> list[Wait]:
    """When each job was queued and due. Not those that people paused (by task, queue or argument) at that time."""
    holds = [a for a in history.evidence.actions if a.fields["verb"] == "hold" and a.answer != "fail"]
    ends = {
        (a.fields.get("queue"), a.fields.get("task"), a.at)
        for a in history.evidence.actions
        if a.fields["verb"] == "let_go"
    }
    found: list[Wait] = []
    for job, versions in history.jobs.items():
        for before, after in pairwise(versions):
            if before.op == "delete" or before.state != "queued" or after.state == "queued":
                continue
            start = max(before.at, instant(before.row["run_at"]) or 0.0)
            span = Span(start, after.at)
            if span.end - span.start <= 0 or _paused(before.row, span, holds, ends):
                continue
            found.append(Wait(job, before.task, int(before.row["priority"]), span, after.state == "running"))
    return found


def _paused(row: dict[str, Any], span: Span, holds: list[Any], ends: set[tuple[Any, Any, float]]) -> bool:
    for hold in holds:
        queue, task = hold.fields.get("queue"), hold.fields.get("task")
        if queue == row["queue"] or task == row["task"]:
            until = min((at for q, t, at in ends if (q, t) == (queue, task) and at > hold.at), default=float("inf"))
            if span.shared(Span(hold.at, until + 1)):
                return True
    return False


def standstills(history: History, spans: Spans, slack: float) -> Iterator[Violation]:
    claims = sorted({claim.taken.at for claim in history.all_claims()})
    waits = sorted(due_spans(history), key=lambda wait: wait.span.start)
    for start, end in pairwise(claims):
        gap = Span(start, end)
        if end - start < STANDSTILL * slack or spans.served(gap) < STANDSTILL * slack:
            continue
        due = [
            wait for wait in waits if wait.span.shared(gap) and spans.served(wait.span.cut(gap)) > STANDSTILL * slack
        ]
        if due:
            text = f"nothing was claimed for {end - start:.1f} s from {start:.3f} on, and {len(due)} jobs were due"
            yield Violation("nothing_stands_still", text, due[0].job)


def waited(history: History, spans: Spans, slack: float) -> tuple[dict[str, list[float]], list[Violation]]:
    waits: dict[str, list[float]] = defaultdict(list)
    found: list[Violation] = []
    for wait in due_spans(history):
        if not wait.claimed:
            continue
        seconds = spans.served(wait.span)
        waits[wait.task].append(seconds)
        if seconds > STARVED * slack:
            found.append(
                Violation("nobody_starves", f"{wait.task} was due for {seconds:.1f} s before it ran", wait.job)
            )
    return waits, found
