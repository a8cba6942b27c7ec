"""What a process of its own costs a job."""

from __future__ import annotations

from bench.app import hf
from bench.target import Target
from bench.workers import wait_until, working
from holdfast.model.job import NewJob


def isolated_job_ms(target: Target, jobs: int) -> float:
    """One after another, jobs that do nothing: what is left is the process, its imports, and its end."""
    ids = [int(hf.store.enqueue(NewJob(task="alone", args=b"{}")).id) for _ in range(jobs)]
    seen = range(ids[0], ids[-1] + 1)
    with working(app="bench.isolated_app:hf", isolated=1) as workers:
        wait_until(lambda: not target.unfinished(seen), workers)
    return 1000 * target.seconds_worked(seen) / jobs
