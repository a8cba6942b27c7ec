"""Wake-ups: hints that there is something to look for, sent after the commit. Nothing depends on them: who misses one
finds the job by polling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from holdfast.model.peers import Place
from holdfast.store.columns import JobId
from holdfast.store.exchange import Trips


class Ear(Protocol):
    """A worker's own connection: its trips use it, and wake-ups arrive on it. For one thread."""

    def fileno(self) -> int:
        """Readable as soon as there may be a wake-up."""

    def tune(self, place: Place) -> bool:
        """Subscribe to what concerns a worker in this place. False: it is subscribed already."""

    def hear(self) -> Iterator[tuple[str, str, int | None]]:
        """The wake-ups that arrived: kind and text as in `Wakeups.listen`, and how many workers act on it before this
        one (None: it is for all at once). Never waits. Raises StoreUnavailable when the connection broke."""

    def trips(self) -> AbstractContextManager[Trips]:
        """As `Store.trips`. Wake-ups that arrive meanwhile are kept."""

    def close(self) -> None: ...


class Wakeups(Protocol):
    can_listen: bool  # can they wake a sleeping worker?

    def notify(
        self,
        queues: Iterable[str] = (),
        finished: Iterable[JobId] = (),
        *,
        requests: bool = False,
        workers: bool = False,
    ) -> None:
        """Notify all listeners, after the commit: jobs wait in these queues, these jobs finished, people requested
        something, a worker came or left. Coalesced; never fails."""

    def tell(self, queues: Sequence[str]) -> None:
        """Jobs wait again, each in one of these queues: one job notifies a few workers, several all of them."""

    def hint(self, queue: str, lane: tuple[str, int] | None = None, *, due_in: float = 0.0) -> None:
        """Notify a few workers of one job, after the commit: it waits in this queue, with this task and priority if
        given, or falls due in so many seconds. Coalesced; never fails."""

    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        """Call `heard(kind, text)` for every wake-up until `stop()`; raises StoreUnavailable when the connection
        breaks. The first call comes once it listens: whoever looks for work then misses nothing. Kinds: `listening`;
        `queue` and its name (none: any); `lane` and a due job's queue, task and priority as JSON; `due` and in how many
        seconds one falls due; `requests`; `workers`: some came or left; `finished` and an id; `changed`: something did;
        `mark`: another listener's, to hear itself by; `other`: anything else."""

    def open_ear(self) -> Ear | None:
        """A connection on which trips are made and wake-ups heard, from now on. None: this database has no such thing,
        so `listen`."""

    def close(self) -> None: ...
