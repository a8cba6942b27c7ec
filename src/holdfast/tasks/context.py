"""What a handler is given: its job, and how to save progress, report it, stop in time, and record success with its
own writes."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

import msgspec

from holdfast import events
from holdfast.errors import (
    BadSettings,
    HoldfastError,
    LeaseLost,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
    TooManyConnections,
)
from holdfast.model.cron import tick_of
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import MAX_COUNT
from holdfast.model.payload import Unfit, decode_checkpoint, encode, encode_checkpoint
from holdfast.redact import Hiding
from holdfast.store.base import Ref
from holdfast.tasks import steps
from holdfast.tasks.attempt import Attempt, StopAttempt
from holdfast.tasks.attempt_events import tell_lost
from holdfast.tasks.offload import at_once, in_thread

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.base import Store
    from holdfast.store.permits import Permit

T = TypeVar("T")
Q = ParamSpec("Q")

OUTAGE_WAIT = 1.0  # seconds between two tries to save a checkpoint while the database is away
LOOK = 0.2  # seconds between two looks whether a thread that waits for a connection should stop
CROWDED_FIRST, CROWDED_MOST = 0.1, 5.0  # seconds between two tries to get a connection while the server has none left
CHANCE = random.SystemRandom()  # the application may have seeded the common one
LONG = 2.0  # seconds a handler's transaction may keep all other writers of a SQLite file waiting without a warning

# The attempt this code runs in, if any: whoever would wait for another job in a handler is refused.
current: ContextVar[JobContext | None] = ContextVar("holdfast_current", default=None)
# The worker it runs in: set once by each thread or slot of a runner.
working: ContextVar[str] = ContextVar("holdfast_working", default="")


class JobInfo(msgspec.Struct, frozen=True):
    id: str
    task: str
    queue: str
    priority: int
    max_attempts: int
    correlation_id: str
    attempt: int = 1

    @property
    def tick(self) -> datetime | None:
        """The instant of its cron this job was enqueued for, in UTC; None: it came in another way."""
        return tick_of(self.task, self.correlation_id)


def info_of(held: ClaimedJob) -> JobInfo:
    return JobInfo(str(held.id), held.task, held.queue, held.priority, held.max_attempts, held.correlated, held.attempt)


class JobContext:
    """Handed to a handler whose first parameter is annotated with it (or called `ctx`)."""

    __slots__ = ("_attempt", "_hide", "_secrets", "_settings", "_steps", "_store", "_succeeded_on", "_task", "open_on")
    _hide: Hiding
    _steps: set[str]
    _task: str

    def __init__(
        self, attempt: Attempt | None, store: Store | None, settings: Settings | None, secrets: Collection[str] = ()
    ) -> None:
        self._attempt = attempt
        self._store = store
        self._settings = settings
        self._secrets = secrets  # names of arguments
        self._succeeded_on: Any = None  # the connection that a success was last recorded on
        self.open_on: Any = None  # the connection of a block of `transaction()` that is open

    def shuts_out(self, settings: Settings, conn: Any = None) -> bool:
        """Is a block of `transaction()` open on the SQLite file that these name, and this another connection?"""
        there = self._settings if self.open_on is not None and self.open_on is not conn else None
        if there is None or not there.url.startswith("sqlite") or not settings.url.startswith("sqlite"):
            return False
        from holdfast.store.sqlite.connect import path_of

        return path_of(there) == path_of(settings)

    @classmethod
    def detached(cls, task: str) -> JobContext:
        """For a handler that is called as a plain function: nothing is kept."""
        context = cls(None, None, None)
        context._task = task
        return context

    @property
    def job(self) -> JobInfo:
        if self._attempt is None:
            return JobInfo("", self._task, "", 0, 1, "")
        return info_of(self._attempt.held)

    @property
    def attempt(self) -> int:
        """Which attempt this is, from 1. One that was given back without charge (Snooze, pause, shutdown) is not
        counted, so the same number may come again."""
        return self._attempt.held.attempt if self._attempt else 1

    @property
    def fence(self) -> str:
        """New with every claim: write it beside your own rows to tell this attempt from any other."""
        return self._attempt.held.fence if self._attempt else ""

    @property
    def saved(self) -> Any:
        """The newest checkpoint of an earlier attempt, or None."""
        data = self._attempt.held.checkpoint if self._attempt else None
        return None if data is None else decode_checkpoint(data)

    # -- stopping ----------------------------------------------------------------------------------------------------

    def should_stop(self) -> bool:
        """True once this attempt should end: cancelled, paused, lost, out of time, or the worker shuts down. Save
        what you need and return None (or raise) soon; what was asked then takes effect."""
        if self._attempt is None or self._attempt.reason is None:
            return False
        self._attempt.told = True
        return True

    def _stop_if_asked(self, *, also_at_shutdown: bool = False) -> None:
        attempt = self._attempt
        if attempt is not None and (attempt.must_stop or (also_at_shutdown and attempt.reason is not None)):
            attempt.told = True
            raise StopAttempt(attempt.reason)

    # -- progress ----------------------------------------------------------------------------------------------------

    def checkpoint(self, state: Any, *, pending: int = 0, done: int | None = None) -> None:
        """Save progress, JSON values or bytes: the next attempt finds it in `ctx.saved`, on whatever host it runs.
        `pending` and `done` count work items. If the attempt should stop, it stops here, right after saving."""
        save = self._saving(state, pending, done)
        if save is not None:
            self._under_lease(save, "a checkpoint")
            self._stop_if_asked(also_at_shutdown=True)

    async def acheckpoint(self, state: Any, *, pending: int = 0, done: int | None = None) -> None:
        """`checkpoint` for asynchronous handlers: the loop goes on meanwhile."""
        save = self._saving(state, pending, done)
        if save is not None:
            await self._aunder_lease(save, "a checkpoint")
            self._stop_if_asked(also_at_shutdown=True)

    def _saving(self, state: Any, pending: int, done: int | None) -> Callable[[], tuple[bool, bool]] | None:
        """What saves this checkpoint; None: there is no job to save it for. The state is encoded when it is first
        called, which for a large one is no work for an event loop."""
        attempt, store, settings = self._attempt, self._store, self._settings
        if attempt is None or store is None or settings is None:
            return None
        _check_counts(pending=pending, done=done)
        data: bytes | None = None

        def save() -> tuple[bool, bool]:
            nonlocal data
            if data is None:
                try:
                    data = encode_checkpoint(state, limit=settings.max_result)
                except Unfit as unfit:
                    raise HoldfastError(
                        f"the checkpoint of job {self.job.id} can't be kept: {unfit}", number="HF1308"
                    ) from None
            asked = store.checkpoint(self._ref(), data, pending, done)
            if done is not None and attempt.done is not None:
                attempt.done = int(done)  # what was reported before is out of date
            events.emit("checkpointed", job=self.job.id, pending=pending, done=done)
            return asked

        return save

    def _under_lease(self, do: Callable[[], tuple[bool, bool]], what: str) -> None:
        """Do this under the lease, however long the database is away: that is no fault of the job's, and its lease
        holds as long. `do` says what people have asked meanwhile: (cancel, pause)."""
        self._refuse_in_transaction(what)
        while not self._done(do):
            self._stop_if_asked()
            time.sleep(OUTAGE_WAIT)

    async def _aunder_lease(self, do: Callable[[], tuple[bool, bool]], what: str) -> None:
        """The same for coroutines: no thread is kept while the database is away."""
        import asyncio

        self._refuse_in_transaction(what)
        while not await in_thread(self._store, self._done, do):
            self._stop_if_asked()
            await asyncio.sleep(OUTAGE_WAIT)

    def _refuse_in_transaction(self, what: str) -> None:
        if self.open_on is not None and self._settings is not None and self._settings.url.startswith("sqlite"):
            raise BadSettings(
                f"this handler has a transaction open, and SQLite one writer: {what} comes before ctx.transaction()",
                number="HF1112",
            )

    def _done(self, do: Callable[[], tuple[bool, bool]]) -> bool:
        """One try. False: the database is away."""
        assert self._attempt is not None
        try:
            cancel, pause = do()
        except LeaseLost:
            if self._attempt.recorded:
                return True  # it has succeeded: there is nothing left to save
            if self._attempt.lose():
                tell_lost(self._attempt.held, working.get())
            self._stop_if_asked()
        except StoreUnavailable:
            return False
        else:
            self._attempt.moved = time.monotonic()
            if cancel:
                self._attempt.ask("cancel")
            elif pause:
                self._attempt.ask("pause")
        return True

    def progress(self, done: int, *, total: int | None = None, note: str | None = None) -> None:
        """Report how far the work is. Cheap: kept in memory, written about once a second by the heartbeat, and at the
        end with the outcome."""
        # Looked at here as in `_check_counts`, which costs more than all the rest: this is called in tight loops.
        if type(done) is not int or not 0 <= done <= MAX_COUNT:
            _check_counts(done=done)
            done = int(done)  # whatever kind of number
        if total is not None and (type(total) is not int or not 0 <= total <= MAX_COUNT):
            _check_counts(total=total)
            total = int(total)
        if note is not None and type(note) is not str:
            if not isinstance(note, str):
                raise HoldfastError(f"note must be a text, not {note!r:.80}", number="HF1202")
            note = str(note)
        attempt = self._attempt
        if attempt is not None:
            attempt.done = done
            if total is not None:
                attempt.total = total
            if note is not None:
                if attempt.hide is None:
                    attempt.hide = self._hiding()  # first: another thread may pass the note on at once
                attempt.note = note
            attempt.fresh = True

    def shown(self, text: str) -> str:
        """The text without this job's secret arguments, nor anything else that looks like a secret."""
        return self._hiding()(text)

    def _hiding(self) -> Hiding:
        if not hasattr(self, "_hide"):  # made when it is first needed: most attempts never do
            args = b"null" if self._attempt is None else self._attempt.held.args
            self._hide = Hiding(args, self._secrets, "" if self._settings is None else self._settings.url)
        return self._hide

    @overload
    def track(self, items: Iterable[T], *, total: int | None = None, done: int = 0) -> Iterator[T]: ...
    @overload
    def track(self, items: AsyncIterable[T], *, total: int | None = None, done: int = 0) -> AsyncIterator[T]: ...

    def track(
        self, items: Iterable[T] | AsyncIterable[T], *, total: int | None = None, done: int = 0
    ) -> Iterator[T] | AsyncIterator[T]:
        """Yield the items, reporting progress; between two of them, a pause or cancel takes effect. `done`: how many
        an earlier attempt did, before these. `async for` goes through an asynchronous iterable."""
        if total is None and isinstance(items, Sized):
            total = min(done + len(items), MAX_COUNT)
        self.progress(done, total=total)
        if isinstance(items, AsyncIterable):
            return self._atrack(items, done)
        return self._track(items, done)

    def _track(self, items: Iterable[T], done: int) -> Iterator[T]:
        attempt = self._attempt
        if attempt is None:
            yield from items
            return
        for item in items:
            if attempt.reason is not None:
                self._stop_if_asked()
            yield item
            done += 1
            attempt.done = done
            attempt.fresh = True

    async def _atrack(self, items: AsyncIterable[T], done: int) -> AsyncIterator[T]:
        attempt = self._attempt
        async for item in items:
            self._stop_if_asked()
            yield item
            done += 1
            if attempt is not None:
                attempt.done = done
                attempt.fresh = True

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self, name: str, function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        """Call the function, once for this job: what it returns is kept under the name, and handed out to any later
        attempt that comes here. Kept as JSON, and read as the function's return hint says. If it raises, nothing is
        kept. Killed in between, it may be called again: at least once, as a job."""
        return cast(T, steps.run(steps.Step(self, name, function), lambda: function(*args, **kwargs)))

    @overload
    async def astep(
        self, name: str, function: Callable[Q, Awaitable[T]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> T: ...
    @overload
    async def astep(self, name: str, function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T: ...

    async def astep(self, name: str, function: Callable[Q, Any], /, *args: Q.args, **kwargs: Q.kwargs) -> Any:
        """`step` for asynchronous handlers. The function may be asynchronous; a plain one runs on a thread."""
        return await steps.arun(steps.Step(self, name, function), lambda: function(*args, **kwargs))

    # -- success with one's own writes -----------------------------------------------------------------------------

    def succeed(self, result: Any = None, *, conn: Any) -> None:
        """Record success on your own open transaction: your writes and the outcome are one commit. The handler's
        return value is then ignored. Raises LeaseLost if the job is no longer yours: roll back."""
        if self._attempt is None or self._store is None:
            return
        if conn is not self.open_on:
            self._refuse_in_transaction("success on a connection of your own")
        try:
            self._store.succeed_on(conn, self._ref(), self._encoded(result), self._attempt.progress)
        except LeaseLost as lost:
            self._refuse_second(conn, lost)
            raise
        self._succeeded_on = conn
        self._attempt.record(True)

    async def asucceed(self, result: Any = None, *, conn: Any) -> None:
        """`succeed` on an asynchronous connection."""
        if self._attempt is None or self._store is None:
            return
        if conn is not self.open_on:
            self._refuse_in_transaction("success on a connection of your own")
        try:
            await self._store.asucceed_on(conn, self._ref(), self._encoded(result), self._attempt.progress)
        except LeaseLost as lost:
            self._refuse_second(conn, lost)
            raise
        self._succeeded_on = conn
        self._attempt.record(True)

    def _refuse_second(self, conn: Any, lost: LeaseLost) -> None:
        """To the statement, a job that this very transaction has ended looks like a lost one. Given back for that, it
        would run again and again."""
        if conn is self._succeeded_on:
            raise HoldfastError(
                "success was recorded on this connection already: record it once, and in ctx.transaction() not at all, "
                "which does so itself (tx.set_result(…) gives it the result)",
                number="HF1310",
            ) from lost

    def transaction(self) -> HandlerTransaction:
        """`with ctx.transaction() as tx:` gives `tx.conn`, a connection to the jobs' own database with an open
        transaction; leaving the block records success and commits both at once. The result is what
        `tx.set_result(…)` was given; what the handler returns comes too late for it and is ignored."""
        if self._store is None:
            raise HoldfastError(
                "ctx.transaction() needs a job from the queue: this handler was called directly", number="HF1310"
            )
        return HandlerTransaction(self, self._store)

    def _step_names(self) -> set[str]:
        """Of the steps this attempt has come to."""
        if not hasattr(self, "_steps"):
            self._steps = set()
        return self._steps

    def _ref(self) -> Ref:
        assert self._attempt is not None
        return Ref(self._attempt.held.id, self._attempt.held.fence)

    def _encoded(self, result: Any) -> bytes | None:
        assert self._settings is not None
        try:
            return None if result is None else encode(result, limit=self._settings.max_result)
        except Unfit as unfit:
            raise HoldfastError(f"the result of job {self.job.id} can't be kept: {unfit}", number="HF1308") from None

    def __repr__(self) -> str:
        return f"<JobContext of job {self.job.id}: {self.job.task}, attempt {self.attempt}>"


class HandlerTransaction:
    """A handler's own transaction, ending in its success. Works with `with` and with `async with`; the connection is
    synchronous in both."""

    def __init__(self, context: JobContext, store: Store) -> None:
        self._context = context
        self._store = store
        self._permits = store.permits
        self._held: list[Permit] = []  # none or one
        self._opened: AbstractContextManager[Any]
        self._opened_at = 0.0  # monotonic
        self._result: Any = None
        self._first = threading.Lock()  # taken by who comes first: a thread that opened it, or a handler that left
        self.conn: Any = None

    def set_result(self, result: Any) -> None:
        self._result = result

    def __enter__(self) -> HandlerTransaction:
        if _on_loop():
            raise HoldfastError(
                "write `async with ctx.transaction()` in a coroutine: a plain `with` would block the event loop, and "
                "with it the transactions that this one waits for",
                number="HF1310",
            )
        self._refuse_nested()
        try:
            if self._permits is not None:
                self._wait_for(self._ask())
            for wait in _growing():
                with suppress(TooManyConnections):
                    self._open()
                    break
                self._wait_for(None, wait)
        except BaseException:
            self._give_back()
            raise
        return self

    async def __aenter__(self) -> HandlerTransaction:
        import asyncio

        self._refuse_nested()
        try:
            if self._permits is not None and not (permit := self._ask()).done():
                await asyncio.wrap_future(permit)
            for wait in _growing():
                with suppress(TooManyConnections):
                    await in_thread(self._store, self._open_unless_left)
                    break
                await asyncio.sleep(wait)
        except BaseException:  # cancelled, or its coroutine is closed
            self._close_if_second()
            self._give_back()
            raise
        return self

    def _refuse_nested(self) -> None:
        if self._context.open_on is not None:
            raise BadSettings(
                "this handler has a transaction open already, and a job succeeds once: leave its block first",
                number="HF1112",
            )

    def _ask(self) -> Permit:
        assert self._permits is not None
        self._held.append(self._permits.ask())
        return self._held[0]

    def _give_back(self) -> None:
        """May be called twice: by a handler that left, and by the thread that opened its transaction."""
        with suppress(IndexError):
            permit = self._held.pop()
            assert self._permits is not None
            self._permits.give_back(permit)

    def _wait_for(self, permit: Permit | None, seconds: float = float("inf")) -> None:
        """For a permit, or for so long. Ends with StopAttempt once the attempt should stop."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (permit is None or not permit.done()):
            self._context._stop_if_asked()
            rest = min(LOOK, until - time.monotonic())
            if permit is None:
                time.sleep(max(0.0, rest))
            else:
                with suppress(TimeoutError):
                    permit.result(rest)
        self._context._stop_if_asked()

    def _open(self) -> None:
        job = self._context.job
        opened = self._store.user_transaction(f"job {job.id} ({job.task})")
        self.conn = opened.__enter__()
        self._opened = opened
        self._opened_at = time.monotonic()
        self._context.open_on = self.conn

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        attempt = self._context._attempt
        self._context.open_on = None
        try:
            if kind is None:
                try:
                    if not getattr(self.conn, "in_transaction", True):
                        raise HoldfastError(
                            "leave commit and rollback to ctx.transaction(): its block ended them itself",
                            number="HF1310",
                        )
                    self._context.succeed(self._result, conn=self.conn)
                except BaseException as refused:
                    self._opened.__exit__(type(refused), refused, refused.__traceback__)
                    if isinstance(refused, LeaseLost):
                        self._look_around()
                    raise
            try:
                self._opened.__exit__(kind, error, trace)
            except OutcomeUnknown:
                if not self._is_recorded():
                    raise
        except BaseException:
            if attempt is not None:
                attempt.record(False)  # it was not committed
            raise
        finally:
            self._give_back()
            self._tell_if_long()

    def _is_recorded(self) -> bool:
        """The reply to the commit was lost. Did it happen? If that can't be told, the worker finds out: what it records
        instead waits for whoever still has the job's row, and is refused if the commit came before it."""
        ref = self._context._ref()
        try:
            return bool(self._store.read("recorded", id=ref.id, fence=ref.fence))
        except StoreError:
            return False

    def _look_around(self) -> None:
        """Another server may have said that the lease is lost: the next transaction goes to the right one."""
        with suppress(StoreError):
            self._store.look_around()

    def _tell_if_long(self) -> None:
        """On SQLite all other writers have waited for it."""
        held, context = time.monotonic() - self._opened_at, self._context
        if held > LONG and context._settings is not None and context._settings.url.startswith("sqlite"):
            events.emit("writers_waited", job=context.job.id, task=context.job.task, seconds=held)

    # A handler may be cancelled while a thread opens its transaction, and its loop end before that thread is done. Then
    # whoever comes second closes it: left open, on SQLite nobody could write any more.

    def _open_unless_left(self) -> None:
        self._open()
        self._close_if_second()

    def _close_if_second(self) -> None:
        if not self._first.acquire(blocking=False):
            left = GeneratorExit()
            self.__exit__(type(left), left, None)

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await at_once(self.__exit__, kind, error, trace)


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or not 0 <= value <= MAX_COUNT):
            raise HoldfastError(f"{name} must be a whole number from 0 to {MAX_COUNT}, not {value!r}", number="HF1202")


def _growing() -> Iterator[float]:
    """Seconds to wait before each next try: longer and longer, and not all at the same moment."""
    longest = CROWDED_FIRST
    while True:
        yield longest * CHANCE.uniform(0.5, 1.0)
        longest = min(2 * longest, CROWDED_MOST)


def _on_loop() -> bool:
    """Does this thread run an event loop? (Who has one has imported asyncio.)"""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def in_handler() -> bool:
    return current.get() is not None
