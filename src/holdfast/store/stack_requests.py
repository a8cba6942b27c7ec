"""Asks the worker that holds a job what its handler is doing now, and carries the answer back. In a table of its own,
so that the jobs' hot rows are not touched."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import Refused, WaitTimeout
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.model.stack import Stack, taken
from holdfast.store.columns import JobId, key_of
from holdfast.store.engine import Database, Wakeups

if TYPE_CHECKING:
    from holdfast.store.base import Store

FORGOTTEN = 600.0  # seconds after which nobody waits for an answer any more
FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.02, 0.25, 1.5  # seconds between two looks for the answer


class StackAnswer(NamedTuple):
    """What is known of a question: the answer, if there is one, and the attempt it was about."""

    answer: str | None
    answered_at: datetime | None
    running: bool  # the attempt still is what it was
    state: State | None  # of the job; None: it is deleted


class StackRequests:
    def __init__(self, db: Database, wakeups: Wakeups) -> None:
        self._db = db
        self._wakeups = wakeups

    @contextmanager
    def asking(self, job_id: JobId, fence: str) -> Iterator[str]:
        """Ask the holder of this attempt where its handler is; the request stands until the block ends."""
        id = str(uuid.uuid4())
        self._db.write("ask_stack", id=id, job_id=job_id, fence=fence)
        self._wakeups.notify(requests=True)
        try:
            yield id
        finally:
            self._db.write("drop_stack", id=id, minus_age=-FORGOTTEN)

    def unanswered(self) -> list[tuple[JobId, str]]:
        """The attempts, by job and fence, whose holders are asked for a stack."""
        return [(row["job_id"], str(row["fence"])) for row in self._db.read("stack_asks")]

    def answer(self, job_id: JobId, fence: str, answer: str) -> None:
        """Answer everyone who asked about this attempt."""
        self._db.write("answer_stack", job_id=job_id, fence=fence, answer=answer)

    def look(self, id: str) -> StackAnswer:
        """What is known of a request now."""
        rows = self._db.read("stack_answer", id=id)
        if not rows:  # someone cleared the table
            return StackAnswer(None, None, False, None)
        [row] = rows
        state = None if row["state"] is None else State(row["state"])
        running = state is State.RUNNING and bool(row["same"])
        return StackAnswer(row["answer"], self._db.codec.moment(row["answered_at"]), running, state)


def ask_for_stack(store: Store, job_id: str, timeout: float) -> Stack:
    """The stack of a running handler; Refused if there is none, WaitTimeout if nobody answers."""
    job = store.reads.get(job_id)
    if job.state is not State.RUNNING or job.fence is None:
        raise _not_running(job_id, job.state)
    worker = _holder(store, job)
    deadline = time.monotonic() + timeout
    wait = FIRST_WAIT
    with store.stack_requests.asking(key_of(job_id), job.fence) as question:
        while True:
            said = store.stack_requests.look(question)
            if said.answer is not None and said.answered_at is not None:
                told = taken(said.answer)
                return Stack(
                    job_id, job.task, job.attempt, job.worker or "", told.pid, told.thread, said.answered_at, told.text,
                    told.output,
                )  # fmt: skip
            if not said.running:
                raise _not_running(job_id, said.state)
            if time.monotonic() + wait > deadline:
                raise WaitTimeout(
                    f"no answer from {worker} within {timeout:g} s: what runs there holds Python's global lock (the "
                    f"GIL), or the process is stopped. holdfast why {job_id} tells whether its lease is renewed",
                    number="HF1322",
                )
            time.sleep(wait)
            wait = min(wait * GROWTH, LONGEST_WAIT)


def _not_running(job_id: str, state: State | None) -> Refused:
    now = {None: "deleted", State.RUNNING: "running again, in another attempt"}.get(state, state)
    return Refused(f"job {job_id} is {now}: only the handler of a running job has a stack", number="HF1321")


def _holder(store: Store, job: JobRecord) -> str:
    """Who is asked, in words. Refused if that worker is gone."""
    now = store.reads.now()
    found = next((worker for worker in store.workers.all() if worker.id == job.worker), None)
    if found is not None and found.alive(now):
        return f"worker {found.id} (pid {found.pid} on {found.host})"
    seen = "has ended" if found is None else f"was last heard of {(now - found.seen_at).total_seconds():.0f} s ago"
    raise Refused(
        f"job {job.id} was taken by worker {job.worker}, which {seen}: nobody can tell where its handler is. "
        f"When its lease ends, others take the job: holdfast why {job.id}",
        number="HF1321",
    )
