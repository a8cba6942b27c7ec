"""What the desk's trips say: one event for each verb, the jobs in it made only if somebody listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import events
from holdfast.model.job import Held, Rescued
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Outcome, Verb, returned
from holdfast.store.base import Exchanged, by_verb
from holdfast.work.attempt import about, ended
from holdfast.work.hand import Hand


class Telling:
    def __init__(self, worker: str, hand: Hand) -> None:
        self._worker = worker
        self._hand = hand

    def claimed(self, jobs: Sequence[Held]) -> None:
        events.emit("claimed", jobs=lambda: [about(held) for held in jobs], count=len(jobs), worker=self._worker)

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

    def succeeded(self, held: Held) -> None:
        """A handler recorded that itself."""
        self._tell("succeed", 1, [returned(held, None)])

    def _tell(
        self, verb: Verb, count: int, outcomes: Sequence[Outcome], but: Sequence[Outcome] = (), **fields: str
    ) -> None:
        def jobs() -> list[dict[str, Any]]:
            found = [outcome for outcome in outcomes if outcome.verb == verb and outcome not in but]
            return [ended(outcome, self._hand.get(outcome.id, outcome.fence)) for outcome in found]

        events.emit(events.VERBS[verb], jobs=jobs, count=count, worker=self._worker, **fields)


def tell_rescued(job: Rescued) -> None:
    if job.state is State.QUEUED:
        events.emit("rescued", job=job.id, attempt=job.attempt, max_attempts=job.max_attempts, worker=job.worker)
    elif job.state is State.FAILED:
        events.emit("failed", job=job.id, count=1, worker=job.worker)
    else:
        events.emit("rescued_elsewhere", job=job.id, worker=job.worker, state=job.state.value)
