"""Takes jobs back from whoever can no longer end them: a worker that fell silent, a process that died. What becomes of
the job is decided by `model.rescue`; every write checks the fence it takes the job from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.model.job import ClaimedJob, Rescued, correlated
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Crash
from holdfast.model.rescue import verdict
from holdfast.store.columns import JobId, Row
from holdfast.store.engine import Database, Transaction
from holdfast.store.exchange import Ref

RESCUE_BATCH = 20  # leases rescued in one transaction
RESCUE_ROUNDS = 50  # transactions in one call, while they find only leases without running jobs


class Rescues:
    def __init__(self, db: Database) -> None:
        self._db = db

    def rescue(self, *, by_expiry: bool = True, dead: Sequence[str] = (), quarantine_after: int = 3) -> list[Rescued]:
        """Take back what silent workers held: expired leases, and all leases of workers known to be dead. A bounded
        batch; call again while it returns any."""
        for _ in range(RESCUE_ROUNDS):
            with self._db.transaction() as tx:
                leases = tx.rows("expired_leases", by_expiry=by_expiry, dead=list(dead), limit=RESCUE_BATCH)
                rescued = [job for lease in leases for job in self._rescue_lease(tx, lease, quarantine_after)]
            if rescued or len(leases) < RESCUE_BATCH:
                return rescued
        return []

    def _rescue_lease(self, tx: Transaction, lease: Row, quarantine_after: int) -> Iterator[Rescued]:
        fence = str(lease["fence"])
        # If the worker had more jobs in flight, they died together, and nobody knows whose fault it was.
        company = lease["held"] > 1 or lease["leases"] > 1
        ids = self._db.codec.ids(lease["job_ids"])
        yield from self._taken_back(tx, ids, fence, lease["worker"], company, quarantine_after)
        tx.rows("drop_leases", fences=[fence])

    def crashed(self, crashes: Sequence[tuple[Ref, Crash]], worker: str, *, quarantine_after: int) -> list[Rescued]:
        """Take back what ran in a process that died, while its worker lives."""
        with self._db.transaction() as tx:
            return [
                job
                for ref, crash in crashes
                for job in self._taken_back(
                    tx, [ref.id], ref.fence, worker, crash.company, quarantine_after, crash.cause, crash.output
                )
            ]

    def holds(self, held: ClaimedJob) -> bool:
        """Does this job still run under this claim?"""
        rows = self._db.read("get", id=held.id)
        return bool(rows) and rows[0]["state"] == State.RUNNING and str(rows[0]["fence"]) == held.fence

    def _taken_back(
        self, tx: Transaction, ids: list[JobId], fence: str, worker: str, company: bool, quarantine_after: int,
        cause: str | None = None, output: str | None = None,
    ) -> Iterator[Rescued]:  # fmt: skip
        for job in tx.rows("leased_jobs", ids=ids, fence=fence):
            end = verdict(
                attempt=job["attempt"],
                max_attempts=job["max_attempts"],
                crashes=job["crashes"],
                suspicion=job["suspicion"],
                cancel=bool(job["cancel_requested"]),
                pause=bool(job["pause_requested"]),
                company=company,
                quarantine_after=quarantine_after,
                cause=cause,
            )
            error = end.error.at(job["task"])
            told = {"error_code": error.code, "error_message": error.message}
            if not tx.rows(
                "rescue", id=job["id"], fence=fence, state=end.state.value, attempt=end.attempt,
                crashes=end.crashes, suspicion=end.suspicion,
                error_fingerprint=error.fingerprint, **told,
            ):  # fmt: skip
                continue
            tx.rows(
                "attempt", id=job["id"], fence=fence, life=job["life"], number=job["attempt"],
                worker=worker, outcome="crashed" if end.charged else "lost",
                started_at=job["started_at"], traceback=None, output=output, **told,
            )  # fmt: skip
            yield Rescued(
                str(job["id"]), job["queue"], end.state, job["attempt"], job["max_attempts"], end.charged, worker,
                job["task"], job["priority"], correlated(job["id"], job["correlation_id"]), end.error.code,
                end.error.message,
            )  # fmt: skip
