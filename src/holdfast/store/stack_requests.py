"""The part of a Store that carries questions to the worker that holds a job, and its answers back: what is its handler
doing now? In a table of its own, so that the jobs' hot rows are not touched."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.model.lifecycle import State
from holdfast.store.columns import JobId, Row
from holdfast.store.reads import Reading

FORGOTTEN = 600.0  # seconds after which nobody waits for an answer any more


class StackAnswer(NamedTuple):
    """What is known of a question: the answer, if there is one, and the attempt it was about."""

    answer: str | None
    answered_at: datetime | None
    running: bool  # the attempt still is what it was
    state: State | None  # of the job; None: it is deleted


class KeepsStacks(Reading):
    if TYPE_CHECKING:  # what the rest of a Store brings

        @abstractmethod
        def write(self, name: str, /, **parameters: Any) -> list[Row]: ...
        @abstractmethod
        def notify(self, *, requests: bool = False) -> None: ...

    @contextmanager
    def asking_stack(self, job_id: JobId, fence: str) -> Iterator[str]:
        """Ask the holder of this attempt where its handler is; the question stands until the block ends."""
        id = str(uuid.uuid4())
        self.write("ask_stack", id=id, job_id=job_id, fence=fence)
        self.notify(requests=True)
        try:
            yield id
        finally:
            self.write("drop_stack", id=id, minus_age=-FORGOTTEN)

    def stack_asks(self) -> list[tuple[JobId, str]]:
        """The attempts, by job and fence, whose holders are asked for a stack."""
        return [(row["job_id"], str(row["fence"])) for row in self.read("stack_asks")]

    def answer_stack(self, job_id: JobId, fence: str, answer: str) -> None:
        """Tell whoever asked about this attempt."""
        self.write("answer_stack", job_id=job_id, fence=fence, answer=answer)

    def stack_answer(self, id: str) -> StackAnswer:
        rows = self.read("stack_answer", id=id)
        if not rows:  # someone cleared the table
            return StackAnswer(None, None, False, None)
        [row] = rows
        state = None if row["state"] is None else State(row["state"])
        running = state is State.RUNNING and bool(row["same"])
        return StackAnswer(row["answer"], self.codec.moment(row["answered_at"]), running, state)
