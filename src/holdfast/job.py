"""Job: the handle of one job, a snapshot of it."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from holdfast.durations import Duration
from holdfast.errors import BadArguments, HoldfastError, JobFailed, JobNotFound, NotFinished
from holdfast.model.access import SCOPES, Scope
from holdfast.model.job import AttemptRecord, JobRecord, LastError, Progress, StepRecord
from holdfast.model.lifecycle import FINISHED, State
from holdfast.model.record import arguments
from holdfast.tasks.offload import twin
from holdfast.tasks.options import by_of, changes, queue_of, reason_of, seconds
from holdfast.waiters import FIRST_UPDATE_WAIT, FIRST_WAIT, Updates

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.model.stack import Stack
    from holdfast.model.why import Reason

R_co = TypeVar("R_co", covariant=True)


class Job(Generic[R_co]):
    """A job as it was when this handle last read it. Properties never ask the database; `refresh()` does, and so do
    the other methods. Each method has an asynchronous twin: `arefresh()`, `acancel()`, …; `await job` waits for it.

    `id` is text; `created` is False if a job with the same key existed already. A handle from an enqueue knows these,
    `task` and `state` (and that of a submitted row its `source` and `source_id`); the rest it knows after a refresh."""

    __slots__ = ("__weakref__", "_app", "_commits_later", "_record", "_row", "_state", "created", "id", "task")

    def __init__(
        self,
        app: Holdfast,
        id: str,
        task: str,
        *,
        created: bool = False,
        state: State = State.QUEUED,
        record: JobRecord | None = None,
        commits_later: bool = False,
        row: tuple[str, str] | None = None,
    ) -> None:
        self._app = app
        self.id = id
        self.task = task
        self.created = created
        self._state = state
        self._record = record
        self._row = row  # the adopted table and the id of its row, from a submission
        self._commits_later = commits_later  # it was enqueued in a transaction of the caller's

    # -- the snapshot --------------------------------------------------------------------------------------------------

    def refresh(self) -> Self:
        """Read the job again. Returns the handle itself: `job.refresh().state`."""
        self._read()
        return self

    def _read(self) -> JobRecord:
        try:
            self._record = self._app.store.reads.get(self.id)
        except JobNotFound as missing:
            if self._commits_later and self._record is None:
                hint = "the transaction it was enqueued in (conn=) has not committed yet, or was rolled back"
                raise JobNotFound(f"{missing.message}: {hint}") from None
            raise
        self._state = self._record.state
        return self._record

    @property
    def record(self) -> JobRecord:
        """The job's row: queue, priority, attempt, due time, worker and all the rest."""
        if self._record is None:
            raise HoldfastError(
                f"job {self.id} has been enqueued, and not been read since: call job.refresh() first", number="HF1316"
            )
        return self._record

    @property
    def state(self) -> State:
        return self._state

    @property
    def finished(self) -> bool:
        """It has succeeded, failed or been cancelled."""
        return self._state in FINISHED

    @property
    def source(self) -> str | None:
        """The adopted table whose row it works; None: it is not a row's."""
        return self._row[0] if self._row is not None else self.record.source

    @property
    def source_id(self) -> str | None:
        """The id of that row, as text."""
        return self._row[1] if self._row is not None else self.record.source_id

    @property
    def args(self) -> Any:
        """The arguments by name, as they are stored: JSON values."""
        return arguments(self.record.args)

    @property
    def result(self) -> R_co:
        """What a succeeded job returned; raises JobFailed if it ended otherwise, NotFinished if it has not ended."""
        if not self.finished:
            raise NotFinished(
                f"job {self.id} was {self.state.value} when it was last read: it had no result yet. Use job.wait(), or "
                "job.refresh() and look again"
            )
        return self._outcome(self.record)

    @property
    def error(self) -> LastError | None:
        """The last error of a job that has not succeeded, if there was one. Its traceback is kept with the attempt:
        `job.attempts()[-1].traceback`."""
        record = self.record
        return LastError(record.error_code, record.error_message or "") if record.error_code else None

    @property
    def progress(self) -> Progress | None:
        """How far it is: items done, total, note, rate, time left; None if its handler has not reported progress."""
        return self.record.progress

    def as_dict(self) -> dict[str, Any]:
        """What the handle knows, as JSON has it, with secrets hidden: for `json.dumps`, or a web framework. After an
        enqueue that is id, task, state and `created`; after a refresh all of the record, and its progress."""
        if self._record is None:
            return {"id": self.id, "task": self.task, "state": self.state.value, "created": self.created}
        return self._record.as_dict(self._app._secrets(self.task))

    # -- looking -------------------------------------------------------------------------------------------------------

    def attempts(self) -> list[AttemptRecord]:
        """The attempts that did not succeed or left output."""
        return self._app.store.reads.attempts(self.id)

    def steps(self) -> list[StepRecord]:
        """The durable steps (`ctx.step`) that have finished."""
        return self._app.store.reads.steps(self.id)

    def why(self) -> list[Reason]:
        """Why it does not run, or what became of it: every reason that applies, in order."""
        return self._app.why(self.id)

    def stack(self, *, timeout: Duration = 10.0) -> Stack:
        """Where its handler is right now, while it runs: its calls, or its awaits, without the values of variables."""
        return self._app.stack(self.id, timeout=timeout)

    def output(self, *, timeout: Duration = 10.0) -> str | None:
        """What it has written to stdout and stderr, if it has a process of its own: so far, or in its last attempt."""
        return self._app.output(self.id, timeout=timeout)

    def token(self, scope: Scope = "read", *, ttl: Duration | None = None) -> str:
        """A token for this job over HTTP, which needs no login: to see it ("read"), or also to do what its task allows
        ("control"). It is valid for `ttl`, or as long as the job is kept. Nothing is stored for it."""
        from holdfast.model.token import Claims, sign  # slow to import

        if scope not in SCOPES:
            raise BadArguments(f'token: scope is "read" or "control", not {scope!r:.80}')
        expires_at = None if ttl is None else int(time.time() + seconds("token: ttl", ttl))
        record = self._record or self._read()
        claims = Claims(self.id, record.created_at, scope, expires_at)
        return sign(self._app.store.credentials.signing_secret(), claims)

    # -- waiting -------------------------------------------------------------------------------------------------------

    def wait(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job has finished; returns its result, raises JobFailed or WaitTimeout."""
        *_, record = self._ending(timeout)
        return self._outcome(record)

    async def await_(self, timeout: Duration | None = None) -> R_co:  # noqa: ASYNC109 - the same as of `wait`
        """`wait` without blocking the loop or a thread: thousands may be awaited at once."""
        record = [record async for record in self._ending(timeout)][-1]
        return self._outcome(record)

    def __await__(self) -> Generator[Any, None, R_co]:
        return self.await_().__await__()

    def updates(self, timeout: Duration | None = None) -> Updates[Job[R_co]]:
        """A snapshot now, and one whenever the job's state or progress changes; the last one has finished. Use it with
        `for` or `async for`. Raises WaitTimeout if that takes longer than the timeout."""
        return Updates(
            self._app, self.id, self._read, _visible, self._snapshot, first=FIRST_UPDATE_WAIT, timeout=timeout
        )  # fmt: skip

    def _ending(self, timeout: Duration | None, *, quiet: bool = False) -> Updates[JobRecord]:
        return Updates(
            self._app, self.id, self._read, _is_finished, _itself, first=FIRST_WAIT, timeout=timeout, quiet=quiet
        )  # fmt: skip

    def _snapshot(self, record: JobRecord) -> Job[R_co]:
        return Job(self._app, self.id, self.task, created=self.created, state=record.state, record=record)

    def _outcome(self, record: JobRecord) -> R_co:
        if record.state is State.SUCCEEDED:
            result: R_co = self._app._decode_result(self.task, record.result)
            return result
        why = record.error_message or "no reason was kept"
        raise JobFailed(f"job {self.id} {record.state.value}: {why}", code=record.error_code, job_id=self.id)

    # -- changing it: each returns its new state -----------------------------------------------------------------------

    def pause(self, reason: str | None = None, *, by: str | None = None) -> State:
        """Pause it until `resume`. While it runs this is a request: it parks when its handler next checks."""
        return self._app.store.operator.pause(self.id, reason_of("pause", reason), by_of("pause", by))

    def resume(self, reason: str | None = None, *, by: str | None = None) -> State:
        """Let it be claimed again."""
        return self._app.store.operator.resume(self.id, reason_of("resume", reason), by_of("resume", by))

    def cancel(self, reason: str | None = None, *, by: str | None = None) -> State:
        """Cancel it. While it runs this is a request: it stops when its handler next checks."""
        return self._app.store.operator.cancel(self.id, reason_of("cancel", reason), by_of("cancel", by))

    def change(
        self,
        *,
        queue: str | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        run_at: datetime | None = None,
        tags: Sequence[str] | None = None,
        reason: str | None = None,
        by: str | None = None,
    ) -> State:
        """Change queue, priority, due time or tags while it is queued or paused."""
        checked = changes(queue=queue, priority=priority, delay=delay, run_at=run_at, tags=tags)
        return self._app.store.operator.change(self.id, reason_of("change", reason), by_of("change", by), **checked)

    def retry(self, reason: str | None = None, *, queue: str | None = None, by: str | None = None) -> State:
        """Queue it again after it failed or was cancelled, with its attempts counted from 0. `queue`: in another."""
        into = None if queue is None else queue_of("retry: queue", queue)
        return self._app.store.operator.retry(self.id, reason_of("retry", reason), by_of("retry", by), queue=into)

    def delete(self, reason: str | None = None, *, by: str | None = None) -> State:
        """Delete it and its history, once it has finished."""
        return self._app.store.operator.delete(
            self.id, reason_of("delete", reason), by_of("delete", by), unfinished=False
        )

    arefresh = twin(refresh)
    aattempts = twin(attempts)
    asteps = twin(steps)
    awhy = twin(why)
    astack = twin(stack)
    aoutput = twin(output)
    atoken = twin(token)
    apause = twin(pause)
    aresume = twin(resume)
    acancel = twin(cancel)
    achange = twin(change)
    aretry = twin(retry)
    adelete = twin(delete)

    def __repr__(self) -> str:
        return f"<Job {self.id}: {self.task}, {self.state.value}>"


def handle(app: Holdfast, record: JobRecord) -> Job[Any]:
    """The handle of a job that has just been read."""
    return Job(app, record.id, record.task, state=record.state, record=record)


def _visible(record: JobRecord) -> object:
    """What of a job makes an update when it changes."""
    return record.state, record.attempt, record.done, record.total, record.note, record.progressed_at


def _is_finished(record: JobRecord) -> object:
    return record.finished


def _itself(record: JobRecord) -> JobRecord:
    return record
