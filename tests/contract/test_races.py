"""What people ask and how an attempt ends, in every order and at the same time: exactly one end wins,
a cancel that was taken is never lost, and what happened at once is what would have happened one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import pytest

from holdfast.errors import LeaseLost, Refused
from holdfast.model.lifecycle import FINISHED, State
from holdfast.store.base import Ref, Store
from tests.contract.places import at_once
from tests.factories import BOOM, LEASE, Clock, a_running_job, claim, ref

Q, R, S, F, P, C = State

HOLDERS: dict[str, Callable[[Store, Ref], object]] = {
    "succeed": lambda store, ref: store.attempts.succeed(ref, b"1"),
    "fail": lambda store, ref: store.attempts.fail(ref, BOOM),
    "reschedule": lambda store, ref: store.attempts.reschedule(ref, 0, BOOM),
    "release": lambda store, ref: store.attempts.release(ref),
    "park": lambda store, ref: store.attempts.park(ref),
    "stop": lambda store, ref: store.attempts.stop(ref),
}
PEOPLES: dict[str, Callable[[Store, str], State]] = {
    "pause": lambda store, id: store.operator.pause(id, "for a while", "ops"),
    "resume": lambda store, id: store.operator.resume(id),
    "cancel": lambda store, id: store.operator.cancel(id, "no longer wanted", "ops"),
}
ORDERED = ("succeed", "reschedule", "rescue", "pause", "resume", "cancel")


@dataclass(frozen=True)
class Model:
    """A job that was claimed once: what it is, what was asked of it, and who ended the attempt."""

    state: State = R
    cancel: bool = False
    pause: bool = False
    ended_by: str | None = None

    def after(self, verb: str) -> tuple[Model, str]:
        """What a verb makes of it, and what it answers: ok, or refused."""
        match verb, self.state:
            case "cancel", State.RUNNING:
                return replace(self, cancel=True), "ok"
            case "pause", State.RUNNING:
                return replace(self, pause=True), "ok"
            case "resume", State.RUNNING if self.pause:
                return replace(self, pause=False), "ok"
            case "cancel", State.QUEUED | State.PAUSED | State.FAILED:
                return replace(self, state=C), "ok"
            case "pause", State.QUEUED:
                return replace(self, state=P), "ok"
            case "resume", State.PAUSED:
                return replace(self, state=Q), "ok"
            case (("cancel" | "pause" | "resume"), _):
                return self, "refused"
            case _, State.RUNNING:
                return Model(self._end(verb), ended_by=verb), "ok"
        # An attempt that has ended: its holder hears that it was taken over, or that its outcome was recorded before.
        if verb == "rescue":
            return self, "nothing"
        return self, "lost" if self.ended_by == "rescue" else "ok"

    def _end(self, verb: str) -> State:
        if verb == "succeed":
            return S
        if self.cancel or verb == "stop":
            return C
        if verb == "fail":
            return F
        return P if self.pause else Q


def do(store: Store, verb: str, held: Ref) -> str:
    try:
        if verb == "rescue":
            return "ok" if store.rescues.rescue(by_expiry=False, dead=["w1"]) else "nothing"
        if verb in PEOPLES:
            PEOPLES[verb](store, str(held.id))
        else:
            HOLDERS[verb](store, held)
    except Refused:
        return "refused"
    except LeaseLost:
        return "lost"
    return "ok"


def check(store: Store, model: Model, id: object, told: object) -> None:
    job = store.reads.get(str(id))
    assert job.state is model.state, told
    if model.state is R:
        assert (job.cancel_requested, job.pause_requested) == (model.cancel, model.pause), told
    if model.state is C:
        assert job.error_code is not None, told
    assert (job.finished_at is not None) == (model.state in FINISHED), told


@pytest.mark.parametrize("first", ORDERED)
def test_every_order_of_asking_and_ending_goes_as_the_model_says(store: Store, clock: Clock, first: str) -> None:
    """720 orders of six verbs, a look after each verb."""
    others = [verb for verb in ORDERED if verb != first]
    for order in permutations(others):
        held = ref(a_running_job(store))
        model, cancelled = Model(), False
        for verb in (first, *order):
            model, answer = model.after(verb)
            assert do(store, verb, held) == answer, (first, order, verb)
            check(store, model, held.id, (first, order, verb))
            cancelled |= verb == "cancel" and answer == "ok"
            if cancelled:
                assert model.state in (R, S, C), "never back in the queue"
        put_away(store, held)


RACES: list[tuple[str, ...]] = [
    *((asked, ends) for asked in PEOPLES for ends in (*HOLDERS, "rescue")),
    *(("pause", "cancel"), ("pause", "resume"), ("resume", "cancel"), ("cancel", "cancel")),
    *((ends, "rescue") for ends in HOLDERS),
    ("cancel", "succeed", "rescue"),
    ("cancel", "pause", "reschedule"),
    ("cancel", "pause", "resume", "park"),
    ("cancel", "pause", "resume", "succeed", "reschedule", "rescue"),
]


@pytest.mark.parametrize("verbs", RACES, ids=" x ".join)
@pytest.mark.parametrize("before", [(), ("pause",)], ids=["", "after a pause"])
def test_what_happens_at_once_is_what_would_have_happened_in_some_order(
    store: Store, stores: Callable[..., Store], clock: Clock, verbs: tuple[str, ...], before: tuple[str, ...]
) -> None:
    own = [stores(clock=clock) for _ in verbs]
    for _ in range(4):
        held = ref(a_running_job(store))
        for verb in before:
            assert do(store, verb, held) == "ok"
        answers = at_once(len(verbs), lambda number, held=held: do(own[number], verbs[number], held))  # type: ignore[misc]
        found = store.reads.get(str(held.id)).state
        possible = set(outcomes(verbs, before))
        assert (found, tuple(answers)) in possible, (verbs, found, answers)
        # (Its holder may hear of a success that it recorded before: only one of these made a difference.)
        if "cancel" in verbs and answers[verbs.index("cancel")] == "ok" and found in (Q, P):
            raise AssertionError(f"a cancel was taken and is lost: {verbs} {answers} {found}")
        if found is not R:
            assert len(store.reads.attempts(str(held.id))) == (0 if found is S else 1), "one end, told once"
        put_away(store, held)


def outcomes(verbs: Sequence[str], before: Iterable[str]) -> Iterable[tuple[State, tuple[str, ...]]]:
    """How each order would end, and what each verb would answer. A rescue passes over a row that is locked just then,
    and comes again later: so it may as well do nothing."""
    for order in permutations(range(len(verbs))):
        for idle in (False, True) if "rescue" in verbs else (False,):
            model, answers = Model(), [""] * len(verbs)
            for verb in before:
                model, _ = model.after(verb)
            for number in order:
                if idle and verbs[number] == "rescue":
                    answers[number] = "nothing"
                else:
                    model, answers[number] = model.after(verbs[number])
            yield model.state, tuple(answers)


def put_away(store: Store, held: Ref) -> None:
    """Nothing may be due when the next one comes."""
    state = store.reads.get(str(held.id)).state
    if state is R:
        store.attempts.stop(held)
    elif state in (Q, P):
        store.operator.cancel(str(held.id))
        assert claim(store).jobs == [], "what was cancelled never runs"


def test_a_job_that_was_cancelled_while_it_ran_never_runs_again(store: Store, clock: Clock) -> None:
    for verb in (*HOLDERS, "rescue"):
        held = ref(a_running_job(store))
        store.operator.cancel(str(held.id))
        do(store, verb, held)
        clock.advance(10 * LEASE)
        assert claim(store, 10).jobs == [], verb
        assert store.reads.get(str(held.id)).state in (S, C)
