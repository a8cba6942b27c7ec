"""The workers: what they serve, how busy they are, how they poll, and asking them to stop."""

from __future__ import annotations

from typing import Any

from holdfast.errors import BadArguments
from holdfast.http.dashboard.page import Doing, Done, Look
from holdfast.model.text import plural

STATES = {
    "up": "It is heard of.",
    "stopping": "It was asked to stop: it claims no more jobs, lets running ones finish within its grace, and gives "
    "back the rest.",
    "silent": "It was not heard of for two leases: its process died, or its host is away. Its jobs are given back as "
    "their leases end.",
    "frozen": "Its process is there, on this host, but does nothing: it is stopped (SIGSTOP), or waits for its disk. "
    "Its jobs are given back as their leases end.",
}


def load(look: Look) -> dict[str, Any]:
    workers = look.app.workers()
    return {
        "workers": workers,
        "slots": sum(worker.slots for worker in workers if worker.state == "up"),
        "running": sum(worker.running for worker in workers),
        "up": sum(worker.state == "up" for worker in workers),
        "memory": sum(worker.memory or 0 for worker in workers if worker.state in ("up", "stopping")),
        "states": STATES,
    }


async def stop(doing: Doing) -> Done:
    worker = doing.text("worker")
    if worker is None:
        raise BadArguments("which worker? The form has a field `worker`")
    asked = await doing.app.astop_worker(worker, reason=doing.text("reason"), by=doing.by)
    return Done(
        f"Asked {plural('worker', len(asked))} {', '.join(asked)} to stop. It stops within seconds, if it lives."
    )
