"""What the desk's trips say: one event for each verb, the jobs in it made only if somebody listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast import events
from holdfast.model.job import Held, Rescued
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error, Outcome, Verb, returned
from holdfast.store.base import Exchanged, Store, by_verb
from holdfast.work.attempt import about, ended
from holdfast.work.hand import Hand


class Telling:
    def __init__(self, worker: str, hand: Hand) -> None:
        self._worker = worker
        self._hand = hand
        self._doubted = False

    def woken_in_vain(self, longest: float) -> None:
        """Once: a flood may come and go."""
        if not self._doubted:
            self._doubted = True
            events.emit("woken_in_vain", worker=self._worker, longest=longest)

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


def is_told(outcome: Outcome) -> bool:
    """Does `tell_errored` tell of this one? Of a success that its handler may have recorded nothing is said until that
    is known."""
    return outcome.error is not None and not outcome.recorded and outcome.verb in ("fail", "reschedule")


def tell_errored(held: Held, outcome: Outcome, *, worker: str | None = None, log_only: bool = False) -> None:
    """Tell that an attempt errored, if it did. `worker`: the one that decided so, where the handler could not.
    `log_only`: listeners heard it where it happened."""
    if not is_told(outcome):
        return
    assert outcome.error is not None
    fields = _error(_about(held, held.correlated), outcome.verb, outcome.error, worker)
    if log_only:
        events.write_log("errored", fields)
    else:
        events.emit("errored", **fields)


def expire(store: Store) -> None:
    """Cancel queued jobs that were not started by their expiry, and say so."""
    while expired := store.expire():
        events.emit("expired", count=len(expired))
        store.notify(finished=[row["id"] for row in expired if row["awaited"]])


def tell_lost(held: Held, worker: str) -> None:
    events.emit("lease_lost", **_about(held, held.correlated), worker=worker)


def tell_rescued(job: Rescued, worker: str) -> None:
    """`worker`: who took it back."""
    verb = "fail" if job.state is State.FAILED else "rescue"
    error = Error(job.error_code, job.error_message)
    events.emit("errored", **_error(_about(job, job.correlation_id), verb, error, worker))
    if job.state is State.QUEUED:
        events.emit("rescued", job=job.id, attempt=job.attempt, max_attempts=job.max_attempts, worker=job.worker)
    elif job.state is State.FAILED:
        events.emit("failed", job=job.id, count=1, worker=job.worker)
    else:
        events.emit("rescued_elsewhere", job=job.id, worker=job.worker, state=job.state.value)


def _about(job: Held | Rescued, correlation_id: str) -> dict[str, Any]:
    return {
        "job": str(job.id), "task": job.task, "queue": job.queue, "attempt": job.attempt,
        "max_attempts": job.max_attempts, "correlation_id": correlation_id, "priority": job.priority,
    }  # fmt: skip


def _error(about: dict[str, Any], verb: str, error: Error, worker: str | None) -> dict[str, Any]:
    """What `errored` says. `raised`: by the handler; else its worker tells, who is named."""
    told = {"verb": verb, "error_code": error.code, "error": f"{error.code}: {error.message}"}
    return {**about, **told, "raised": worker is None, **({} if worker is None else {"worker": worker})}
