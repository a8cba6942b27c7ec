"""What operators did: a record of each call."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class AuditRecord(msgspec.Struct, frozen=True):
    """One call of an operator: who, when, which verb, on what, and the outcome. `what` is the name of a queue, a task
    or a cron, or a filter (`id:42` for one job). `changed`, `asked` and `refused` count as in `Changed`. Without
    `ended_at`, the call is under way or was cut short; the counts say how far it got."""

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
