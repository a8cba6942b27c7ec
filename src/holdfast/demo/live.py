"""Runs the demo with a dashboard: workers under a live load, and a button that kills one of them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.cli.base import talk
from holdfast.cli.serve import stopped_by_signals, the_server
from holdfast.demo.live_app import greet, hf, import_feed, newsletter, render_film, shrink
from holdfast.errors import StoreUnavailable
from holdfast.http.dashboard.page import Doing, Done, Offer
from holdfast.model.lifecycle import State
from holdfast.runners.linux import PDEATHSIG, prctl
from holdfast.tasks.task import Bound

WORKERS = 3
EVERY = 0.5  # seconds between two loads
BACK_AFTER = 4.0  # seconds until a killed worker is replaced: long enough to see that it is gone
SHOPS = 3
PATIENCE = 30.0  # seconds for which whoever waits for the address waits for the workers, too


def run(keep: Path | None, port: int) -> None:
    place = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    path = keep.absolute() if keep else place / "demo.db"
    hf.reconfigure(url=f"sqlite:///{path}")
    live = Live(path)
    offer = Offer(
        "/demo/kill", live.kill_one, label="Kill a worker",
        sentence="The busiest one gets SIGKILL. See its jobs come back: they run again elsewhere within seconds.",
    )  # fmt: skip
    server = the_server()(hf, "127.0.0.1", port, runs_jobs=False, offers=[offer])
    try:
        with stopped_by_signals(server), live.running():
            live.await_workers()
            talk(f"dashboard: {server.url}/")
            talk(f"{WORKERS} worker processes on a SQLite file, and jobs that keep coming. Ctrl-C stops it")
            server.run_until_stopped()
    finally:
        hf.close()
        shutil.rmtree(place, ignore_errors=True)


class Live:
    """The load, and the workers that do it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._workers: list[subprocess.Popen[bytes]] = []
        self._stopping = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        self._first()
        feeding = threading.Thread(target=self._feed, name="holdfast-demo")
        feeding.start()
        try:
            yield
        finally:
            self._stopping.set()
            feeding.join()
            for process in self._workers:
                process.terminate()
            for process in self._workers:
                process.wait(30)

    def await_workers(self) -> None:
        """Until all have registered: whoever opened the dashboard before would read that nobody serves its queues."""
        until = time.monotonic() + PATIENCE
        while len(hf.workers()) < WORKERS and time.monotonic() < until:
            time.sleep(0.1)

    def _first(self) -> None:
        """What there is to see from the first moment on."""
        hf.migrate()
        hf.pause_queue("newsletter", reason="the layout is being checked", by="the demo")
        hf.enqueue_many(newsletter.bind(edition) for edition in range(1, 41))
        hf.enqueue_many(import_feed.bind(1 + n % SHOPS, time.time()) for n in range(60))
        hf.enqueue_many(render_film.bind(f"film {n}", 240) for n in range(1, 6))
        hf.enqueue_many(greet.using(delay=3600).bind(f"visitor {n}") for n in range(25))

    def _feed(self) -> None:
        """Jobs that keep coming, and as many workers as there should be."""
        gone_at: float | None = 0.0
        while not self._stopping.is_set():
            self._workers = [process for process in self._workers if process.poll() is None]
            if len(self._workers) == WORKERS:
                gone_at = None
            elif gone_at is None:
                gone_at = time.monotonic()
            elif time.monotonic() - gone_at > BACK_AFTER:
                self._workers += [self._start_worker() for _ in range(WORKERS - len(self._workers))]
            with suppress(StoreUnavailable):  # the next ones are enqueued
                hf.enqueue_many(list(self._some()))
            self._stopping.wait(EVERY)

    def _some(self) -> Iterator[Bound[object]]:
        chance = random.random()  # noqa: S311 - no secret
        yield from (greet.bind(f"visitor {n}") for n in range(int(30 * chance)))
        yield from (shrink.bind(640 + n) for n in range(int(12 * chance)))
        if chance > 0.97:
            yield import_feed.bind(SHOPS, time.time())
        if chance < 0.02:
            yield render_film.bind("another film", 120)

    def _start_worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "worker", "holdfast.demo.live_app:hf"]
        environment = {**os.environ, "HOLDFAST_URL": hf.settings.url}
        with self._path.with_name(f"{self._path.name}-worker.log").open("ab") as errors:
            return subprocess.Popen(  # noqa: S603 - our own
                command, env=environment, stdout=subprocess.DEVNULL, stderr=errors, process_group=0,
                preexec_fn=lambda: prctl(PDEATHSIG, signal.SIGTERM),  # if we are killed, they stop, too
            )  # fmt: skip

    async def kill_one(self, doing: Doing) -> Done:
        """Send SIGKILL to the one of our workers that has the most jobs in flight, and show those."""
        running = await hf.ajobs(state=State.RUNNING, limit=500)
        mine = {process.pid for process in self._workers if process.poll() is None}
        known = {worker.id: worker.pid for worker in await hf.aworkers() if worker.pid in mine}
        holding = Counter(job.record.worker for job in running if job.record.worker in known)
        if not holding:
            return Done("No worker runs anything just now: try again in a moment.", wrong=True)
        [(victim, held)] = holding.most_common(1)
        pid = known[str(victim)]
        os.kill(pid, signal.SIGKILL)
        ids = ",".join(job.id for job in running if job.record.worker == victim)
        said = f"Killed the worker process {pid} with SIGKILL. It ran these {held} jobs: see them run again elsewhere."
        return Done(said, to=f"/jobs?filter=id:{ids}")
