"""What is wrong, in words: each finding leads to the list that it counts. A pure decision over what was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from holdfast.http.dashboard.render import count, filter_of, query
from holdfast.model.alerts import Alert
from holdfast.model.job import Backlog, Depth, ErrorGroup, Pause, QueueSummary, WorkerRecord
from holdfast.model.text import fits_in_a_list, plural, to_serve
from holdfast.model.why import unserved

LATE = timedelta(minutes=5)  # a job that waits for longer is worth a look
GROUPS = 5  # of errors that are named
Level = Literal["bad", "warn", "info"]


@dataclass(frozen=True)
class Finding:
    """`text`, then how long ago `at` was, then `rest`. `to`: the list that it is about, as a link says it (`more`).
    `command`: what to do about it."""

    level: Level
    id: str
    text: str
    to: str
    more: str = "show"
    at: datetime | None = None
    rest: str = ""
    command: str = ""


def findings(
    *, now: datetime, depths: Sequence[Depth], queues: Sequence[QueueSummary], workers: Sequence[WorkerRecord],
    groups: Sequence[ErrorGroup], pauses: Sequence[Pause], alerts: Sequence[Alert],
) -> list[Finding]:  # fmt: skip
    """The worst first."""
    paused = {pause.name for pause in pauses if pause.kind == "queue"}
    said = {(alert.name, alert.subject) for alert in alerts}
    waiting = [
        Backlog(depth.queue, depth.task, depth.due, depth.capped, depth.oldest_due_at)
        for depth in depths
        if depth.due and depth.oldest_due_at is not None and depth.queue not in paused
    ]
    stuck = list(_unserved(waiting, workers, now))
    found = [
        *(_alert(alert) for alert in alerts),
        *(one for _, one in stuck),
        *(_silent(worker) for worker in workers
          if not worker.alive(now) and ("worker_unhealthy", worker.id) not in said),
        *_errors(groups),
        *(_late(queue) for queue in queues
          if queue.oldest_due_at is not None and now - queue.oldest_due_at > LATE and queue.queue not in paused
          and ("job_age", queue.queue) not in said and queue.queue not in {name for name, _ in stuck}),
        *(_pause(pause) for pause in pauses),
    ]  # fmt: skip
    if not stuck and not any(worker.alive(now) for worker in workers):
        found.append(Finding("warn", "no-worker", "No worker is up: jobs that come will wait.", "workers",
                             command="holdfast worker APP"))  # fmt: skip
    order = ("bad", "warn", "info")
    return sorted(found, key=lambda one: order.index(one.level))


def jobs(**words: str) -> str:
    return "jobs" + query(filter=filter_of(**words))


def _alert(alert: Alert) -> Finding:
    lists = {
        "queue_depth": jobs(queue=alert.subject, state="queued"), "job_age": jobs(queue=alert.subject, state="queued"),
        "slow_jobs": jobs(task=alert.subject), "worker_unhealthy": "workers", "failed_spike": "errors",
    }  # fmt: skip
    advice = f"; {alert.advice}" if alert.advice else ""
    text = f"Alert: {alert.text}{advice}. It began"
    return Finding("bad", f"alert-{alert.id}", text, lists.get(alert.name, "jobs"), "look", alert.started_at)


def _unserved(
    waiting: Sequence[Backlog], workers: Sequence[WorkerRecord], now: datetime
) -> Iterator[tuple[str, Finding]]:
    nobody: dict[str, list[Backlog]] = {}
    for one in unserved(waiting, workers, now):
        kind = one.waiting
        if not one.served:
            nobody.setdefault(kind.queue, []).append(kind)
            continue
        near = f" (like it: {', '.join(one.nearest)})" if one.nearest else ""
        text = (
            f"Workers serve queue {kind.queue}, but none has task {kind.task}{near}: {count(kind.due, kind.more)} "
            f"{plural('job', kind.due)} of it {'is' if kind.due == 1 else 'are'} due; the oldest became due"
        )
        to = jobs(queue=kind.queue, task=kind.task, state="queued")
        rest = f". Deploy it, or give the renamed task aliases=[{kind.task!r}]."
        yield kind.queue, Finding("bad", f"task-{kind.queue}-{kind.task}", text, to, at=kind.due_at, rest=rest)
    for queue, kinds in sorted(nobody.items()):
        due, capped = sum(kind.due for kind in kinds), any(kind.more for kind in kinds)
        text = (
            f"No worker serves queue {queue}: {count(due, capped)} {plural('job', due)} "
            f"{'is' if due == 1 else 'are'} due; the oldest became due"
        )
        command = to_serve(queue) if fits_in_a_list(queue) else "holdfast worker APP"
        yield queue, Finding(
            "bad", f"unserved-{queue}", text, jobs(queue=queue, state="queued"),
            at=min(kind.due_at for kind in kinds), command=command,
        )  # fmt: skip


def _silent(worker: WorkerRecord) -> Finding:
    text = f"Worker {worker.id} is silent: its process died or hangs. It was last heard of"
    return Finding("bad", f"silent-{worker.id}", text, f"workers#worker-{worker.id}", "workers", worker.seen_at)


def _errors(groups: Sequence[ErrorGroup]) -> Iterator[Finding]:
    for group in groups[:GROUPS]:
        text = (
            f"{group.jobs:,} {plural('job', group.jobs)} of {', '.join(group.tasks)} failed within the hour with "
            f"{group.error_code}: {(group.error_message or '')[:160]}; the last one"
        )
        to = "jobs" + query(filter=f"state:failed group:{group.id} since:1h")
        yield Finding("warn", f"group-{group.id}", text, to, "jobs", group.last_at)
    if rest := groups[GROUPS:]:
        failed = sum(group.jobs for group in rest)
        text = (
            f"{failed:,} more {plural('job', failed)} failed within the hour, with errors of {len(rest)} other kinds."
        )
        yield Finding("warn", "groups", text, "errors", "errors")


def _late(queue: QueueSummary) -> Finding:
    wait = "job of it waits" if queue.due == 1 else "jobs of it wait"
    text = f"Queue {queue.queue} is late: {count(queue.due, queue.capped)} {wait}; the oldest became due"
    to = jobs(queue=queue.queue, state="queued")
    return Finding("warn", f"late-{queue.queue}", text, to, "jobs", queue.oldest_due_at, f" ({queue.drain.text})")


def _pause(pause: Pause) -> Finding:
    names = {"queue": "Queue", "task": "Task", "cron": "Schedule", "filter": "Jobs with"}
    held = f" ({count(pause.jobs, True)} {plural('job', pause.jobs)} held)" if pause.jobs else ""
    text = f"{names[pause.kind]} {pause.name} {'are' if pause.kind == 'filter' else 'is'} paused{held}"
    text += f" by {pause.by}" if pause.by else ""
    text += f": {pause.reason}" if pause.reason else ""
    text += ", until somebody resumes" if pause.until is None else ", ends"
    page = "schedules" if pause.kind == "cron" else "queues"
    return Finding("info", f"pause-{pause.kind}-{pause.name}", text, page, page, pause.until)
