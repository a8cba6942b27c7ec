"""Is anything wrong? What needs people first, then how much there is, then how it went."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from holdfast.http.dashboard.page import Look


class OverviewQuery(msgspec.Struct, frozen=True):
    range: Literal["hour", "day", "week", "month"] = "hour"
    by: Literal["outcome", "queue"] = "outcome"


def load(look: Look) -> dict[str, Any]:
    seen = look.app.overview()
    return {
        "due": sum(depth.due for depth in seen.depths),
        "running": sum(sum(depth.running.values()) for depth in seen.depths),
        "failed": sum(depth.failed for depth in seen.depths),
        "capped": any(depth.capped for depth in seen.depths),
        "workers": sum(worker.alive(seen.at) for worker in seen.workers),
    }
