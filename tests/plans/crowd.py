"""A crowded table: many jobs of every state, and in front of a few due ones many that nobody may take now."""

from __future__ import annotations

from dataclasses import dataclass

QUEUE, TASK = "default", "due"
UNSERVED = "unserved"  # a task the worker that looks has no handler for
PAUSED_TASK, PAUSED_QUEUE = "paused-task", "paused-queue"
FILTER = "args.customer:42"  # of a pause
DUE = 3  # jobs that can be claimed: one of each priority -1, 0, 1
HELD_UNDER_A_LEASE = 10  # running jobs that share a fence


# Many lanes with much to do: how their jobs follow each other is what makes a merge of them cheap or dear.
LANES, WANTED = 300, 2000
LANE_TASKS = [f"{TASK}{n}" for n in range(10)]
LAYOUTS = {  # lane, n and per_lane -> seconds until due, from some time in the past
    "in turn": ("n + lane / 1000.0", 400),
    "lane after lane": ("lane * 10 + n / 1000.0", 400),
    "at once": ("0", 400),
    "one long": ("n", "case lane when 7 then 100000 else 1 end"),
}


@dataclass(frozen=True)
class Kind:
    """`share` thousandths of the crowd, and the columns that make them what they are; {n} is a running number,
    {past} and {future} are instants, {fence} is the fence of a group of running jobs."""

    share: int
    state: str
    task: str = TASK
    queue: str = QUEUE
    priority: str = "{n} % 3 - 1"
    attempt: str = "0"
    run_at: str = "{past}"
    ready_at: str = "null"
    finished_at: str = "null"
    failed_at: str = "null"
    expires_at: str = "null"
    fence: str = "null"
    key: str = "null"
    holds_key: str = "null"
    held_by: str = "null"


# One share is a thousandth of a million: 100,000 jobs of each state, and beside them a million that may not be taken.
KINDS = {
    "succeeded": Kind(100, "succeeded", attempt="1", finished_at="{past}", key="'s' || {n}", holds_key="true"),
    "failed": Kind(100, "failed", attempt="1", finished_at="{past}", failed_at="{past}"),
    "cancelled": Kind(100, "cancelled", finished_at="{past}"),
    "running": Kind(100, "running", attempt="1", fence="{fence}", key="'r' || {n}", holds_key="true"),
    "paused": Kind(200, "paused"),
    "held": Kind(200, "queued", held_by=f"'pause:{FILTER}'"),
    "unserved": Kind(150, "queued", task=UNSERVED, ready_at="{past}"),
    "in a paused queue": Kind(100, "queued", queue=PAUSED_QUEUE, ready_at="{past}"),
    "of a paused task": Kind(100, "queued", task=PAUSED_TASK, ready_at="{past}"),
    "future": Kind(150, "queued", run_at="{future}", ready_at="{future}", expires_at="{future}"),
    "future, more urgent": Kind(200, "queued", priority="50 + {n} % 3", run_at="{future}", ready_at="{future}"),
    "keyed": Kind(100, "paused", key="'k' || {n}", holds_key="true"),
}
COLUMNS = (
    "state", "task", "queue", "priority", "attempt", "run_at", "ready_at", "finished_at", "failed_at", "expires_at",
    "fence", "key", "holds_key", "held_by",
)  # fmt: skip


def selected(kind: Kind, **words: str) -> str:
    """The columns of one kind, as the target list of a select."""
    quoted = ("state", "task", "queue")
    return ", ".join(
        f"'{getattr(kind, name)}'" if name in quoted else getattr(kind, name).format(**words) for name in COLUMNS
    )
