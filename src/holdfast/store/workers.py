"""The workers that have registered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from holdfast.model.job import DEFAULT_GRACE, DEFAULT_LEASE, Changed, WorkerRecord
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
        timeouts: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        """`timeouts`: seconds that an attempt may run, by task; `grace`: seconds it then has to stop."""
        with self._db.transaction() as tx:
            tx.rows(
                "register", id=id, name=name, host=host, pid=pid, slots=slots, lease=lease, tasks=list(tasks),
                crons=list(crons), queues=None if queues is None else list(queues), grace=grace,
                timeouts=json.dumps(timeouts or {}),
            )  # fmt: skip

    def unregister(self, worker: str) -> None:
        with self._db.transaction() as tx:
            tx.rows("unregister", id=worker)
        self._wakeups.notify(workers=True)

    def request_stop(self, worker: str, *, reason: str | None = None, by: str | None = None) -> bool:
        """Ask a worker to stop, wherever it runs. False: there is none of this id."""
        with self._db.transaction() as tx:
            found = bool(tx.rows("request_stop", id=worker))
            if found:
                Call("stop_worker", worker, by, reason).record(tx, Changed(0, 0, 1))
        self._wakeups.notify(requests=True)
        return found

    def stop_requested(self, worker: str) -> bool:
        return bool(self._db.read("stop_requested", id=worker))

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
                    "stop_requested_at": codec.moment(row["stop_requested_at"]),
                }
            )
            for row in self._db.read("workers")
        ]
