"""How fast workers empty a queue."""

from __future__ import annotations

from dataclasses import dataclass

from bench.app import hf
from bench.target import Target
from bench.workers import all_up, wait_until, working
from holdfast.model.job import DEFAULT_QUEUE


@dataclass(frozen=True)
class Drained:
    rate: float  # jobs a second, from the first start to the last finish as the database saw them
    rss_mb: float  # of the worker, when it was done


def drain(target: Target, ids: range, *, analyse: bool = True) -> Drained:
    """One plain worker, started when the jobs are there. Jobs beyond `ids` it works or not: they don't count."""
    target.settle(analyse=analyse)
    with working() as workers:
        wait_until(lambda: target.is_finished(ids[-1]), workers)
        wait_until(lambda: not target.unfinished(ids), workers)
        rss = workers[0].rss_mb()
    return Drained(len(ids) / target.seconds_worked(ids), rss)


def drain_held(target: Target, ids: range, count: int, processes: int | None = None) -> float:
    """So many workers on one queue, which is held until all are up: none works while another still starts."""
    hf.pause_queue(DEFAULT_QUEUE)
    target.settle()
    with working(count, processes=processes) as workers:
        all_up(workers)
        hf.resume_queue(DEFAULT_QUEUE)
        wait_until(lambda: target.is_finished(ids[-1]), workers)
        wait_until(lambda: not target.unfinished(ids), workers)
    return len(ids) / target.seconds_worked(ids)
