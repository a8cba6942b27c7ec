"""What is measured. Each row is a function of runs and returns figures by the names of METRICS in verdict.py."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.peers.databases import Server
from bench.peers.run import Run
from bench.peers.tally import read_long_starts, read_waits_ms

ONES = 1_000
PICKUPS = 70
RATE, SECONDS = 500, 10
IDLE = 60.0
LONG = 150  # seconds: longer than everything we wait for
RERUN_CAP = 60.0
SETTLED = 12.0  # seconds until the server has counted what idle connections did before

Figures = dict[str, float]


@dataclass(frozen=True)
class Alone:
    """Measured one contender after the other."""

    tuning: str
    measure: Callable[[Run, int], Figures]


@dataclass(frozen=True)
class Together:
    """Mostly waiting: brought to where it begins one after the other, then measured for all contenders at once. Each
    has a database of its own."""

    tuning: str
    begin: Callable[[Run], object]
    measure: Callable[[Sequence[Run], Server], list[Figures]]


def enqueue(run: Run, jobs: int) -> Figures:
    ones = run.ask("one", ONES)
    many = run.ask("bulk", run.contender.jobs(jobs, at_least=0.25))  # fewer would be over too soon to be timed
    return {"enqueue_one": ones["rate"], "enqueue_bulk": many["rate"]}


def drain(run: Run, jobs: int) -> Figures:
    """From the first handler's start until every job was handled and none is pending."""
    jobs = run.contender.jobs(jobs)
    run.ask("bulk", jobs)
    run.database.tidy()
    run.start_worker()
    return {"drain": jobs / _seconds_to_the_end(run, jobs, lambda: run.tally().first_ns)}


def drain_two_workers(run: Run, jobs: int) -> Figures:
    """The same with two that are up and idle. They stand still while the jobs come in: else the drain would be half
    over before the slower one has started."""
    jobs = 2 * run.contender.jobs(jobs)
    run.start_ready_workers(2)
    with run.frozen():
        run.ask("bulk", jobs)
        run.database.tidy()
        before = run.tally().count
    run.wait_until(lambda: run.tally().count > before, "handled a job")
    began, seen = time.monotonic_ns(), run.tally().count
    return {"drain_two_workers": (before + jobs - seen) / _seconds_to_the_end(run, before + jobs, lambda: began)}


def _seconds_to_the_end(run: Run, jobs: int, began_ns: Callable[[], int]) -> float:
    run.wait_until(lambda: run.tally().count >= jobs, "handled all jobs")
    run.wait_until(lambda: not run.pending(), "recorded all jobs")
    return (time.monotonic_ns() - began_ns()) / 1e9


def pickup(run: Run, _jobs: int) -> Figures:
    run.start_ready_workers(1)
    _, waits = _produce(run, "paced", PICKUPS)
    return {"pickup_p50_ms": percentile(waits, 50), "pickup_p95_ms": percentile(waits, 95)}


def steady(run: Run, _jobs: int) -> Figures:
    run.start_ready_workers(1)
    sent, waits = _produce(run, "steady", RATE, SECONDS)
    return {
        "steady_p50_ms": percentile(waits, 50),
        "steady_p99_ms": percentile(waits, 99),
        "steady_enqueued": sent["rate"],
    }


def _produce(run: Run, command: str, *arguments: int) -> tuple[dict[str, float], list[float]]:
    """What the producer says, and how long each job waited from the call of enqueue to the start of its handler."""
    time.sleep(1.0)
    before = run.tally().count
    sent = run.ask(command, *arguments)
    run.wait_until(lambda: run.tally().count - before >= sent["jobs"], "handled all jobs")
    return sent, read_waits_ms(run.place)


def percentile(values: Sequence[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def idle(runs: Sequence[Run], server: Server) -> list[Figures]:
    with server.without_autovacuum():
        time.sleep(SETTLED)
        before = [(run.database.transactions(), run.cpu_seconds()) for run in runs]
        time.sleep(IDLE)
        after = [(run.database.transactions(), run.cpu_seconds()) for run in runs]
    return [_idle_figures(*pair) for pair in zip(before, after, strict=True)]


def _idle_figures(before: tuple[int | None, float | None], after: tuple[int | None, float | None]) -> Figures:
    found: Figures = {}
    if before[0] is not None and after[0] is not None:
        found["idle_statements_per_minute"] = (after[0] - before[0]) * 60 / IDLE
    if before[1] is not None and after[1] is not None:
        found["idle_cpu_percent"] = (after[1] - before[1]) * 100 / IDLE
    return found


def begin_long_job(run: Run) -> None:
    run.start_worker()
    run.ask("long", LONG)
    run.wait_until(lambda: len(read_long_starts(run.place)) == 1, "started the long job")
    run.start_worker()


def kill(runs: Sequence[Run], _server: Server) -> list[Figures]:
    """The worker that runs a long job is killed while another is up: seconds until the job runs again."""
    time.sleep(SETTLED)
    killed_ns = []
    for run in runs:
        killed_ns.append(time.monotonic_ns())
        run.kill(run.workers[0])
    deadline = time.monotonic() + RERUN_CAP
    while time.monotonic() < deadline and any(len(read_long_starts(run.place)) == 1 for run in runs):
        time.sleep(0.05)
    return [
        {"rerun_seconds": _rerun_seconds(read_long_starts(run.place), at)}
        for run, at in zip(runs, killed_ns, strict=True)
    ]


def _rerun_seconds(starts: Sequence[int], killed_ns: int) -> float:
    """Infinite if it did not run again while we watched."""
    return (starts[1] - killed_ns) / 1e9 if len(starts) > 1 else math.inf


ROWS: dict[str, Alone | Together] = {
    "enqueue": Alone("default", enqueue),
    "drain": Alone("throughput", drain),
    "drain2": Alone("throughput", drain_two_workers),
    "pickup": Alone("default", pickup),
    "steady": Alone("latency", steady),
    "idle": Together("default", lambda run: run.start_ready_workers(1), idle),
    "kill": Together("default", begin_long_job, kill),
}
