"""The attempts in flight: claimed, and their outcome not recorded yet."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Outcome
from holdfast.store.base import JobId
from holdfast.tasks.attempt import Attempt


class InFlight:
    """Attempts by the fence of their claim, since a lease belongs to a claim. The desk changes it; the heartbeat reads
    it from its own thread."""

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

    def add(self, attempts: Sequence[Attempt]) -> None:
        """Add attempts that all belong to one claim."""
        if not attempts:
            return
        with self._lock:
            claim = self._claims.setdefault(attempts[0].held.fence, {})
            before = len(claim)
            claim.update({attempt.held.id: attempt for attempt in attempts})
            self._count += len(claim) - before

    def remove(self, ended: Iterable[ClaimedJob | Outcome]) -> None:
        with self._lock:
            claims = self._claims
            for one in ended:
                claim = claims.get(one.fence)
                if claim is not None and claim.pop(one.id, None) is not None:
                    self._count -= 1
                    if not claim:
                        del claims[one.fence]

    def has_claim(self, fence: str) -> bool:
        """Is any attempt of this claim in flight?"""
        return fence in self._claims

    def emptied_by(self, outcomes: Iterable[Outcome]) -> Iterator[str]:
        """The fences of claims with no attempt left once these outcomes are recorded."""
        ending = Counter([outcome.fence for outcome in outcomes])
        return (fence for fence, count in ending.items() if count >= len(self._claims.get(fence, ())))
