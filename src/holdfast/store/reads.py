"""What a Store tells: jobs, attempts, pauses and workers as values, whatever the database keeps them as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.errors import JobNotFound
from holdfast.model.facts import Holder
from holdfast.model.job import COUNTED, AttemptRecord, JobRecord, Pause, StepRecord, Waiting, WorkerRecord
from holdfast.store.columns import Codec, JobId, Records, Row


class Reading(ABC):
    shown_url: str
    codec: Codec

    @abstractmethod
    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        """One statement that only reads."""

    def key_of(self, job_id: str) -> JobId:
        """The store's own kind of id for what people write; JobNotFound if it can't be one."""
        if not (job_id.isascii() and job_id.isdigit() and len(job_id) < 19):
            raise JobNotFound(f"there is no job {job_id!r}: ids here are numbers")
        return int(job_id)

    # -- jobs ----------------------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> JobRecord:
        rows = self.read("get", id=self.key_of(job_id))
        if not rows:
            raise JobNotFound(f"there is no job {job_id} in {self.shown_url}")
        return Records(self.codec).record(rows[0])

    def records(self, ids: Sequence[JobId]) -> list[JobRecord]:
        """These jobs, newest first; those that are gone are left out."""
        record = Records(self.codec).record
        return [record(row) for row in self.read("list", ids=list(ids))] if ids else []

    def newest(self) -> int:
        """The highest id there is; 0: there are no jobs."""
        [row] = self.read("newest", before=2**63 - 1)
        return row["id"] or 0

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """The attempts that did not succeed, or left output, in order."""
        return [
            AttemptRecord(
                **{
                    **row,
                    "job_id": str(row["job_id"]),
                    "fence": str(row["fence"]),
                    "started_at": self.codec.moment(row["started_at"]),
                    "ended_at": self.codec.moment(row["ended_at"]),
                }
            )
            for row in self.read("attempts", id=self.key_of(job_id))
        ]

    def steps(self, job_id: str) -> list[StepRecord]:
        """The steps that were done, in order."""
        return [
            StepRecord(
                **{
                    **row,
                    "ended_at": _known(self.codec.moment(row["ended_at"])),
                    "result": self.codec.json(row["result"]) or b"null",
                }
            )
            for row in self.read("steps", id=self.key_of(job_id))
        ]

    def counts(self) -> list[Row]:
        """Jobs by queue, task and state. Reads the whole table."""
        return self.read("counts")

    def failures(self) -> list[Row]:
        """Failed jobs by task and error code."""
        return self.read("failures")

    def outcomes(self) -> list[Row]:
        """Attempts that did not succeed, by how they ended. Reads the whole history."""
        return self.read("outcomes")

    def now(self) -> datetime:
        """The database's clock."""
        return _known(self.codec.moment(self.read("now")[0]["now"]))

    def waiting(self, lanes: int = 1000, most: int = 1000) -> list[Waiting]:
        """What is queued, by queue and task, whether anybody serves it or not; counted up to `most` each."""
        return [
            Waiting(
                row["queue"], row["task"], row["jobs"], row["jobs"] >= most, _known(self.codec.moment(row["due_at"]))
            )
            for row in self.read("waiting", lanes=lanes, most=most, tasks=[], queues=None)
        ]

    @abstractmethod
    def ahead(
        self, *, tasks: Sequence[str], queues: Sequence[str] | None, priority: int, due_at: Any, id: JobId, most: int
    ) -> tuple[int, JobId | None]:
        """How many jobs, up to `most`, workers of these tasks and queues would take before this one; and the first id
        among them. `due_at` is as it is stored."""

    def writing(self) -> Holder | None:
        """Who keeps all others from writing right now. None: nobody, or this database has no such thing."""
        return None

    def pauses(self, *, count: bool = True) -> list[Pause]:
        """What is paused. `count`: with the number of jobs that a filter holds."""
        moment = self.codec.moment
        return [
            Pause(**{**row, "until": moment(row["until"]), "created_at": _known(moment(row["created_at"]))})
            for row in self.read("pauses", most=COUNTED + 1 if count else 0)
        ]  # fmt: skip

    def workers(self) -> list[WorkerRecord]:
        return [
            WorkerRecord(
                **{
                    **row,
                    "queues": None if row["queues"] is None else self.codec.words(row["queues"]),
                    "tasks": self.codec.words(row["tasks"]),
                    "crons": self.codec.words(row["crons"]),
                    "started_at": _known(self.codec.moment(row["started_at"])),
                    "seen_at": _known(self.codec.moment(row["seen_at"])),
                }
            )
            for row in self.read("workers")
        ]


def _known(moment: datetime | None) -> datetime:
    assert moment is not None
    return moment
