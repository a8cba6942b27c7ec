"""Is anybody looking for jobs, and with success? What `GET /health` answers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec.structs import asdict

from holdfast.model.job import WorkerRecord
from holdfast.model.polling import Polling, polling_of_all
from holdfast.model.record import Record


class HealthMetrics(Polling, frozen=True):
    """How workers polled in the last 60 seconds: the healthy ones together; if none is, all that are heard of."""

    workers: int = 0
    unhealthy_workers: int = 0


class Health(Record, frozen=True):
    """`healthy`: a worker polled within the last minute, and its last five polls did not all fail."""

    status: Literal["healthy", "unhealthy"]
    metrics: HealthMetrics

    @property
    def healthy(self) -> bool:
        return self.status == "healthy"


def health_of(workers: Sequence[WorkerRecord], now: datetime) -> Health:
    """Of all workers of a database together."""
    well = [worker for worker in workers if worker.polls_well(now)]
    heard = well or [worker for worker in workers if worker.alive(now)]
    return _health(bool(well), polling_of_all(worker.polling for worker in heard), len(workers), len(well))


def health_of_one(polling: Polling) -> Health:
    """Of a worker, as it sees itself."""
    return _health(polling.healthy(), polling, 1, int(polling.healthy()))


def _health(healthy: bool, polling: Polling, workers: int, well: int) -> Health:
    metrics = HealthMetrics(**asdict(polling), workers=workers, unhealthy_workers=workers - well)
    return Health("healthy" if healthy else "unhealthy", metrics)


NO_ANSWER = _health(False, Polling(), 0, 0)  # the database does not answer, so nothing is known
