"""Alerts as rows. However many watchdogs judge at once, a unique key and the statements' conditions decide who begins
and who ends one: that watchdog alone gets the row back, and says so."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from holdfast.model.alerts import SPIKE, Alert, Finding
from holdfast.model.job import LATE
from holdfast.model.polling import MOST_ERRORS, WINDOW
from holdfast.store.columns import Row, known
from holdfast.store.engine import Database

LISTED = 100


class Unquiet(NamedTuple):
    """What there is to judge: alerts that stand, failures and slow attempts, unhealthy workers."""

    now: datetime
    standing: bool
    failing: bool
    sick: bool


class Standing(NamedTuple):
    """`fired`: False while it is only watched, as what it is about has to last."""

    id: int
    name: str
    subject: str
    fired: bool


class Alerts:
    def __init__(self, db: Database) -> None:
        self._db = db

    def unquiet(self, slow: Sequence[str]) -> Unquiet:
        """`slow`: the buckets of run times that are too long."""
        [row] = self._db.read(
            "unquiet", slow=list(slow), minus_span=-SPIKE.total_seconds() - 60, most_errors=MOST_ERRORS, window=WINDOW,
            late=LATE,
        )  # fmt: skip
        now = known(self._db.codec.moment(row["now"]))
        return Unquiet(now, bool(row["standing"]), bool(row["failing"]), bool(row["sick"]))

    def standing(self) -> list[Standing]:
        return [
            Standing(row["id"], row["name"], row["subject"], row["started_at"] is not None)
            for row in self._db.read("standing_alerts")
        ]

    def begin(self, found: Finding) -> Alert | None:
        """Returns the alert if it fires now, and nobody else was first."""
        return self._fired(
            self._db.write(
                "begin_alert", name=found.name, subject=found.subject, text=found.text, value=float(found.value),
                at_once=not found.lasting,
            )
        )  # fmt: skip

    def fire(self, id: int, found: Finding) -> Alert | None:
        """Returns the alert if what it watches has lasted for long enough, and nobody else was first."""
        return self._fired(
            self._db.write(
                "fire_alert", id=id, text=found.text, value=float(found.value), minus_lasting=-found.lasting
            )
        )  # fmt: skip

    def end(self, standing: Standing) -> Alert | None:
        """Returns the alert if it had fired, and nobody else ended it first."""
        if not standing.fired:
            self._db.write("unwatch_alert", id=standing.id)
            return None
        return self._fired(self._db.write("end_alert", id=standing.id))

    def all(self, limit: int = LISTED) -> list[Alert]:
        """Those that stand, then the newest that have ended."""
        return [self._alert(row) for row in self._db.read("alerts", limit=limit)]

    def forget(self, kept: float) -> None:
        """Those that ended so many seconds ago."""
        self._db.write("forget_alerts", minus_kept=-kept)

    def _fired(self, rows: Sequence[Row]) -> Alert | None:
        return self._alert(rows[0]) if rows and rows[0]["started_at"] is not None else None

    def _alert(self, row: Row) -> Alert:
        moment = self._db.codec.moment
        return Alert(
            str(row["id"]), row["name"], row["subject"], row["text"], row["value"], known(moment(row["started_at"])),
            moment(row["ended_at"]),
        )  # fmt: skip
