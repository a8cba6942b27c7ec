"""Opens the connections that workers' trips go by, and keeps those that are free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.model.job import Claimed
from holdfast.model.outcome import Outcome
from holdfast.store.pool import ConnectionPool
from holdfast.store.postgres.claim_floors import ClaimFloors
from holdfast.store.postgres.connect import Connection
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.exchange import CLAIMS, ENDINGS, SUCCESSES, Trip, held
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.statements import source


class PostgresExchange:
    def __init__(self, db: PostgresDatabase) -> None:
        self._db = db
        self.pool: ConnectionPool[Trip] = ConnectionPool(self._open_trip, Trip.usable, Trip.usable)
        self.floors = ClaimFloors(db.transaction)

    @contextmanager
    def trips(self) -> Iterator[Trip]:
        with self.pool.use() as trip:
            try:
                yield trip
            finally:
                trip.abandon()

    def _is_recorded(self, outcome: Outcome) -> bool:
        return bool(self._db.read("recorded", id=outcome.id, fence=outcome.fence))

    def claim_of(self, fence: str) -> Claimed:
        with self._db.use() as connection:
            lease = {"fence": fence, "lease": self._db.settings.lease}
            if self._db.rows(connection, self._db.statements["burn"], lease):
                return Claimed()
            rows = self._db.execute(connection, self._db.statements["claim_of"], {"fence": fence}).fetchall()
        return Claimed([held(fence, row) for row in rows])

    def close(self) -> None:
        self.floors.close()
        self.pool.close()

    # -- connections -------------------------------------------------------------------------------------------------

    def _open_trip(self) -> Trip:
        return self.trip_on(self._db.connect())

    def trip_on(self, connection: Connection) -> Trip:
        texts = {verb: self.with_history(verb) for verb in ENDINGS} | {
            name: self._db.statements[name] for name in (*CLAIMS, *SUCCESSES)
        }
        statements = {name: self._db.numbered(text) for name, text in texts.items()}
        self.floors.forget()
        return self._db.begin(
            connection,
            lambda connection: Trip(
                connection, statements, where=self._db.shown_url, prepare=self._db.settings.prepare,
                clock=self._db.clock, floors=self.floors, is_recorded=self._is_recorded, open_aside=self._open_aside,
            ),
        )  # fmt: skip

    def _open_aside(self, statements: Mapping[str, bytes]) -> Pipeline:
        return self._db.begin(
            self._db.connect(), lambda connection: Pipeline(connection, statements, prepare=self._db.settings.prepare)
        )

    def with_history(self, verb: str) -> str:
        """The verb's update and the row that it adds to the history, as one statement."""
        return self._db.statements.fill(
            f"with ended as ({source('postgres', verb)}), history as ("  # noqa: S608 - our own files
            "insert into @attempts (job_id, fence, life, number, worker, outcome, started_at, ended_at, error_code, "
            "error_message, traceback, output) select id, :fence::uuid, life, number, worker, :outcome, started_at, "
            "@clock, error_code, error_message, :traceback, :output from ended where :outcome::text is not null "
            "on conflict (job_id, fence) do nothing) select state, queue, awaited from ended"
        )
