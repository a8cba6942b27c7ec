"""What the desk's trips say: one event for each verb, the jobs in it made only if somebody listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import events
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome, Verb, returned
from holdfast.store.base import Exchanged, Store, by_verb
from holdfast.tasks.attempt_events import ended_fields, job_fields
from holdfast.worker.in_flight import InFlight


class OutcomeEvents:
    def __init__(self, worker: str, hand: InFlight) -> None:
        self._worker = worker
        self._hand = hand
        self._doubted = False

    def woken_in_vain(self, longest: float) -> None:
        """Once: a flood may come and go."""
        if not self._doubted:
            self._doubted = True
            events.emit("woken_in_vain", worker=self._worker, longest=longest)

    def claimed(self, jobs: Sequence[ClaimedJob]) -> None:
        events.emit("claimed", jobs=lambda: [job_fields(held) for held in jobs], count=len(jobs), worker=self._worker)

    def recorded(self, outcomes: Sequence[Outcome], others: Sequence[Outcome], done: Exchanged) -> None:
        """For each verb among these, for each job where it failed; while they are still in hand. `others`: those that
        did not succeed."""
        unsure = [*done.lost, *done.already]
        succeeded = len(outcomes) - len(others) - sum(1 for outcome in unsure if outcome.verb == "succeed")
        if succeeded:
            self._tell("succeed", succeeded, outcomes, unsure)
        for verb, told in by_verb([outcome for outcome in others if outcome not in unsure]).items():
            if verb != "fail":
                self._tell(verb, len(told), told)
                continue
            for outcome in told:
                self._tell(verb, 1, [outcome], job=str(outcome.id))

    def succeeded(self, held: ClaimedJob) -> None:
        """A handler recorded that itself."""
        self._tell("succeed", 1, [returned(held, None)])

    def _tell(
        self, verb: Verb, count: int, outcomes: Sequence[Outcome], but: Sequence[Outcome] = (), **fields: str
    ) -> None:
        def jobs() -> list[dict[str, Any]]:
            found = [outcome for outcome in outcomes if outcome.verb == verb and outcome not in but]
            return [ended_fields(outcome, self._hand.get(outcome.id, outcome.fence)) for outcome in found]

        events.emit(events.VERBS[verb], jobs=jobs, count=count, worker=self._worker, **fields)


def expire(store: Store) -> None:
    """Cancel queued jobs that were not started by their expiry, and say so."""
    while expired := store.expire():
        events.emit("expired", count=len(expired))
        store.notify(finished=[row["id"] for row in expired if row["awaited"]])
