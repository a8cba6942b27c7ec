"""An application with jobs in every state, for pages to show."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import Fail, Holdfast, JobContext, Secret


class Gates:
    """What handlers wait for, so that a test decides when they go on."""

    def __init__(self) -> None:
        self._gates: dict[str, threading.Event] = {}

    def __getitem__(self, name: str) -> threading.Event:
        return self._gates.setdefault(name, threading.Event())


gates = Gates()


@contextmanager
def make_shop(url: str) -> Iterator[Holdfast]:
    """Its handlers run in threads of the test. (Playwright's own event loop runs in the test's thread.)"""
    with Holdfast(url, synchronous="off", sync_in_loop="allow", heartbeat=0.1, lease=10.0, poll_max=0.2) as app:
        app.migrate()

        @app.task(queue="films", http=["cancel", "pause", "resume"])
        def render(ctx: JobContext, title: str, scenes: int = 4) -> str:
            for scene in range(ctx.saved or 0, scenes):
                ctx.progress(scene, total=scenes, note=f"scene {scene + 1}")
                ctx.checkpoint(scene, pending=scenes - scene)
                while not gates[f"{title} {scene}"].wait(0.02):
                    if ctx.should_stop():
                        ctx.checkpoint(scene, pending=scenes - scene)  # where pause and cancel take effect
            return f"{title}.mp4"

        @app.task(queue="mail", max_attempts=1)
        def send(to: str, token: Secret[str] = "t0k3n") -> str:
            if gates["outage"].is_set():
                raise ConnectionError("the mail server refused the connection")
            return to

        @app.task(queue="imports", max_attempts=1)
        def load(row: int) -> int:
            if row % 2:
                raise ValueError(f"row {row}: 'price' is not a number")
            raise Fail("the file is empty", code="EMPTY_FILE")

        @app.task
        def greet(name: str = "you") -> str:
            return f"hello {name}"

        @app.task(queue="reports", cron="*/5 * * * *")
        def report() -> None: ...

        gates._gates.clear()
        yield app
        for gate in gates._gates.values():
            gate.set()


def fill(app: Holdfast) -> dict[str, str]:
    """Something for every page to show. Returns what stands in their paths."""
    tasks: dict[str, Any] = app.tasks
    app.enqueue_many(tasks["load"].bind(row) for row in range(24))
    app.enqueue_many(tasks["greet"].bind(f"visitor {n}") for n in range(30))
    app.drain()
    tasks["send"].using(delay=3600, tags=["weekly"], key="newsletter").enqueue("everybody")
    tasks["render"].using(priority=5).enqueue("the film")
    app.pause_queue("mail", reason="the provider is down", by="ops")
    app.schedule("nightly", tasks["greet"].bind("night"), cron="0 3 * * *")
    app.store.workers.register(id="w~1", name="web1-71", host="web1", pid=71, queues=None, tasks=["greet"], slots=4)
    app.retry("task:load id:1,2", reason="to see", by="ops")
    [group, *_] = app.error_groups()
    [failed, *_] = app.jobs("state:failed")
    return {"id": failed.id, "group": group.id, "name": "nightly", "queue": "mail", "worker": "w~1"}
