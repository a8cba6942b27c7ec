"""What a worker has in hand: attempts, by the claim that brought them. The desk changes it, the heartbeat reads it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter

from holdfast.model.job import Held
from holdfast.model.outcome import Outcome
from holdfast.store.base import JobId
from holdfast.work.attempt import Attempt

# What ends together was mostly claimed together: so it is told apart by runs of one fence, not one by one.
_fence = attrgetter("fence")
_fence_of_attempt = attrgetter("held.fence")


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
            for fence, same in groupby(attempts, _fence_of_attempt):
                claim = self._claims.setdefault(fence, {})
                before = len(claim)
                claim.update({attempt.held.id: attempt for attempt in same})
                self._count += len(claim) - before

    def drop(self, ended: Iterable[Held | Outcome]) -> None:
        with self._lock:
            for fence, same in groupby(ended, _fence):
                claim = self._claims.get(fence)
                if claim is not None:
                    before = len(claim)
                    for one in same:
                        claim.pop(one.id, None)
                    self._count -= before - len(claim)
                    if not claim:
                        del self._claims[fence]

    def holds(self, fence: str) -> bool:
        return fence in self._claims

    def emptied_by(self, outcomes: Iterable[Outcome]) -> Iterator[str]:
        """The claims with nothing left once these are recorded."""
        ending = Counter(map(_fence, outcomes))
        return (fence for fence, count in ending.items() if count >= len(self._claims.get(fence, ())))
