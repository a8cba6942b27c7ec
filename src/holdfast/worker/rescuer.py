"""Takes jobs back from workers that are gone. Any number of workers may do so: each lease is taken back only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.store.base import Store
from holdfast.tasks.attempt_events import emit_rescued


class Rescuer:
    def __init__(
        self, worker: str, store: Store, *, quarantine_after: int, job_due_in: Callable[[float], None]
    ) -> None:
        """`job_due_in` tells our own desk that jobs are due."""
        self._worker = worker
        self._store = store
        self._quarantine_after = quarantine_after
        self._job_due_in = job_due_in

    def rescue_expired(self) -> None:
        """Take back jobs whose lease expired."""
        self._rescue(by_expiry=True)

    def rescue_from(self, dead: Sequence[str]) -> None:
        """Take back all jobs of these workers, which are dead beyond doubt."""
        self._rescue(by_expiry=False, dead=dead)

    def _rescue(self, *, by_expiry: bool, dead: Sequence[str] = ()) -> None:
        while rescued := self._store.rescue(
            by_expiry=by_expiry, dead=list(dead), quarantine_after=self._quarantine_after
        ):
            for job in rescued:
                emit_rescued(job, self._worker)
            self._store.tell([job.queue for job in rescued])
            self._job_due_in(0.0)
