"""What a million rows do to the figures: finished ones, queued ones of the same task, both together, and queued ones
that no worker here serves.

They are loaded by plain SQL and never analysed: no plan may depend on statistics. A fresh table and a crowded one are
read in turn, and compared pair by pair: a machine that slows down meanwhile doesn't look like growth."""

from __future__ import annotations

import statistics
import time
import uuid

from bench.app import hf, noop
from bench.drain import drain
from bench.enqueue import enqueue_bulk, enqueue_one
from bench.readings import Readings
from bench.sizes import Sizes
from bench.target import ARGS, Target
from holdfast.model.job import DEFAULT_QUEUE, Wants

INSERT = (
    "insert into @jobs (queue, task, args, state, attempt, created_at, run_at, ready_at, started_at, finished_at, "
    "fence, worker) select :queue, :task, {json}, "
)
QUEUED = INSERT + "'queued', 0, @now, @now, @now, null, null, null, null from {series}"
FINISHED = INSERT + "'succeeded', 1, @now, @now, null, @now, @now, {uuid}, 'crowd' from {series}"

HERE, ELSEWHERE = (DEFAULT_QUEUE, noop.name), ("elsewhere", "unserved")
CROWDS = {
    "finished": [(FINISHED, HERE)],
    "queued": [(QUEUED, HERE)],
    "both": [(FINISHED, HERE), (QUEUED, HERE)],
    "unserved": [(QUEUED, ELSEWHERE)],
}
FIGURES = ("drain", "enqueue_one", "enqueue_bulk", "claim_ms")
PAIRS = 2  # readings of a fresh table and a crowded one, a round

Read = dict[str, float]


def keys() -> list[str]:
    return [
        f"{figure}_{where}"
        for figure in FIGURES
        for where in ("fresh", *map(_name, CROWDS), *(f"{_name(kind)}_to_fresh" for kind in CROWDS))
    ]


def growth(target: Target, sizes: Sizes, readings: Readings) -> None:
    for kind in CROWDS:
        with target.beside() as crowded:
            crowded.leave_unanalysed()
            for text, whose in CROWDS[kind]:
                _load(crowded, text, whose, sizes)
            waits = (QUEUED, HERE) in CROWDS[kind]
            for _ in range(PAIRS * sizes.rounds):
                target.use()
                target.fresh()
                fresh = {"drain": drain(target, _filled(target, sizes)).rate}
                crowded.use()
                ids = _first_queued(crowded, sizes) if waits else _filled(crowded, sizes)
                _compare(kind, fresh, {"drain": drain(crowded, ids, analyse=False).rate}, readings)
                crowded.vacuum()
            for _ in range(PAIRS * sizes.rounds):
                target.use()
                target.fresh()
                fresh = _enqueue_and_claim(target, sizes, analyse=True)
                crowded.use()
                _compare(kind, fresh, _enqueue_and_claim(crowded, sizes, analyse=False), readings)


def _compare(kind: str, fresh: Read, crowded: Read, readings: Readings) -> None:
    for figure in fresh:
        readings.add(f"{figure}_fresh", fresh[figure])
        readings.add(f"{figure}_{_name(kind)}", crowded[figure])
        # Of a time, as of a rate, 0.9 means that a tenth is lost.
        kept = fresh[figure] / crowded[figure] if figure == "claim_ms" else crowded[figure] / fresh[figure]
        readings.add(f"{figure}_{_name(kind)}_to_fresh", kept)


def _enqueue_and_claim(target: Target, sizes: Sizes, *, analyse: bool) -> Read:
    read = {}
    for name, work, jobs in (
        ("enqueue_one", enqueue_one, sizes.singles),
        ("claim_ms", _claim_ms, sizes.singles // 10),  # of those
        ("enqueue_bulk", enqueue_bulk, sizes.bulk),
    ):
        target.settle(analyse=analyse)
        read[name] = work(jobs)
    return read


def _load(target: Target, text: str, whose: tuple[str, str], sizes: Sizes) -> None:
    queue, task = whose
    target.rows(text.format(**target.words), args=ARGS, n=sizes.crowd, queue=queue, task=task)


def _filled(target: Target, sizes: Sizes) -> range:
    """So many jobs, and half as many behind them, as where a million wait: a worker claims ahead, and that costs time
    before the last one is done."""
    return target.fill(sizes.jobs * 3 // 2)[: sizes.jobs]


def _first_queued(target: Target, sizes: Sizes) -> range:
    """Of a crowd, those that come next: jobs are taken in the order of their ids. A worker goes on until it is stopped:
    where it left too few, there comes another crowd."""
    [(taken,)] = target.rows("select coalesce(max(id), 0) from @jobs where attempt > 0")
    [(left,)] = target.rows("select count(*) from @jobs where id > :taken", taken=taken)
    if left < sizes.jobs:
        _load(target, QUEUED, HERE, sizes)
    return range(taken + 1, taken + 1 + sizes.jobs)


def _claim_ms(count: int) -> float:
    """One job, claimed by the store's own statement and committed: the median of so many."""
    took = []
    for _ in range(count):
        wants = Wants(fence=str(uuid.uuid4()), worker="bench", tasks=(noop.name,), limit=1, lease=600.0)
        began = time.perf_counter()
        claimed = hf.store.attempts.claim(wants)
        took.append(1000 * (time.perf_counter() - began))
        assert len(claimed.jobs) == 1
    return statistics.median(took)


def _name(kind: str) -> str:
    return f"with_1m_{kind}"
