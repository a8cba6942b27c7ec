"""What time ends: jobs that were not started by their expiry, and what finished long ago. Each call is a bounded
step."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.store.columns import JobId, Row
from holdfast.store.database import Database, Transaction


class Retention:
    def __init__(self, db: Database) -> None:
        self._db = db

    def expire(self, limit: int = 1000) -> list[Row]:
        """Cancel queued jobs that were not started by their expiry."""
        with self._db.transaction() as tx:
            return tx.rows("expire", limit=limit)

    def purge(self, after_id: int, *, finished: float, failed: float, limit: int = 1000) -> tuple[int, int | None]:
        """Forget jobs that finished so many seconds ago, along the ids. Returns how many were forgotten, and where to
        go on (None: done for now, what comes next is too young)."""
        # Look first: only if there may be something to forget does it write.
        [step] = self._db.read("purge_step", after_id=after_id, limit=limit, minus_youngest=-min(finished, failed))
        if step["reached"] is None:
            return 0, None
        with self._db.transaction() as tx:
            gone = tx.rows(
                "purge", after_id=after_id, reached=step["reached"], minus_finished=-finished, minus_failed=-failed
            )
            forget(tx, [row["id"] for row in gone])
        return len(gone), None if step["young"] else step["reached"]

    def drop_pending(self, limit: int = 1000) -> int:
        """Take finished jobs off the list of those with work pending. Returns how many."""
        return len(self._db.write("drop_pending", limit=limit))


def forget(tx: Transaction, ids: Sequence[JobId]) -> None:
    """All that is kept of these jobs beside their rows."""
    if ids:
        for name in ("delete_attempts", "delete_steps", "delete_pending"):
            tx.rows(name, ids=list(ids))
