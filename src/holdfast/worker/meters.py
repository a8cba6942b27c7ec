"""What the desk counts: for health checks, drains and tests."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Meters:
    polls: int = 0
    attempts: int = 0  # ended, other than given back
    jobs: int = 0  # finished: succeeded, failed or cancelled
    failed: int = 0  # of those
    recorded: int = 0
    lost: int = 0
    consecutive_errors: int = 0
    last_poll: float = field(default_factory=time.monotonic)
