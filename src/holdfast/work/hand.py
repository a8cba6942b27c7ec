"""What a worker has in hand: attempts, by the claim that brought them. The desk changes it, the heartbeat reads it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from holdfast.model.outcome import Outcome
from holdfast.store.base import JobId
from holdfast.work.attempt import Attempt


class Hand:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[str, dict[JobId, Attempt]] = {}  # fence -> its attempts
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def attempts(self) -> list[Attempt]:
        with self._lock:
            return [attempt for claim in self._claims.values() for attempt in claim.values()]

    def get(self, id: JobId, fence: str) -> Attempt | None:
        claim = self._claims.get(fence)
        return None if claim is None else claim.get(id)

    def take(self, attempts: Iterable[Attempt]) -> None:
        with self._lock:
            for attempt in attempts:
                held = attempt.held
                claim = self._claims.get(held.fence)
                if claim is None:
                    claim = self._claims[held.fence] = {}
                claim[held.id] = attempt
                self._count += 1

    def drop(self, ended: Iterable[tuple[JobId, str]]) -> None:
        with self._lock:
            for id, fence in ended:
                claim = self._claims.get(fence)
                if claim is not None and claim.pop(id, None) is not None:
                    self._count -= 1
                    if not claim:
                        del self._claims[fence]

    def holds(self, fence: str) -> bool:
        return fence in self._claims

    def emptied_by(self, outcomes: Iterable[Outcome]) -> Iterator[str]:
        """The claims with nothing left once these are recorded."""
        ending: dict[str, int] = {}
        for outcome in outcomes:
            ending[outcome.fence] = ending.get(outcome.fence, 0) + 1
        return (fence for fence, count in ending.items() if count >= len(self._claims.get(fence, ())))
