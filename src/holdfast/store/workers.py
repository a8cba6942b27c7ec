"""The workers that have registered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache

from msgspec.json import decode

from holdfast.model.job import DEFAULT_GRACE, DEFAULT_LEASE, Changed, StopRequest, WorkerRecord
from holdfast.model.polling import Polling
from holdfast.store.audit import Call
from holdfast.store.columns import known
from holdfast.store.engine import Database, Wakeups


class Workers:
    def __init__(self, db: Database, wakeups: Wakeups) -> None:
        self._db = db
        self._wakeups = wakeups

    def register(
        self, *, id: str, name: str, host: str, pid: int, queues: Sequence[str] | None, tasks: Sequence[str],
        slots: int, crons: Sequence[str] = (), lease: float = DEFAULT_LEASE, grace: float = DEFAULT_GRACE,
        timeouts: Mapping[str, float] | None = None, runners: Sequence[tuple[int, Sequence[str]]] = (),
    ) -> None:  # fmt: skip
        """`timeouts`: seconds that an attempt may run, by task; `grace`: seconds it then has to stop. `runners`: how
        many of the slots are for which tasks; empty: all of them for any."""
        with self._db.transaction() as tx:
            tx.rows(
                "register", id=id, name=name, host=host, pid=pid, slots=slots, lease=lease, tasks=list(tasks),
                crons=list(crons), queues=None if queues is None else list(queues), grace=grace,
                timeouts=json.dumps(timeouts or {}), runners=json.dumps(runners), version=_version(),
            )  # fmt: skip

    def unregister(self, worker: str) -> None:
        with self._db.transaction() as tx:
            tx.rows("unregister", id=worker)
        self._wakeups.notify(workers=True)

    def request_stop(self, worker: str, *, reason: str | None = None, by: str | None = None) -> bool:
        """Ask a worker to stop, wherever it runs. False: there is none of this id."""
        with self._db.transaction() as tx:
            found = tx.rows("request_stop", id=worker, by=by, reason=reason)
            if found:
                queues = found[0]["queues"]  # for `why`, once the worker's own row is gone
                served = {"queues": None if queues is None else self._db.codec.words(queues)}
                Call("stop_worker", worker, by, reason, served).record(tx, Changed(0, 0, 1))
        self._wakeups.notify(requests=True)
        return bool(found)

    def stop_requested(self, worker: str) -> StopRequest | None:
        """Who asked this worker to stop, and why. None: nobody did."""
        rows = self._db.read("stop_requested", id=worker)
        return StopRequest(**rows[0]) if rows else None

    def forget(self, older_than: float) -> None:
        """Workers that were not seen for so many seconds and hold no lease."""
        with self._db.transaction() as tx:
            tx.rows("forget_workers", minus_age=-older_than)

    def all(self) -> list[WorkerRecord]:
        codec = self._db.codec
        return [
            WorkerRecord(
                **{
                    **row,
                    "queues": None if row["queues"] is None else codec.words(row["queues"]),
                    "tasks": codec.words(row["tasks"]),
                    "crons": codec.words(row["crons"]),
                    "started_at": known(codec.moment(row["started_at"])),
                    "seen_at": known(codec.moment(row["seen_at"])),
                    "polling": decode(row["polling"], type=Polling),
                    "stop_requested_at": codec.moment(row["stop_requested_at"]),
                    "lease_ends_at": codec.moment(row["lease_ends_at"]),
                }
            )
            for row in self._db.read("workers")
        ]


@cache
def _version() -> str | None:
    """Of Holdfast; None: it was not installed as a package."""
    from importlib.metadata import PackageNotFoundError, version  # only workers pay for this import

    try:
        return version("holdfast")
    except PackageNotFoundError:
        return None
