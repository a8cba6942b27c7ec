"""How many jobs wait, run and have failed, by queue and task. Read from the indexes for claims and failures and counted
up to a cap, so it costs the same however large the table is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from holdfast.model.job import COUNTED, Depth

if TYPE_CHECKING:
    from holdfast.store.columns import JobId
    from holdfast.store.database import Database

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
