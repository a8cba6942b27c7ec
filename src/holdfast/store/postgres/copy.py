"""Jobs as lines of COPY's text format, written by hand: the driver's own way, value by value, takes longer than the
database does. What jobs of one kind share is written once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from holdfast.model.job import NewJob

COPIED = "id, args, queue, task, priority, max_attempts, run_at, ready_at, expires_at, correlation_id, tags"

NULL = r"\N"
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


class CopyLines:
    """Times are relative to one reading of the database's clock."""

    def __init__(self, now: float, *, tell_clock: bool) -> None:
        self._now = now
        self._tell_clock = tell_clock
        self._endings: dict[tuple[object, ...], str] = {}

    def line(self, id: int, job: NewJob) -> str:
        kind = (
            job.queue, job.task, job.priority, job.max_attempts, job.delay, job.run_at, job.expires_in,
            job.correlation_id, job.tags,
        )  # fmt: skip
        ending = self._endings.get(kind)
        if ending is None:
            ending = self._ending(job)
            if len(self._endings) < 1000:
                self._endings[kind] = ending
        return f"{id}\t{job.args.decode().translate(_ESCAPES)}{ending}"

    def _ending(self, job: NewJob) -> str:
        due = self._later(job.delay) if job.run_at is None else job.run_at.isoformat()
        values = [
            escaped(job.queue), escaped(job.task), str(job.priority), str(job.max_attempts), due, due,
            NULL if job.expires_in is None else self._later(job.expires_in),
            NULL if job.correlation_id is None else escaped(job.correlation_id),
            escaped(array(job.tags)) if job.tags else NULL,
        ]  # fmt: skip
        if self._tell_clock:
            values.append(self._later(0.0))
        return "\t" + "\t".join(values) + "\n"

    def _later(self, seconds: float) -> str:
        return datetime.fromtimestamp(self._now + seconds, UTC).isoformat()


def escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def array(words: Iterable[str]) -> str:
    """A list of texts as PostgreSQL writes it."""
    quoted = (word.replace("\\", r"\\").replace('"', r"\"") for word in words)
    return "{" + ",".join(f'"{word}"' for word in quoted) + "}"
