"""Asks the worker that holds a job where its handler is, and waits for the answer."""

from __future__ import annotations

import time

from holdfast.errors import Refused, WaitTimeout
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.model.stack import Stack, taken
from holdfast.store.base import Store

FIRST_WAIT, LONGEST_WAIT, GROWTH = 0.02, 0.25, 1.5  # seconds between two looks for the answer


def ask_for_stack(store: Store, job_id: str, timeout: float) -> Stack:
    """The stack of a running handler; Refused if there is none, WaitTimeout if nobody answers."""
    job = store.get(job_id)
    if job.state is not State.RUNNING or job.fence is None:
        raise _not_running(job_id, job.state)
    worker = _holder(store, job)
    deadline = time.monotonic() + timeout
    wait = FIRST_WAIT
    with store.asking_stack(store.key_of(job_id), job.fence) as question:
        while True:
            said = store.stack_answer(question)
            if said.answer is not None and said.answered_at is not None:
                told = taken(said.answer)
                return Stack(
                    job_id, job.task, job.attempt, job.worker or "", told.pid, told.thread, said.answered_at, told.text
                )
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
    now = store.now()
    found = next((worker for worker in store.workers() if worker.id == job.worker), None)
    if found is not None and found.alive(now):
        return f"worker {found.id} (pid {found.pid} on {found.host})"
    seen = "has ended" if found is None else f"was last heard of {(now - found.seen_at).total_seconds():.0f} s ago"
    raise Refused(
        f"job {job.id} was taken by worker {job.worker}, which {seen}: nobody can tell where its handler is. "
        f"When its lease ends, others take the job: holdfast why {job.id}",
        number="HF1321",
    )
