"""An application that works a table of the user's. Apart from the others: its workers look after that table."""

from __future__ import annotations

import os
import time
from typing import Any

from bench.app import RECORD, times
from holdfast import Holdfast

hf = Holdfast()
audits = hf.adopt(
    "bench_audits",
    states={"queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed"},
    created_at="created_at",
    attempts="attempts",
    worker="worker",
    started_at="started_at",
    heartbeat_at="last_heartbeat",
    updated_at="updated_at",
    error_message="error",
)


@audits.task
async def audit(row: dict[str, Any]) -> None:
    """Notes when it ran, if it was asked when it was committed."""
    if row["asked_ns"] is not None:
        os.write(times(), RECORD.pack(row["asked_ns"], time.monotonic_ns()))
