"""The audit table: one row for each call of an operator's verb, written in the transaction that performs it. A call
that takes several transactions has its row before the first, and each of them adds to the row's counts. So the row of a
call that was killed has no end, and says how far it got."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.model.audit import AuditRecord
from holdfast.model.job import Changed
from holdfast.store.columns import Row, key_of, known
from holdfast.store.engine import Database, Transaction

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

    def record(self, tx: Transaction, done: Changed) -> None:
        """Record the whole call, in the transaction that performs it."""
        tx.rows("add_audit", **self._row(done), ended=True)

    def begin(self, db: Database) -> BegunCall:
        """Record that it begins."""
        [row] = db.write("add_audit", **self._row(NOTHING), ended=False)
        return BegunCall(db, row["id"])

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
        self._id = id

    def record(self, tx: Transaction, done: Changed) -> None:
        """Add to its counts, in one of its transactions."""
        tx.rows("count_audit", id=self._id, changed=done.changed, asked=done.asked, refused=done.refused)

    def end(self) -> None:
        self._db.write("end_audit", id=self._id)


class Audit:
    def __init__(self, db: Database) -> None:
        self._db = db

    def all(self, *, before: str | None = None, limit: int = 50) -> list[AuditRecord]:
        """The newest calls first; `before` an id is the next page."""
        rows = self._db.read("audit", before=LAST if before is None else int(before), limit=limit)
        return [self._record(row) for row in rows]

    def of_job(self, job_id: str, *, limit: int = 50) -> list[AuditRecord]:
        """The newest calls about this one job."""
        return [self._record(row) for row in self._db.read("audit_of_job", job_id=key_of(job_id), limit=limit)]

    def purge(self, *, kept: float, limit: int = 1000) -> int:
        """Forget calls of so many seconds ago, a bounded step; returns how many."""
        return len(self._db.write("purge_audit", minus_kept=-kept, limit=limit))

    def _record(self, row: Row) -> AuditRecord:
        codec = self._db.codec
        return AuditRecord(
            **{
                **row,
                "id": str(row["id"]),
                "at": known(codec.moment(row["at"])),
                "ended_at": codec.moment(row["ended_at"]),
                "parameters": msgspec.json.decode(codec.json(row["parameters"]) or b"{}"),
            }
        )
