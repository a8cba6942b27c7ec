"""Job: what an enqueue returns. It knows its id and asks the database for the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from holdfast.errors import (
    BadArguments,
    HoldfastError,
    JobFailed,
    NotFinished,
    RightMissing,
    StoreUnavailable,
    WaitTimeout,
)
from holdfast.model.job import AttemptRecord, JobRecord, Progress, StepRecord
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error
from holdfast.redact import MARKS
from holdfast.tasks.current import in_handler
from holdfast.tasks.offload import in_thread
from holdfast.tasks.options import by_of, changes, reason_of

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.model.stack import Stack
    from holdfast.model.why import Reason

R_co = TypeVar("R_co", covariant=True)

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.02, 2.0, 1.6  # seconds between two reads while no notification arrives


class Job(Generic[R_co]):
    """A job in the database. `id` is text; `created` is False if a job with the same key existed already."""

    __slots__ = ("__weakref__", "_app", "_record", "created", "id", "task")

    def __init__(self, app: Holdfast, id: str, task: str, created: bool = True) -> None:
        self._app = app
        self.id = id
        self.task = task
        self.created = created
        self._record: JobRecord | None = None

    def refresh(self) -> JobRecord:
        """Read the job's row."""
        self._record = self._app.store.reads.get(self.id)
        return self._record

    @property
    def state(self) -> State:
        """The state as of now."""
        return self.refresh().state

    @property
    def args(self) -> Any:
        """The arguments by name, as they are stored: JSON values."""
        kept = msgspec.json.decode(self.refresh().args)
        return {name: value for name, value in kept.items() if name != MARKS} if isinstance(kept, dict) else kept

    @property
    def result(self) -> R_co:
        """What a succeeded job returned; raises JobFailed if it ended otherwise, HoldfastError if it has not ended."""
        known = self._record
        # Success is final; a failed or cancelled job may have been retried since.
        return self._outcome(known if known is not None and known.state is State.SUCCEEDED else self.refresh())

    @property
    def error(self) -> Error | None:
        """The last error of a job that has not succeeded, if there was one."""
        record = self.refresh()
        if not record.error_code:
            return None
        code = record.error_code
        traceback = next((a.traceback for a in reversed(self.attempts) if a.error_code == code), None)
        return Error(code, record.error_message or "", traceback)

    @property
    def attempts(self) -> list[AttemptRecord]:
        """The attempts that did not succeed or left output."""
        return self._app.store.reads.attempts(self.id)

    def wait(self, timeout: float | timedelta | None = None) -> R_co:
        """Wait until the job has finished; returns its result, raises JobFailed or WaitTimeout."""
        self._refuse_in_handler()
        patience = _Patience(timeout)
        woken = threading.Event()
        self._request_notification()
        with self._app.expecting(self.id, woken.set):
            while not ((record := self._read(patience)) and record.finished):
                if woken.wait(patience.pause(record)):
                    woken.clear()
                    patience.renew()
        return self._outcome(record)

    async def await_(self, timeout: float | timedelta | None = None) -> R_co:  # noqa: ASYNC109 - the same as of `wait`
        """`wait` without blocking the loop or a thread: thousands may be awaited at once."""
        self._refuse_in_handler()
        patience = _Patience(timeout)
        import asyncio  # slow to import, and many programs never await

        woken, loop = asyncio.Event(), asyncio.get_running_loop()
        await in_thread(self._app, self._request_notification)
        with self._app.expecting(self.id, lambda: loop.call_soon_threadsafe(woken.set)):
            while not ((record := await asyncio.to_thread(self._read, patience)) and record.finished):
                pause = patience.pause(record)
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await woken.wait()
                    woken.clear()
                    patience.renew()
        return self._outcome(record)

    def _request_notification(self) -> None:
        with suppress(StoreUnavailable, RightMissing):  # unavailable or not permitted: then we read at intervals
            self._app.store.operator.await_finish(self.id)

    def _read(self, patience: _Patience) -> JobRecord | None:
        """The job as it is now; None while the database is away, which does not end the wait."""
        try:
            return self.refresh()
        except StoreUnavailable as error:
            patience.trouble = error
            return None

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.await_().__await__()

    def why(self) -> list[Reason]:
        """Why it does not run, or what became of it: every reason that applies, in order."""
        return self._app.why(self.id)

    def stack(self, *, timeout: float | timedelta = 10.0) -> Stack:
        """Where its handler is right now, while it runs: its calls, or its awaits, without the values of variables."""
        return self._app.stack(self.id, timeout=timeout)

    def output(self, *, timeout: float | timedelta = 10.0) -> str | None:
        """What it has written to stdout and stderr, if it has a process of its own: so far, or in its last attempt."""
        return self._app.output(self.id, timeout=timeout)

    @property
    def progress(self) -> Progress | None:
        """How far it is: items done, total, note, rate, time left; None if its handler has not reported progress."""
        return self.refresh().progress

    @property
    def steps(self) -> list[StepRecord]:
        """The durable steps (`ctx.step`) that have finished."""
        return self._app.store.reads.steps(self.id)

    def pause(self, reason: str | None = None, *, by: str | None = None) -> State:
        """Pause it until `resume`. While it runs this is a request: it parks when its handler next checks."""
        return self._app.store.operator.pause(self.id, reason_of("pause", reason), by_of("pause", by))

    def resume(self, reason: str | None = None, *, by: str | None = None) -> State:
        return self._app.store.operator.resume(self.id, reason_of("resume", reason), by_of("resume", by))

    def cancel(self, reason: str | None = None, *, by: str | None = None) -> State:
        """Cancel it. While it runs this is a request: it stops when its handler next checks."""
        return self._app.store.operator.cancel(self.id, reason_of("cancel", reason), by_of("cancel", by))

    def change(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: float | timedelta | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> State:
        """Change queue, priority, due time or tags while it is queued or paused."""
        checked = changes(queue=queue, priority=priority, delay=delay, run_at=run_at, tags=tags)
        return self._app.store.operator.change(self.id, reason_of("change", reason), by_of("change", by), **checked)

    def retry(self, reason: str | None = None, *, by: str | None = None) -> State:
        return self._app.store.operator.retry(self.id, reason_of("retry", reason), by_of("retry", by))

    def delete(self, reason: str | None = None, *, by: str | None = None) -> State:
        """Delete it and its history, once it has finished."""
        return self._app.store.operator.delete(
            self.id, reason_of("delete", reason), by_of("delete", by), unfinished=False
        )

    def _refuse_in_handler(self) -> None:
        if in_handler():
            raise HoldfastError(
                f"a handler can't wait for job {self.id}: it would occupy a slot that this job may need; "
                "enqueue a follow-up job instead",
                number="HF1306",
            )

    def _outcome(self, record: JobRecord) -> R_co:
        if record.state is State.SUCCEEDED:
            result: R_co = self._app.decode_result(self.task, record.result)
            return result
        if not record.finished:
            raise NotFinished(f"job {self.id} is {record.state.value}: it has no result yet (use wait)")
        why = record.error_message or "no reason was kept"
        raise JobFailed(f"job {self.id} {record.state.value}: {why}", code=record.error_code, job_id=self.id)

    def __repr__(self) -> str:
        return f"<Job {self.id}: {self.task}>"


def _checked(timeout: float | timedelta | None) -> float | None:
    """In seconds. The rest of a deadline may be negative, which counts as 0."""
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout == timeout
    if timeout is not None and not number:
        raise BadArguments(f"wait: timeout must be seconds (a number or a timedelta) or None, not {timeout!r:.80}")
    return None if timeout is None else max(0.0, timeout)


class _Patience:
    """How long to wait between two reads of a job: longer each time unless a wake-up came, never past the deadline."""

    def __init__(self, timeout: float | timedelta | None) -> None:
        self._timeout = _checked(timeout)
        self._deadline = None if self._timeout is None else time.monotonic() + self._timeout
        self.trouble: StoreUnavailable | None = None  # why the last read failed
        self.renew()

    def renew(self) -> None:
        self._next = FIRST_WAIT

    def pause(self, record: JobRecord | None) -> float:
        pause, self._next = self._next, min(self._next * GROWTH, LONGEST_WAIT)
        if self._deadline is None:
            return pause
        left = self._deadline - time.monotonic()
        if left <= 0:
            seen = f"job {record.id} is {record.state.value}" if record else f"nothing is known of it: {self.trouble}"
            raise WaitTimeout(f"{seen} after {self._timeout:g} s; it goes on")
        return min(pause, left)
