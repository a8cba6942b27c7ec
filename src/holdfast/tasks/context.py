"""What a handler is given: its job, and the means to save and report progress, to stop in time, and to record success
together with its own writes. The work is done by the parts that a context has, each made when it is first used: most
handlers use none of them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, overload

from holdfast.errors import HoldfastError
from holdfast.model.outcome import MAX_COUNT
from holdfast.model.payload import decode_checkpoint
from holdfast.redact import Hiding
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.current import JobInfo, info_of
from holdfast.tasks.handler_transaction import HandlerTransaction, Success
from holdfast.tasks.lease_writes import (
    LeaseWrites,
    acheckpoint_on,
    atrack,
    check_counts,
    checked_note,
    checkpoint_on,
    saving_checkpoint,
    track,
)
from holdfast.tasks.steps import Steps

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.base import Store

T = TypeVar("T")
Q = ParamSpec("Q")


class JobContext:
    """Passed to a handler whose first parameter is annotated with it (or is called `ctx`)."""

    __slots__ = ("_attempt", "_hide", "_secrets", "_settings", "_steps", "_store", "_success", "_task", "_writes")
    _hide: Hiding
    _steps: Steps
    _success: Success
    _task: str
    _writes: LeaseWrites

    def __init__(
        self, attempt: Attempt | None, store: Store | None, settings: Settings | None, secrets: Collection[str] = ()
    ) -> None:
        self._attempt = attempt
        self._store = store
        self._settings = settings
        self._secrets = secrets  # names of arguments

    @classmethod
    def detached(cls, task: str) -> JobContext:
        """For a handler that is called as a plain function: nothing is stored."""
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
        what you need and return None (or raise) soon; what was requested then takes effect."""
        if self._attempt is None or self._attempt.reason is None:
            return False
        self._attempt.stop_seen = True
        return True

    # -- progress ----------------------------------------------------------------------------------------------------

    def checkpoint(self, state: Any, *, pending: int = 0, done: int | None = None, conn: Any = None) -> None:
        """Save progress, JSON values or bytes: the next attempt finds it in `ctx.saved`, on whatever host it runs.
        `pending` and `done` count work items. If the attempt should stop, it stops here, right after saving.

        On your own open transaction (`conn`) your writes and the checkpoint are one commit. It raises LeaseLost if the
        job is no longer yours: roll back. The attempt does not stop here then: look at `ctx.should_stop()` once you
        have committed."""
        if (writes := self._lease_writes()) is not None:
            if conn is not None:
                return checkpoint_on(writes, conn, state, pending, done)
            writes.write(saving_checkpoint(writes, state, pending, done), "a checkpoint")
            writes.attempt.raise_if_stopping(at_shutdown=True)

    async def acheckpoint(self, state: Any, *, pending: int = 0, done: int | None = None, conn: Any = None) -> None:
        """`checkpoint` for asynchronous handlers: the loop goes on meanwhile. `conn` may be asynchronous."""
        if (writes := self._lease_writes()) is not None:
            if conn is not None:
                return await acheckpoint_on(writes, conn, state, pending, done)
            await writes.awrite(saving_checkpoint(writes, state, pending, done), "a checkpoint")
            writes.attempt.raise_if_stopping(at_shutdown=True)

    def progress(self, done: int | None = None, *, total: int | None = None, note: str | None = None) -> None:
        """Report how far the work is; what is left out stays as it was. Cheap: kept in memory. The heartbeat writes the
        first report within a second, later ones about once a second, and the last one with the outcome."""
        # The same checks as in `check_counts`, which costs more than all the rest: handlers call this in tight loops.
        if done is not None and (type(done) is not int or not 0 <= done <= MAX_COUNT):
            check_counts(done=done)
            done = int(done)  # a bool, an IntEnum
        if total is not None and (type(total) is not int or not 0 <= total <= MAX_COUNT):
            check_counts(total=total)
            total = int(total)
        if note is not None and type(note) is not str:
            note = checked_note(note)
        attempt = self._attempt
        if attempt is not None:
            if done is not None:
                attempt.done = done
            if total is not None:
                attempt.total = total
            if note is not None:
                if attempt.hide is None:
                    attempt.hide = self._hiding()  # before the note: another thread may pass that on at once
                attempt.note = note
            attempt.fresh = True

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
            return atrack(self._attempt, items, done)
        return track(self._attempt, items, done)

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self, name: str, function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T:
        """Call the function, once for this job: what it returns is kept under the name, and handed out to any later
        attempt that comes here. Kept as JSON, and read as the function's return hint says. If it raises, nothing is
        kept. Killed in between, it may be called again: at least once, as a job."""
        return cast(T, self._own_steps().run(name, function, lambda: function(*args, **kwargs)))

    @overload
    async def astep(
        self, name: str, function: Callable[Q, Awaitable[T]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> T: ...
    @overload
    async def astep(self, name: str, function: Callable[Q, T], /, *args: Q.args, **kwargs: Q.kwargs) -> T: ...

    async def astep(self, name: str, function: Callable[Q, Any], /, *args: Q.args, **kwargs: Q.kwargs) -> Any:
        """`step` for asynchronous handlers. The function may be asynchronous; a plain one runs on a thread."""
        return await self._own_steps().arun(name, function, lambda: function(*args, **kwargs))

    # -- success with one's own writes -----------------------------------------------------------------------------

    def succeed(self, result: Any = None, *, conn: Any) -> None:
        """Record success on your own open transaction: your writes and the outcome are one commit. The handler's
        return value is then ignored. Raises LeaseLost if the job is no longer yours: roll back."""
        if (success := self._own_success()) is not None:
            success.record(result, conn)

    async def asucceed(self, result: Any = None, *, conn: Any) -> None:
        """`succeed` on an asynchronous connection."""
        if (success := self._own_success()) is not None:
            await success.arecord(result, conn)

    def transaction(self) -> HandlerTransaction:
        """`with ctx.transaction() as tx:` gives `tx.conn`, a connection to the jobs' own database with an open
        transaction; leaving the block records success and commits both at once. The result is what
        `tx.set_result(…)` was given; what the handler returns comes too late for it and is ignored."""
        writes, success = self._lease_writes(), self._own_success()
        if writes is None or success is None:
            raise HoldfastError(
                "ctx.transaction() needs a job from the queue: this handler was called directly", number="HF1310"
            )
        return HandlerTransaction(writes, success)

    # -- for the rest of Holdfast ------------------------------------------------------------------------------------

    def blocks(self, settings: Settings, conn: Any = None) -> bool:
        """Would a write by these settings wait for this handler's own open transaction? On SQLite only."""
        return hasattr(self, "_writes") and self._writes.blocks(settings, conn)

    def shown(self, text: str) -> str:
        """The text without this job's secret arguments, nor anything else that looks like a secret."""
        return self._hiding()(text)

    # -- its parts ---------------------------------------------------------------------------------------------------

    def _lease_writes(self) -> LeaseWrites | None:
        """None: there is no job to store anything for."""
        if not hasattr(self, "_writes"):
            if self._attempt is None or self._store is None or self._settings is None:
                return None
            self._writes = LeaseWrites(self._attempt, self._store, self._settings)
        return self._writes

    def _own_success(self) -> Success | None:
        if not hasattr(self, "_success"):
            if (writes := self._lease_writes()) is None:
                return None
            self._success = Success(writes)
        return self._success

    def _own_steps(self) -> Steps:
        if not hasattr(self, "_steps"):
            self._steps = Steps(self._lease_writes(), self.job.id)
        return self._steps

    def _hiding(self) -> Hiding:
        if not hasattr(self, "_hide"):
            args = b"null" if self._attempt is None else self._attempt.held.args
            self._hide = Hiding(args, self._secrets, "" if self._settings is None else self._settings.url)
        return self._hide

    def __repr__(self) -> str:
        return f"<JobContext of job {self.job.id}: {self.job.task}, attempt {self.attempt}>"
