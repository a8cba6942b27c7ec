"""The queues: how much waits and for how long, who serves them, and pausing them and their tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadArguments
from holdfast.http.dashboard.charts import spark
from holdfast.http.dashboard.page import Doing, Done, Look
from holdfast.model.drain import EMPTY
from holdfast.model.job import Depth, Pause, QueueSummary, WorkerRecord
from holdfast.model.text import to_serve
from holdfast.monitoring import overview, series

FOR = {"": "until I resume", "15m": "for 15 min", "1h": "for 1 h", "4h": "for 4 h", "1d": "for a day"}  # a pause lasts
ALL_QUEUES = 10_000  # queues have a sparkline each


@dataclass(frozen=True)
class Row:
    """A queue. `tables`: the adopted ones that it works."""

    queue: QueueSummary
    pause: Pause | None
    tasks: list[Depth]
    workers: list[WorkerRecord]
    spark: str
    tables: list[str]
    serve: str  # the command that starts a worker for it


def load(look: Look) -> dict[str, Any]:
    app = look.app
    seen = overview(app)
    known = {queue.queue: queue for queue in app.queues()}
    pauses = {(pause.kind, pause.name): pause for pause in seen.pauses}
    live = [worker for worker in seen.workers if worker.alive(seen.at)]
    paused = {name for kind, name in pauses if kind == "queue"}
    names = sorted({*known, *paused, *(queue for worker in live for queue in worker.queues or ())})
    lines = {line.name: line.values for line in series(app, "hour", by="queue", most=ALL_QUEUES).jobs}
    rows = [
        Row(
            queue=known.get(name) or QueueSummary(name, 0, 0, 0, 0, 0, 0, None, False, EMPTY),
            pause=pauses.get(("queue", name)),
            tasks=[depth for depth in seen.depths if depth.queue == name],
            workers=[worker for worker in live if worker.queues is None or name in worker.queues],
            spark=spark(lines.get(name, ())),
            tables=sorted(table.name for table in app.adopted.values() if table.mapping.queue == name),
            serve=to_serve(name),
        )
        for name in names
    ]
    return {
        "rows": rows,
        "due": sum(row.queue.due for row in rows),
        "later": sum(row.queue.scheduled for row in rows),
        "running": sum(row.queue.running for row in rows),
        "pending": sum(row.queue.pending for row in rows),
        "capped": any(row.queue.capped for row in rows),
        "workers": len(live),
        "task_pauses": {pause.name: pause for pause in seen.pauses if pause.kind == "task"},
        "filter_pauses": [pause for pause in seen.pauses if pause.kind == "filter"],
        "lasting": FOR,
    }


async def pause(doing: Doing) -> Done:
    queue = _named(doing, "queue")
    made = await doing.app.apause_queue(queue, reason=doing.text("reason"), until=doing.text("for"), by=doing.by)
    return Done(f"The queue {queue} is paused{_until(made)}.")


async def resume(doing: Doing) -> Done:
    queue = _named(doing, "queue")
    ended = await doing.app.aresume_queue(queue, reason=doing.text("reason"), by=doing.by)
    return Done(f"The queue {queue} goes on." if ended else f"The queue {queue} was not paused.")


async def pause_task(doing: Doing) -> Done:
    task = _named(doing, "task")
    made = await doing.app.apause_task(task, reason=doing.text("reason"), until=doing.text("for"), by=doing.by)
    return Done(f"The task {task} is paused{_until(made)}.")


async def resume_task(doing: Doing) -> Done:
    task = _named(doing, "task")
    ended = await doing.app.aresume_task(task, reason=doing.text("reason"), by=doing.by)
    return Done(f"The task {task} goes on." if ended else f"The task {task} was not paused.")


async def resume_filter(doing: Doing) -> Done:
    jobs = _named(doing, "filter")
    ended = await doing.app.aresume_matching(jobs, reason=doing.text("reason"), by=doing.by)
    return Done(f"The jobs with {jobs} go on." if ended else f"The jobs with {jobs} were not paused.")


def _named(doing: Doing, what: str) -> str:
    name = doing.form.get(what, "")
    if not name:
        raise BadArguments(f"which {what}? The form has a field `{what}`")
    return name


def _until(pause: Pause) -> str:
    return f" until {pause.until:%Y-%m-%d %H:%M} UTC" if pause.until else ""
