"""What a Store knows of jobs, as values, however the database stores them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.errors import JobNotFound
from holdfast.model.filter import ALL, Filter
from holdfast.model.job import COUNTED, AttemptRecord, Backlog, Depth, JobRecord, Page, StepRecord
from holdfast.store.columns import JobId, Records, Row, key_of, known
from holdfast.store.database import Database
from holdfast.store.find import chunks, page

if TYPE_CHECKING:
    from holdfast.store.columns import JobId
    from holdfast.store.database import Database


# How many jobs wait, run and have failed, by queue and task. Read from the indexes for claims and failures and
# counted up to a cap, so it costs the same however large the table is.

LANES = 10_000  # lanes (queue, task, priority) that are counted


def depths(db: Database, running_ids: Sequence[JobId] | None = None) -> list[Depth]:
    """A few statements, however many queues there are. `running_ids`: the jobs under leases, if the caller has read
    them already."""
    limit = COUNTED + 1
    due: dict[tuple[str, str], int] = {}
    scheduled: dict[tuple[str, str], int] = {}
    oldest: dict[tuple[str, str], datetime] = {}

    def waits(place: tuple[str, str], jobs: int, since: datetime | None) -> None:
        due[place] = due.get(place, 0) + jobs
        if jobs and since is not None:
            oldest[place] = min(since, oldest.get(place, since))

    lanes = db.read("every_lane", lanes=LANES + 1, most=limit, tasks=[], queues=None)
    more = len(lanes) > LANES
    for lane in lanes[:LANES]:
        place = lane["queue"], lane["task"]
        waits(place, lane["due"], db.codec.moment(lane["ready_at"]))
        scheduled[place] = scheduled.get(place, 0) + lane["scheduled"]
    running: dict[tuple[str, str], dict[str, int]] = {}
    ids = [row["id"] for row in db.read("running_ids")] if running_ids is None else running_ids
    for row in db.read("running_depth", ids=list(ids)) if ids else ():
        running.setdefault((row["queue"], row["task"]), {})[row["worker"] or ""] = row["jobs"]
    failed = {(row["queue"], row["task"]): row["jobs"] for row in db.read("failed_depth", limit=limit)}
    work = {(row["queue"], row["task"]): (row["running"], row["unfinished"]) for row in db.read("pending_work")}
    cut = sum(failed.values()) >= limit
    return [
        Depth(
            queue=place[0],
            task=place[1],
            due=due.get(place, 0),
            scheduled=scheduled.get(place, 0),
            running=running.get(place, {}),
            failed=failed.get(place, 0),
            oldest_due_at=oldest.get(place),
            pending_running=work.get(place, (0, 0))[0],
            pending=work.get(place, (0, 0))[1],
            capped=more or max(due.get(place, 0), scheduled.get(place, 0)) >= limit or (cut and place in failed),
        )
        for place in sorted({*due, *scheduled, *running, *failed, *work})
    ]


class Reads:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._records = Records(db.codec)

    def get(self, job_id: str) -> JobRecord:
        rows = self._db.read("get", id=key_of(job_id))
        if not rows:
            raise JobNotFound(f"there is no job {job_id} in {self._db.shown_url}")
        return self._records.record(rows[0])

    def records(self, ids: Sequence[JobId]) -> list[JobRecord]:
        """These jobs, newest first; those that are gone are left out."""
        return [self._records.record(row) for row in self._db.read("list", ids=list(ids))] if ids else []

    def newest(self) -> int:
        """The highest id there is; 0: there are no jobs."""
        [row] = self._db.read("newest", before=2**63 - 1)
        return row["id"] or 0

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """The attempts that did not succeed, or left output, in order."""
        return [
            AttemptRecord(
                **{
                    **row,
                    "job_id": str(row["job_id"]),
                    "fence": str(row["fence"]),
                    "started_at": self._db.codec.moment(row["started_at"]),
                    "ended_at": self._db.codec.moment(row["ended_at"]),
                }
            )
            for row in self._db.read("attempts", id=key_of(job_id))
        ]

    def steps(self, job_id: str) -> list[StepRecord]:
        """The steps that were done, in order."""
        return [
            StepRecord(
                **{
                    **row,
                    "ended_at": known(self._db.codec.moment(row["ended_at"])),
                    "result": self._db.codec.json(row["result"]) or b"null",
                }
            )
            for row in self._db.read("steps", id=key_of(job_id))
        ]

    def counts(self) -> list[Row]:
        """Jobs by queue, task and state. Reads the whole table."""
        return self._db.read("counts")

    def failures(self) -> list[Row]:
        """Failed jobs by task and error code."""
        return self._db.read("failures")

    def outcomes(self) -> list[Row]:
        """Attempts that did not succeed, by how they ended. Reads the whole history."""
        return self._db.read("outcomes")

    def now(self) -> datetime:
        """The database's clock."""
        return known(self._db.codec.moment(self._db.read("now")[0]["now"]))

    def waiting(self, lanes: int = 1000, most: int = 1000) -> list[Backlog]:
        """What is queued, by queue and task, whether anybody serves it or not; counted up to `most` each."""
        return [
            Backlog(
                row["queue"], row["task"], row["jobs"], row["jobs"] >= most, known(self._db.codec.moment(row["due_at"]))
            )
            for row in self._db.read("waiting", lanes=lanes, most=most, tasks=[], queues=None)
        ]

    def jobs(
        self,
        filter: Filter = ALL,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> Page:
        """Newest first; `before` an id is the next page. Looks through a bounded number of jobs, and says if that cut
        it short."""
        return page(self._db, filter.narrowed(state=state, queue=queue, task=task), before, limit)

    def matching(self, filter: Filter) -> Iterator[list[JobId]]:
        """All jobs the filter means, in chunks of ids, newest first. Reads on as it is asked for more."""
        return chunks(self._db, filter)

    def depths(self) -> list[Depth]:
        """How much waits, runs and failed, by queue and task; counted up to a cap."""
        return depths(self._db)
