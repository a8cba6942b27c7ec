"""Counters that survive restarts. Whatever happens to a job appends a delta in the same transaction: so nothing is
counted that was rolled back, nothing twice, and nobody waits for a row that others count in. Triggers on the table of
jobs append them, whoever writes there; only the two writers of thousands of rows at once, workers' successes and (on
SQLite) bulk enqueues, do it themselves, once for all of them. Any watchdog folds deltas into rollups by minute, by hour
and in total; no retention touches the totals.

An attempt is counted as started when it ends, in the minute in which it had started: so a claim counts nothing. What is
read includes attempts that run now, and the deltas that were not folded yet."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from holdfast.model.rollups import KEPT, Count
from holdfast.store.columns import Row
from holdfast.store.engine import Database

BATCH = 5_000  # deltas folded in one transaction


class Rollups:
    def __init__(self, db: Database) -> None:
        self._db = db

    def fold(self, limit: int = BATCH) -> int:
        """Fold up to `limit` deltas; returns how many there were. What others fold just now is left to them."""
        [done] = self._db.write("fold", limit=limit)
        return int(done["folded"])

    def lost_claims(self, n: int) -> None:
        """So many claims found due jobs and got none: others were quicker. Of all queues together."""
        self._db.write("lost_claims", n=n)

    def counts(self, since: datetime, until: datetime, *, grain: Literal["minute", "hour"]) -> list[Count]:
        """What happened in the minutes or hours that began from `since` to before `until`."""
        instant = self._db.codec.instant
        return self._read("rollup_counts", since=instant(since), until=instant(until), grain=grain)

    def series(self, grain: str, length: float, since: datetime, *, by_queue: bool) -> list[Row]:
        """What charts show of the minutes, or longer stretches of `length` seconds, that began from `since` on: rows of
        `at`, `what`, `detail`, `n`, `total`, and `queue` if asked."""
        rows = self._db.read(
            "rollup_series", grain=grain, length=length, since=self._db.codec.instant(since), by_queue=by_queue
        )
        moments = {at: self._db.codec.moment(at) for at in {row["at"] for row in rows}}  # few, and slow to read
        for row in rows:
            row["at"] = moments[row["at"]]
        return rows

    def totals(self) -> list[Count]:
        """What happened ever. These never decrease."""
        return self._read("rollup_totals")

    def forget(self, limit: int) -> bool:
        """Delete minutes and hours that are no longer kept, up to `limit` rows of each. Returns whether there may be
        more."""
        deleted = [
            len(self._db.write("forget_rollups", grain=grain, minus_kept=-kept, limit=limit))
            for grain, kept in KEPT.items()
        ]
        return limit in deleted

    def overdue(self, seconds: float) -> bool:
        """Are there minutes that should have been deleted so many seconds ago?"""
        [row] = self._db.read("rollups_overdue", minus_kept=-KEPT["minute"] - seconds)
        return bool(row["overdue"])

    def _read(self, name: str, **parameters: object) -> list[Count]:
        return self._counts(self._db.read(name, **parameters))

    def _counts(self, rows: Sequence[Row]) -> list[Count]:
        moment = self._db.codec.moment
        return [
            Count(moment(row["at"]), row["queue"], row["task"], row["what"], row["detail"], row["n"], row["total"])
            for row in rows
        ]
