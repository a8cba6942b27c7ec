"""The audit: one row for each call of an operator's verb, written in the transaction that performs it. A call that
takes several transactions has its row before the first, and each of them adds to the row's counts and lists the jobs it
changed, all in one row. So the row of a call that was killed has no end, and says how far it got."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.model.audit import AuditRecord
from holdfast.model.job import Changed
from holdfast.store.columns import Codec, JobId, Row, key_of, known
from holdfast.store.engine import Database, Transaction
from holdfast.store.reads import literal

LONGEST = 2000  # characters kept of a filter
LAST = 2**63 - 1
NOTHING = Changed(0, 0)


@dataclass(frozen=True)
class Call:
    """A call to be recorded. `job_id` if it is about one job."""

    verb: str
    what: str
    by: str | None = None
    reason: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    job_id: str | None = None

    def record(self, tx: Transaction, done: Changed, *_: Sequence[JobId]) -> None:
        """Record the whole call, in the transaction that performs it."""
        tx.rows("add_audit", **self._row(done), ended=True)

    def begin(self, db: Database, done: Changed = NOTHING) -> BegunCall:
        """Record that it begins, and what is known of its outcome."""
        with db.transaction() as tx:
            return BegunCall(db, self.begin_on(tx, done))

    def begin_on(self, tx: Transaction, done: Changed = NOTHING) -> int:
        """The same in a transaction; returns the call's id."""
        [row] = tx.rows("add_audit", **self._row(done), ended=False)
        return int(row["id"])

    def _row(self, done: Changed) -> dict[str, Any]:
        given = {name: value for name, value in self.parameters.items() if value is not None and value is not False}
        return {
            "by": self.by, "verb": self.verb, "reason": self.reason, "parameters": msgspec.json.encode(given).decode(),
            "what": self.what if len(self.what) <= LONGEST else self.what[: LONGEST - 1] + "…",
            "job_id": None if self.job_id is None else key_of(self.job_id),
            "changed": done.changed, "asked": done.asked, "refused": done.refused,
        }  # fmt: skip


class BegunCall:
    """A call that takes several transactions."""

    def __init__(self, db: Database, id: int) -> None:
        self._db = db
        self.id = id

    def record(self, tx: Transaction, done: Changed, jobs: Sequence[JobId]) -> None:
        """Add to its counts, and list the jobs that were changed or asked, in one of its transactions."""
        tx.rows("count_audit", id=self.id, changed=done.changed, asked=done.asked, refused=done.refused)
        if jobs:
            ids = sorted(map(int, jobs))
            tx.rows("add_audit_jobs", id=self.id, first=ids[0], last=ids[-1], job_ids=ids)

    def end(self) -> None:
        self._db.write("end_audit", id=self.id)


class Audit:
    def __init__(self, db: Database) -> None:
        self._db = db

    def all(
        self, *, by: str | None = None, verb: str | None = None, what: str = "", job: str | None = None,
        since: datetime | timedelta | None = None, before: str | None = None, limit: int = 50,
    ) -> list[AuditRecord]:  # fmt: skip
        """The newest calls first; `before` an id is the next page. `what`: a part of the name or filter that a call was
        about, or of its parameters; `job`: the id of a job that a call was about, changed or asked; `since`: when, or
        how long ago."""
        wanted = {
            "by": by, "verb": verb, "what": f"%{literal(what.lower())}%", "limit": limit,
            "before": LAST if before is None else int(before),
            "minus_since": -since.total_seconds() if isinstance(since, timedelta) else None,
            "since": self._db.codec.instant(since) if isinstance(since, datetime) else None,
        }  # fmt: skip
        if job is None:
            rows = self._db.read("audit", **wanted)
        else:
            rows = self._db.read("audit_of_job", job_id=key_of(job), **wanted)
        return [audit_record(self._db.codec, row) for row in rows]

    def purge(self, *, kept: float, limit: int = 1000) -> int:
        """Forget calls of so many seconds ago, a bounded step; returns how many."""
        with self._db.transaction() as tx:
            gone = tx.rows("purge_audit", minus_kept=-kept, limit=limit)
            if gone:
                tx.rows("purge_audit_jobs", ids=[row["id"] for row in gone])
        return len(gone)


def audit_record(codec: Codec, row: Row) -> AuditRecord:
    return AuditRecord(
        **{
            **row,
            "id": str(row["id"]),
            "at": known(codec.moment(row["at"])),
            "ended_at": codec.moment(row["ended_at"]),
            "parameters": msgspec.json.decode(codec.json(row["parameters"]) or b"{}"),
        }
    )
