"""What a handler is given: its job, and how to save progress, report it, stop in time, and record success with its
own writes."""

from __future__ import annotations

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
from holdfast.errors import BadSettings, HoldfastError, LeaseLost, StoreError, StoreUnavailable
from holdfast.model.cron import tick_of
from holdfast.model.job import Held
from holdfast.model.payload import Unfit, encode
from holdfast.redact import Hide, hiding
from holdfast.store.base import Ref
from holdfast.work import steps
from holdfast.work.attempt import Attempt, StopAttempt

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.base import Store

T = TypeVar("T")
Q = ParamSpec("Q")

OUTAGE_WAIT = 1.0  # seconds between two tries to save a checkpoint while the database is away

MAX_COUNT = 10**15  # of pending, done and total: bytes of a petabyte, and thousands of them can be summed

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
    correlation_id: str | None
    attempt: int = 1

    @property
    def tick(self) -> datetime | None:
        """The instant of its cron this job was enqueued for, in UTC; None: it came in another way."""
        return tick_of(self.task, self.correlation_id)


def info_of(held: Held) -> JobInfo:
    return JobInfo(
        str(held.id), held.task, held.queue, held.priority, held.max_attempts, held.correlation_id, held.attempt
    )


class Hiding:
    """`hiding`, done when it is first needed. It knows no attempt: one refers to it."""

    __slots__ = ("_given", "_hide")
    _hide: Hide

    def __init__(self, args: bytes, names: Collection[str], url: str) -> None:
        self._given = (args, names, url)

    def __call__(self, text: str) -> str:
        if not hasattr(self, "_hide"):
            self._hide = hiding(*self._given)
        return self._hide(text)


class JobContext:
    """Handed to a handler whose first parameter is annotated with it (or called `ctx`)."""

    __slots__ = ("_attempt", "_hide", "_secrets", "_settings", "_steps", "_store", "_task", "transaction_open")
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
        self.transaction_open = False  # a block of `transaction()` is open

    def writes_to(self, settings: Settings) -> bool:
        """Is a block of `transaction()` open on the SQLite file that these name?"""
        there = self._settings if self.transaction_open else None
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
            return JobInfo("", self._task, "", 0, 1, None)
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
        return None if data is None else msgspec.json.decode(data)

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
            self._last_progress(attempt)
            raise StopAttempt(attempt.reason)

    def _last_progress(self, attempt: Attempt) -> None:
        """What was reported since the last beat, so that a paused job shows how far it is. Not on an event loop, which
        must not wait for a database."""
        progress, attempt.progress = attempt.progress, None
        if progress is not None and self._store is not None and attempt.reason != "lost" and not _on_loop():
            with suppress(StoreError):  # how far it was is all that is lost; the stop itself must not fail for it
                self._store.progress(self._ref(), *progress)

    # -- progress ----------------------------------------------------------------------------------------------------

    def checkpoint(self, state: Any, *, pending: int = 0, done: int | None = None) -> None:
        """Save progress: the next attempt finds it in `ctx.saved`, on whatever host it runs. `pending` and `done`
        count work items. If the attempt should stop, it stops here, right after saving."""
        store = self._store
        if self._attempt is None or store is None or self._settings is None:
            return
        try:
            data = encode(state, limit=self._settings.max_result)
        except Unfit as unfit:
            raise HoldfastError(
                f"the checkpoint of job {self.job.id} can't be kept: {unfit}", number="HF1308"
            ) from None
        _check_counts(pending=pending, done=done)

        def save() -> tuple[bool, bool]:
            asked = store.checkpoint(self._ref(), data, pending, done)
            events.emit("checkpointed", job=self.job.id, pending=pending, done=done)
            return asked

        self._under_lease(save, "a checkpoint")
        self._stop_if_asked(also_at_shutdown=True)

    def _under_lease(self, do: Callable[[], tuple[bool, bool]], what: str) -> None:
        """Do this under the lease, however long the database is away: that is no fault of the job's, and its lease
        holds as long. `do` says what people have asked meanwhile: (cancel, pause)."""
        if self.transaction_open and self._settings is not None and self._settings.url.startswith("sqlite"):
            raise BadSettings(
                f"this handler has a transaction open, and SQLite one writer: {what} comes before ctx.transaction()",
                number="HF1112",
            )
        while not self._done(do):
            self._stop_if_asked()
            time.sleep(OUTAGE_WAIT)

    def _done(self, do: Callable[[], tuple[bool, bool]]) -> bool:
        """One try. False: the database is away."""
        assert self._attempt is not None
        try:
            cancel, pause = do()
        except LeaseLost:
            if self._attempt.ask("lost"):
                events.emit("lease_lost", job=self.job.id)
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

    async def acheckpoint(self, state: Any, *, pending: int = 0, done: int | None = None) -> None:
        """`checkpoint` for asynchronous handlers: the loop goes on meanwhile."""
        await in_thread(self.checkpoint, state, pending=pending, done=done)

    def progress(self, done: int, *, total: int | None = None, note: str | None = None) -> None:
        """Report how far the work is. Cheap: kept in memory, written about once a second by the heartbeat."""
        # Looked at here as in `_check_counts`, which costs more than all the rest: this is called in tight loops.
        if type(done) is not int or not 0 <= done <= MAX_COUNT:
            _check_counts(done=done)
        if total is not None and (type(total) is not int or not 0 <= total <= MAX_COUNT):
            _check_counts(total=total)
        if note is not None and not isinstance(note, str):
            raise HoldfastError(f"note must be a text, not {note!r:.80}", number="HF1202")
        attempt = self._attempt
        if attempt is not None:
            attempt.done = done
            if total is not None:
                attempt.total = total
            if note is not None:
                attempt.note = note
                if attempt.hide is None:
                    attempt.hide = self._hiding()

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

    async def _atrack(self, items: AsyncIterable[T], done: int) -> AsyncIterator[T]:
        attempt = self._attempt
        async for item in items:
            self._stop_if_asked()
            yield item
            done += 1
            if attempt is not None:
                attempt.done = done

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
        self._store.succeed_on(conn, self._ref(), self._encoded(result))
        self._attempt.record(True)

    async def asucceed(self, result: Any = None, *, conn: Any) -> None:
        """`succeed` on an asynchronous connection."""
        if self._attempt is None or self._store is None:
            return
        await self._store.asucceed_on(conn, self._ref(), self._encoded(result))
        self._attempt.record(True)

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
        self._opened: AbstractContextManager[Any] = store.user_transaction()
        self._result: Any = None
        self._first = threading.Lock()  # taken by who comes first: a thread that opened it, or a handler that left
        self.conn: Any = None

    def set_result(self, result: Any) -> None:
        self._result = result

    def __enter__(self) -> HandlerTransaction:
        self.conn = self._opened.__enter__()
        self._context.transaction_open = True
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        attempt = self._context._attempt
        self._context.transaction_open = False
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
                    raise
            self._opened.__exit__(kind, error, trace)
        except BaseException:
            if attempt is not None:
                attempt.record(False)  # it was not committed
            raise

    async def __aenter__(self) -> HandlerTransaction:
        import asyncio

        try:
            await asyncio.to_thread(self._open_unless_left)
        except BaseException:  # cancelled, or its coroutine is closed
            self._close_if_second()
            raise
        return self

    # A handler may be cancelled while a thread opens its transaction, and its loop end before that thread is done. Then
    # whoever comes second closes it: left open, on SQLite nobody could write any more.

    def _open_unless_left(self) -> None:
        self.__enter__()
        self._close_if_second()

    def _close_if_second(self) -> None:
        if not self._first.acquire(blocking=False):
            left = GeneratorExit()
            self.__exit__(type(left), left, None)

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        await in_thread(self.__exit__, kind, error, trace)


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or not 0 <= value <= MAX_COUNT):
            raise HoldfastError(f"{name} must be a whole number from 0 to {MAX_COUNT}, not {value!r}", number="HF1202")


def _on_loop() -> bool:
    """Does this thread run an event loop? (Who has one has imported asyncio.)"""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def in_handler() -> bool:
    return current.get() is not None


async def in_thread(call: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
    """`asyncio.to_thread`, which is imported when it is needed: that takes as long as all of ours."""
    import asyncio

    return await asyncio.to_thread(call, *args, **kwargs)
