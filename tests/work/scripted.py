"""A desk turned by hand: a scripted store, a runner whose attempts end when the test says so, a clock that moves when
the desk waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, cast

import pytest
from msgspec.structs import replace

from holdfast.errors import StoreError, ValueRefused
from holdfast.model.job import Claimed, ClaimedJob, Wants
from holdfast.model.outcome import Outcome, returned
from holdfast.settings import Settings
from holdfast.store.base import Exchanged, JobId, Store
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.manifest import Manifest, TaskInfo
from holdfast.worker import desk as desk_module
from holdfast.worker import exchange, intake, mandate, wakeups
from holdfast.worker import exchange as patience
from holdfast.worker import intake as ended_attempts
from holdfast.worker.desk import Desk
from holdfast.worker.loop import Bell
from holdfast.worker.wakeups import Listener


class Time:
    """Stands for `time` and for the desk's bell: waiting moves the clock, nothing else does."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.rung = False

    def monotonic(self) -> float:
        return self.now

    def ring(self) -> None:
        self.rung = True

    def wait(self, timeout: float | None = None) -> bool:
        if self.rung:
            self.rung = False
            return True
        if timeout is None:
            raise AssertionError("the desk would sleep until someone wakes it")
        self.now += timeout
        return False


Answer = Claimed | Exception | Callable[[Wants | None], Claimed]


class Script:
    """A store that answers as it was told, and remembers what it was asked and when."""

    can_listen = True
    overlaps = False

    def __init__(self, time: Time) -> None:
        self._time = time
        self.shown_url = "a script"
        self.wakeups = self.reads = self.db = self
        self.answers: list[Answer] = []
        self.always: Answer = Claimed()
        self.early: list[Exception] = []  # raised before anything is sent
        self.unreachable: list[Exception] = []  # raised instead of a connection
        self.late: list[Exception] = []  # raised when the claimed jobs were started
        self.refused: list[StoreError] = []  # what only the claim met
        self.repeated: list[Answer] = []  # answers that are there only when the outcomes are recorded
        self.made: list[tuple[float, list[Outcome], Wants | None]] = []
        self.drained: list[list[str]] = []
        self.log: list[str] = []
        self.claims: dict[str, Claimed] = {}
        self.told_all: list[str] = []
        self.newest_id = 0
        self.filters: list[str] = []  # of pauses that stand
        self.unreadable: list[Exception] = []  # raised when they are read
        self.hints: list[tuple[str, tuple[str, int] | None, float]] = []
        self.refuse: Callable[[Sequence[Outcome]], bool] = lambda outcomes: False

    @contextmanager
    def trips(self) -> Iterator[ScriptedTrips]:
        if self.unreachable:
            raise self.unreachable.pop(0)
        yield ScriptedTrips(self)

    def depart(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> None:
        self.made.append((self._time.now, list(finished), wants))
        self.drained.append(list(drained))
        self.log.append("departed")
        if self.early:
            raise self.early.pop(0)
        if self.refuse(finished):
            raise ValueRefused("invalid value")

    def claimed(self, wants: Wants | None) -> Claimed:
        answer = self.answers.pop(0) if self.answers else self.always
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Claimed) else answer(wants)

    def claim_of(self, fence: str) -> Claimed:
        return self.claims.get(fence, Claimed())

    def read(self, name: str) -> list[dict[str, Any]]:
        assert name == "standing_filters"
        if self.unreadable:
            raise self.unreadable.pop(0)
        return [{"version": 1, "name": name, "ends_in": None} for name in (*self.filters, None)]

    def notify(self, queues: Iterable[str] = (), finished: Iterable[JobId] = ()) -> None:
        self.told_all += queues

    def newest(self) -> int:
        return self.newest_id

    def tell(self, queues: Sequence[str]) -> None: ...

    def hint(self, queue: str, lane: tuple[str, int] | None = None, *, due_in: float = 0.0) -> None:
        self.hints.append((queue, lane, due_in))

    @property
    def polls(self) -> list[float]:
        return [at for at, _, wants in self.made if wants is not None]

    @property
    def asked(self) -> list[tuple[int, int]]:
        """For how many free slots, and how many ahead of them, each claim was made."""
        return [(wants.limit, wants.ahead) for _, _, wants in self.made if wants is not None]

    @property
    def recorded(self) -> list[Outcome]:
        return [outcome for _, outcomes, _ in self.made for outcome in outcomes]


class ScriptedTrips:
    def __init__(self, script: Script) -> None:
        self._script = script
        self.overlaps = script.overlaps
        self._under_way: deque[Wants | None] = deque()
        self._refused: StoreError | None = None

    def depart(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> None:
        self._script.depart(finished, wants, drained)
        self._under_way.append(wants)

    def claimed(self) -> Claimed | None:
        wants = self._under_way[0]
        if wants is not None and self._script.refused:
            self._refused = self._script.refused.pop(0)
            return None
        if wants is not None and self._script.repeated:
            return None
        return self._script.claimed(wants)

    def recorded(self) -> Exchanged:
        wants = self._under_way.popleft()
        self._script.log.append("recorded")
        if self._script.late:
            raise self._script.late.pop(0)
        if wants is not None and self._script.repeated:
            self._script.answers.insert(0, self._script.repeated.pop(0))
            return Exchanged(claimed=self._script.claimed(wants))
        return Exchanged(refused=self._refused)


class Backlog:
    """Answers every claim with as many fresh jobs as it wants."""

    def __init__(self) -> None:
        self.taken = 0

    def __call__(self, wants: Wants | None) -> Claimed:
        if wants is None:
            return Claimed()
        first, self.taken = self.taken + 1, self.taken + wants.limit + wants.ahead
        return Claimed([held(id, wants.fence) for id in range(first, self.taken + 1)])


class Idle:
    """A runner whose attempts end when the test says so."""

    may_wait = True
    many = False

    def __init__(self, slots: int, task: str) -> None:
        self.slots = slots
        self.busy = 0
        self.manifest = Manifest((TaskInfo(task, (), "default", 3, None),))
        self.running: list[Attempt] = []

    def start(self, attempts: Sequence[Attempt]) -> None:
        self.running += attempts

    def waiting_since(self) -> float | None:
        waiting = self.running[self.slots :]
        return waiting[0].taken if waiting else None

    def withdraw(self, most: int | None = None) -> list[Attempt]:
        waiting = self.running[self.slots :]
        back = waiting[::-1][:most]
        self.running = [attempt for attempt in self.running if attempt not in back]
        return back

    def close(self, timeout: float) -> None: ...


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, slots: int = 2, **settings: Any) -> None:
        self.time = Time()
        for module in (desk_module, ended_attempts, exchange, intake, mandate, patience, wakeups):
            monkeypatch.setattr(module, "time", self.time)
        self.store = Script(self.time)
        given = {"poll_base": 5.0, "poll_max": 30.0, **settings}
        self.desk = Desk("w1", cast(Store, self.store), Settings(**given), None, bell=cast(Bell, self.time))
        self._listener = Listener(
            cast(Store, self.store), self.desk.wakeups, queues=None, requested=lambda: None,
            listening=lambda listening: None, peers_changed=lambda: None, table_written=lambda turn: None,
        )  # fmt: skip
        self.runner, self.other = Idle(slots, "greet"), Idle(1, "other")
        self.desk.add(self.runner)

    def heard(self, kind: str, what: str, turn: int | None = None) -> None:
        """A wake-up arrives."""
        self._listener.received(kind, what, turn)

    def round(self) -> None:
        """As the worker goes round: a turn, or a wait."""
        if not self.desk.turn():
            self.desk.wait()

    def rounds_until(self, polls: int) -> None:
        for _ in range(1000):
            if len(self.store.polls) >= polls:
                return
            self.round()
        raise AssertionError(f"only {len(self.store.polls)} polls")

    def next_trip(self) -> tuple[float, list[Outcome], Wants | None]:
        trips = len(self.store.made)
        for _ in range(100):
            self.round()
            if len(self.store.made) > trips:
                return self.store.made[trips]
        raise AssertionError("the desk went nowhere")

    def until_idle(self) -> None:
        for _ in range(100):
            if not self.desk.turn():
                return
        raise AssertionError("the desk never rests")

    def waits(self, polls: int) -> list[float]:
        """The time between the newest polls."""
        start = len(self.store.polls)
        self.rounds_until(start + polls)
        times = self.store.polls[max(0, start - 1) :]
        return [later - earlier for earlier, later in pairwise(times)]

    def finish(self, attempt: Attempt, result: bytes | None = None) -> None:
        self.runner.running.remove(attempt)
        self.desk.ended.finished(attempt, returned(attempt.held, result))

    def run_all(self, seconds: float, waited: float = 0.0) -> None:
        """What is in the runner's hands ends, all of it, having waited and run for so long."""
        self.time.now += waited + seconds
        ended, self.runner.running = self.runner.running, []
        for attempt in ended:
            attempt.started = attempt.taken + waited
            attempt.ended = attempt.started + seconds
        self.desk.ended.succeeded(ended, [returned(attempt.held, None) for attempt in ended])


def listening(bench: Bench) -> None:
    """Wake-ups arrive."""
    bench.desk.poller.listening = True


def held(id: int, fence: str = "f", task: str = "greet") -> ClaimedJob:
    return ClaimedJob(id, fence, task, "default", b"{}", 1, 3)


def suspect(id: int, fence: str = "f") -> ClaimedJob:
    """A job that was running among others when their process died, twice in a row."""
    return replace(held(id, fence), suspicion=2)
