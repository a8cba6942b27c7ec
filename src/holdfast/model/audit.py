"""What operators did: a record of each call."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from holdfast.model.record import Record

VERBS = (
    "pause", "resume", "cancel", "retry", "change", "delete", "pause_queue", "resume_queue", "pause_task",
    "resume_task", "pause_cron", "resume_cron", "pause_matching", "resume_matching", "schedule", "unschedule",
    "run_cron", "stop_worker", "replay", "create_api_key", "revoke_api_key", "adopt", "suspend_table", "resume_table",
    "undo_table",
)  # fmt: skip


class AuditRecord(Record, frozen=True):
    """One call of an operator: who, when, which verb, on what, and the outcome. `what` is the name of a queue, a task
    or a cron, or a filter (`id:42` for one job). `changed`, `asked` and `refused` count as in `Changed`. Without
    `ended_at`, the call is under way, or was cut short by an error or Ctrl-C; the counts say how far it got. Workers
    carry on with a verb on many jobs whose process died."""

    id: str
    at: datetime
    by: str | None
    verb: str
    what: str
    parameters: dict[str, Any]
    reason: str | None
    changed: int
    asked: int
    refused: int
    ended_at: datetime | None


class BulkOperation(Record, frozen=True):
    """A verb on many jobs, and how it stands. `silent`: whoever performs it gives no sign, so a worker takes it over;
    `cut short`: an error or Ctrl-C ended it, and nobody carries it on. `jobs`: how many it is about, of which `done`
    are done; None: not known."""

    call: AuditRecord
    state: Literal["under way", "silent", "ended", "cut short"]
    jobs: int | None
    done: int
    seen_at: datetime | None  # when it last gave a sign, if it has not ended

    @property
    def rate(self) -> float | None:
        """Jobs a second."""
        until = self.call.ended_at or self.seen_at
        seconds = 0.0 if until is None else (until - self.call.at).total_seconds()
        return self.done / seconds if seconds > 0 and self.done else None
