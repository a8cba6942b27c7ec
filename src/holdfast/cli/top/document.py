"""What `top` shows, as data: an overview of the database, and the rates that follow from earlier overviews."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Any

from holdfast.cli.pauses import pause_data
from holdfast.cli.queues import total
from holdfast.model.job import WorkerRecord, running_by_worker
from holdfast.redact import scrub
from holdfast.store.overview import Overview, Rates, Running

Row = dict[str, Any]
Document = dict[str, Any]

AT_MOST = 0.1  # the share of the time that the database may be busy with us
WINDOW = 30.0  # seconds over which the rate of a running job is taken
NO_RATES = Rates(0.0, 0.0)


class JobRates:
    """How many items a second each running job does, worked out from one overview to the next."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], deque[tuple[datetime, int]]] = {}

    def add(self, running: list[Running], at: datetime) -> None:
        before, self._seen = self._seen, {}
        for job in running:
            if job.done is not None:
                samples = self._seen[job.id, job.fence] = before.get((job.id, job.fence), deque())
                samples.append((at, job.done))
                while len(samples) > 2 and (at - samples[1][0]).total_seconds() >= WINDOW:
                    samples.popleft()

    def of(self, job: Running, at: datetime) -> float | None:
        """Items a second: of late if the job was seen before, else since it started."""
        samples = self._seen.get((job.id, job.fence))
        if not samples or job.done is None:
            return None
        since, done = samples[0]
        if job.done <= done or at <= since:
            since, done = job.started_at, 0
        seconds = (at - since).total_seconds()
        return (job.done - done) / seconds if seconds > 0 and job.done > done else None


def document(seen: Overview, rates: JobRates, url: str) -> Document:
    """One overview, as JSON has it."""
    rates.add(seen.running, seen.at)
    busy = running_by_worker(seen.depths)
    return {
        "at": seen.at.isoformat(),
        "url": url,
        "queues": _queues(seen),
        "workers": [_worker(worker, busy.get(worker.id, 0), seen.at) for worker in seen.workers],
        "running": [_running(job, rates.of(job, seen.at), seen.at) for job in seen.running],
        "running_in_all": sum(busy.values()),
        "failures": [
            failure.as_dict()
            | {
                "error_message": scrub(failure.error_message or ""),
                "ago_seconds": round(max(0.0, (seen.at - failure.failed_at).total_seconds()), 3),
            }
            for failure in seen.failures
        ],
        "alerts": [alert.as_dict() for alert in seen.alerts],
        "pauses": [{"kind": pause.kind, "name": pause.name, **(pause_data(pause) or {})} for pause in seen.pauses],
    }


def wait_after(shown: Document, every: float) -> float:
    """Seconds until the next look: longer than asked for where a look keeps the database busy."""
    return max(every, float(shown["took_seconds"]) * (1 / AT_MOST - 1))


def _queues(seen: Overview) -> list[Row]:
    pauses = {pause.name: pause for pause in seen.pauses if pause.kind == "queue"}
    names = {depth.queue for depth in seen.depths} | pauses.keys()
    names.update(queue for worker in seen.workers for queue in worker.queues or ())
    rows = []
    for name in sorted(names):
        row = total((depth for depth in seen.depths if depth.queue == name), seen.at)
        alive = [w for w in seen.workers if (w.queues is None or name in w.queues) and w.alive(seen.at)]
        flow = seen.rates.get(name, NO_RATES)
        rows.append(
            {
                "queue": name, **row, "came_per_second": round(flow.came, 3),
                "ended_per_second": round(flow.ended, 3), "workers": len(alive), "paused": pause_data(pauses.get(name)),
            }
        )  # fmt: skip
    return rows


def _worker(worker: WorkerRecord, busy: int, at: datetime) -> Row:
    seen = max(0.0, (at - worker.seen_at).total_seconds())
    kept = ("id", "name", "host", "pid", "queues", "slots", "started_at", "seen_at")
    data = worker.as_dict()
    return {name: data[name] for name in kept} | {
        "busy": busy, "seen_seconds": round(seen, 3), "alive": worker.alive(at),
    }  # fmt: skip


def _running(job: Running, rate: float | None, at: datetime) -> Row:
    left = None
    if rate and job.total is not None and job.done is not None and job.total >= job.done:
        left = round((job.total - job.done) / rate, 3)
    return job.as_dict() | {
        "elapsed_seconds": round(max(0.0, (at - job.started_at).total_seconds()), 3),
        "rate_per_second": None if rate is None else round(rate, 3),
        "left_seconds": left,
    }
