"""The kit: an application on a temporary store, and what a test does with it."""

from __future__ import annotations

import asyncio
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from typing import Any

import msgspec

from holdfast import events
from holdfast.app import Holdfast
from holdfast.errors import BadArguments
from holdfast.job import Job
from holdfast.model.job import ClaimedJob, JobRecord, Wants
from holdfast.model.lifecycle import State
from holdfast.model.outcome import given_back
from holdfast.store import open_store
from holdfast.tasks.current import in_handler
from holdfast.tasks.options import names_of
from holdfast.tasks.task import Enqueuer, Task
from holdfast.testing.clock import Clock, Duration
from holdfast.testing.describe import blocking, listed, told
from holdfast.testing.inline import Inline
from holdfast.testing.matching import as_json, fits, matches
from holdfast.worker.intake import FilterPauses
from holdfast.worker.worker import Worker

ENDS = ("succeed", "fail", "reschedule", "release", "park", "stop")
PAGE = 500
ENOUGH = 1_000  # attempts in one run_due()


@contextmanager
def store(app: Holdfast, *, now: datetime | None = None, inline: bool = False, **settings: Any) -> Iterator[Kit]:
    """Give an application a temporary SQLite store, whatever it is configured with, and restore it at the end. Its
    clock stands still at `now` until it is moved. `settings` are those of `Holdfast(…)`; by default one handler of each
    kind (async, sync) runs at a time."""
    if in_handler():
        raise AssertionError("a handler can't move its own application to another store")
    clock = Clock(now)
    with tempfile.TemporaryDirectory(prefix="holdfast-test-", ignore_cleanup_errors=True) as directory:
        before = app.settings, app._store
        given: dict[str, Any] = {"synchronous": "off", "concurrency": 1, "threads": 1, **settings}
        if "lease" in given:
            given.setdefault("heartbeat", 0.0)
        app.settings = replace(app.settings, url=f"sqlite:///{directory}/jobs.db", **given)
        app._store = None
        try:
            app._store = open_store(app.settings, clock=clock)
            app._store.schema.migrate()
            kit = Kit(app, clock)
            with kit.inline() if inline else nullcontext():
                yield kit
        finally:
            app.close()
            app.settings, app._store = before


@dataclass(frozen=True, slots=True)
class Ran:
    """One attempt that `run_due` ran. `outcome` is the name of its event: succeeded, failed, rescheduled, released,
    parked or stopped."""

    id: str
    task: str
    attempt: int
    outcome: str
    error: str | None = None
    delay: float = 0.0


class Kit:
    """An application on a temporary store. `app` is yours; nothing about it is faked."""

    def __init__(self, app: Holdfast, clock: Clock) -> None:
        self.app = app
        self.clock = clock

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.clock.now

    def advance(self, by: Duration) -> datetime:
        """Move the database's clock forward: "90s", "1h 30m", seconds or a timedelta. Runs nothing."""
        return self.clock.advance(by)

    # -- running -----------------------------------------------------------------------------------------------------

    def run_due(
        self, *, queues: Iterable[str] | None = None, expect: State | str | None = None, limit: int = ENOUGH
    ) -> list[Ran]:
        """Run everything that is due now in this process, and what falls due as a result; returns the attempts that
        ran, in the order in which they ended. Before that it does what workers do by the clock: it takes back jobs of
        dead workers, cancels expired ones and deletes old ones. `expect` is a state that every job which ran must be
        in afterwards."""
        __tracebackhide__ = True
        wanted = None if expect is None else _state(expect)
        served = None if queues is None else names_of("run_due: queues", queues)
        # A test's patches and its clock exist only in this process, so isolated tasks run here too.
        worker = Worker(self.app.store, self.app.settings, self.app.runner_group(isolated=True), queues=served)
        ran: list[Ran] = []

        def hear(name: str, fields: dict[str, Any]) -> None:
            if name in ENDED and fields.get("worker") == worker.id:
                ran.extend(_ran(name, job) for job in fields["jobs"] if "seconds" in job)

        unsubscribe = events.subscribe(hear)
        try:
            worker.watchdog.catch_up()
            worker.drain(jobs=limit)
        finally:
            unsubscribe()
        if len(ran) >= limit and any(job.state is State.QUEUED and job.run_at <= self.now for job in self._records()):
            raise AssertionError(
                f"{len(ran)} attempts ran and more is due: does a task enqueue itself, or try again at once for ever? "
                f"(run_due(limit=…) allows more); {self._listed()}"
            )
        if wanted is not None:
            self._check_ran(ran, wanted)
        return ran

    async def arun_due(self, **options: Any) -> list[Ran]:
        """`run_due` for asynchronous tests: the test's own loop keeps running."""
        return await asyncio.to_thread(self.run_due, **options)

    def _check_ran(self, ran: Sequence[Ran], wanted: State) -> None:
        __tracebackhide__ = True
        if not ran:
            raise AssertionError(f"nothing was due, so nothing is {wanted}; {self._listed()}")
        found = [self.app.store.reads.get(id) for id in dict.fromkeys(one.id for one in ran)]
        if others := [record for record in found if record.state is not wanted]:
            lines = "\n".join(f"  {told(self.app, record, self.now)}" for record in others)
            raise AssertionError(f"{len(others)} of {len(found)} jobs that ran are not {wanted}:\n{lines}")

    def inline(self) -> AbstractContextManager[None]:
        """`with kit.inline():` a job runs as soon as it is enqueued, in the thread that enqueues it, and an error of
        its handler is raised there. The outcome is recorded as usual: a job to be retried waits for `run_due`."""
        return Inline(self.app).installed()

    # -- looking -----------------------------------------------------------------------------------------------------

    def jobs(self, task: Enqueuer[..., Any] | str | None = None, *, state: State | str | None = None) -> list[Job[Any]]:
        """All jobs, the oldest first."""
        name = task.task.name if isinstance(task, Enqueuer) else task
        found = self._records(name, None if state is None else _state(state))
        return [Job(self.app, record.id, record.task, created=False) for record in found]

    def why(self, job: Job[Any]) -> list[str]:
        """What keeps `run_due()` from running this job, as codes of `job.why()`: `["BACKOFF"]`. Empty: nothing. (A
        missing worker is no reason here, because `run_due` acts as one.)"""
        return [reason.code.value for reason in blocking(job.why())]

    def assert_enqueued(self, task: Enqueuer[..., Any], /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Assert that there is a job of this task with these arguments, in any state; other arguments may have any
        value. Options are written as in an enqueue: `assert_enqueued(send.using(queue="mail"), to="you")`. Returns the
        newest such job."""
        __tracebackhide__ = True
        if found := self._matching(task, args, kwargs):
            return Job(self.app, found[-1].id, found[-1].task, created=False)
        raise AssertionError(f"no job of {_asked(task, args, kwargs)} was enqueued; {self._listed()}")

    def assert_not_enqueued(self, task: Enqueuer[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Assert that there is no such job."""
        __tracebackhide__ = True
        if found := self._matching(task, args, kwargs):
            lines = "\n".join(f"  {told(self.app, record, self.now)}" for record in found)
            raise AssertionError(f"{len(found)} jobs of {_asked(task, args, kwargs)} were enqueued:\n{lines}")

    def _matching(
        self, asked: Enqueuer[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[JobRecord]:  # fmt: skip
        task = asked.task
        wanted = as_json(task.signature.partial(args, kwargs))
        defaults = as_json(task.signature.defaults)
        return [
            record
            for record in self._records(task.name)
            if matches(defaults | msgspec.json.decode(record.args), wanted) and fits(record, asked._options)
        ]

    def _records(self, task: str | None = None, state: State | None = None) -> list[JobRecord]:
        found: list[JobRecord] = []
        before = None
        while page := self.app.store.reads.jobs(task=task, state=state, before=before, limit=PAGE):
            found += page
            before = page[-1].id
        return found[::-1]

    def _listed(self) -> str:
        return listed(self.app, self._records(), self.now)

    # -- trouble -----------------------------------------------------------------------------------------------------

    @contextmanager
    def failing(
        self, task: Task[..., Any], error: BaseException | type[BaseException], *, times: int | None = None
    ) -> Iterator[None]:
        """`with kit.failing(send, ConnectionError("down"), times=2):` the handler raises this error instead of running,
        the first `times` times, or always if that is None."""
        function = task.function
        calls = count(1)

        def fails(*args: Any, **kwargs: Any) -> Any:
            if times is None or next(calls) <= times:
                raise error
            return function(*args, **kwargs)

        task.function = fails
        try:
            yield
        finally:
            task.function = function

    def crash(self, job: Job[Any]) -> None:
        """Let a worker claim this job and die. The first `run_due()` after its lease has expired, such as after
        `kit.advance("1m")`, takes it back."""
        others: list[ClaimedJob] = []
        while found := self._claim_one(job.task):
            if str(found.id) == job.id:
                break
            others.append(found)
        back = [given_back(held, started=False) for held in others]
        self.app.store.exchange(back, None, [held.fence for held in others])
        if found is None:
            raise AssertionError(
                f"no worker would take it: {told(self.app, self.app.store.reads.get(job.id), self.now)}"
            )

    def _claim_one(self, task: str) -> ClaimedJob | None:
        fence = str(uuid.uuid4())
        wants = Wants(
            fence=fence, worker=f"crashed-{fence[:8]}", tasks=(task,), limit=1, lease=self.app.settings.lease
        )  # fmt: skip
        claimed = self.app.store.attempts.claim(wants)
        free, held = FilterPauses(self.app.store).split(claimed.jobs, claimed.filter_version)
        self.app.store.exchange(held, None, [fence] if held else [])
        return next(iter(free), None)

    def __repr__(self) -> str:
        return f"<Kit of {self.app!r} at {self.now.isoformat()}>"


def _state(name: State | str) -> State:
    if name not in set(State):
        raise BadArguments(f"there is no state {name!r}; there are {', '.join(State)}")
    return State(name)


ENDED = frozenset(events.VERBS[verb] for verb in ENDS)


def _ran(outcome: str, job: dict[str, Any]) -> Ran:
    error = f"{job['error_code']}: {job['error']}" if "error" in job else None
    return Ran(job["job"], job["task"], job["attempt"], outcome, error, job.get("delay", 0.0))


def _asked(asked: Enqueuer[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    task = asked.task
    given = task.signature.partial(args, kwargs)
    call = ", ".join(f"{n}={'***' if n in task.secrets else repr(v)[:100]}" for n, v in given.items())
    options = ", ".join(f"{name}={value!r:.100}" for name, value in asked._options.items())
    return f"{task.name}({call})" + (f" with {options}" if options else "")
