"""The events of what the desk claimed and recorded: one for each verb. Details of jobs are only computed if somebody
listens."""

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
    def __init__(self, worker: str, in_flight: InFlight) -> None:
        self._worker = worker
        self._in_flight = in_flight

    def claimed(self, jobs: Sequence[ClaimedJob]) -> None:
        events.emit("claimed", jobs=lambda: [job_fields(held) for held in jobs], count=len(jobs), worker=self._worker)

    def recorded(self, outcomes: Sequence[Outcome], others: Sequence[Outcome], done: Exchanged) -> None:
        """One event for each verb among these outcomes; for failures, one for each job. Call it while the attempts are
        still in flight. `others`: the outcomes that are not successes."""
        unsure = [*done.lost, *done.already]
        succeeded = len(outcomes) - len(others) - sum(1 for outcome in unsure if outcome.verb == "succeed")
        if succeeded:
            self._emit("succeed", succeeded, outcomes, unsure)
        for verb, of_verb in by_verb([outcome for outcome in others if outcome not in unsure]).items():
            if verb != "fail":
                self._emit(verb, len(of_verb), of_verb)
                continue
            for outcome in of_verb:
                self._emit(verb, 1, [outcome], job=str(outcome.id))

    def succeeded(self, held: ClaimedJob) -> None:
        """Its handler recorded the success itself."""
        self._emit("succeed", 1, [returned(held, None)])

    def _emit(
        self, verb: Verb, count: int, outcomes: Sequence[Outcome], but: Sequence[Outcome] = (), **fields: str
    ) -> None:
        def jobs() -> list[dict[str, Any]]:
            found = [outcome for outcome in outcomes if outcome.verb == verb and outcome not in but]
            return [ended_fields(outcome, self._in_flight.get(outcome.id, outcome.fence)) for outcome in found]

        events.emit(events.VERBS[verb], jobs=jobs, count=count, worker=self._worker, **fields)


def expire(store: Store) -> None:
    """Cancel queued jobs that were not started before they expired, and emit an event."""
    while expired := store.retention.expire():
        events.emit("expired", count=len(expired))
        store.wakeups.notify(finished=[row["id"] for row in expired if row["awaited"]])
