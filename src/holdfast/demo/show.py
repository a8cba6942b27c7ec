"""Runs the demo: real worker processes on a SQLite file, one of which is killed, and a summary that is counted from the
database."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast.demo.app import charge, crunch, doomed, flaky, greet, hf, shrink
from holdfast.model.job import WorkerRecord
from holdfast.model.lifecycle import FINISHED, State
from holdfast.tasks.task import Bound

WORKERS = 3
LONGEST = 90.0  # seconds; a longer run means that something is wrong
KILL_AFTER = 0.3  # of the jobs done
FIRST = "the first visitor"


def run(jobs: int, keep: Path | None) -> int:
    """Returns the exit status: 0 if no job was lost or done twice."""
    console = Console(highlight=False)
    place = Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    path = keep.absolute() if keep else place / "demo.db"
    hf.reconfigure(url=f"sqlite:///{path}")
    workers: list[subprocess.Popen[bytes]] = []
    try:
        return Demo(console, path, jobs, workers).run()
    finally:
        for process in workers:
            process.terminate()
        for process in workers:
            process.wait(30)
        hf.close()
        shutil.rmtree(place, ignore_errors=True)


class Demo:
    def __init__(self, console: Console, path: Path, jobs: int, workers: list[subprocess.Popen[bytes]]) -> None:
        self._console = console
        self._path = path
        self._jobs = jobs
        self._workers = workers
        self._began = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )

    def run(self) -> int:
        self._say(f"A SQLite file, {WORKERS} worker processes, about {self._jobs:,} jobs of six kinds.")
        with sqlite3.connect(self._path) as connection:
            connection.execute("create table if not exists charges (job text not null, cents integer not null)")
        connection.close()
        greet.using(key=FIRST, reuse="forever").enqueue("first visitor")
        accepted = 1 + len(hf.enqueue_many(self._make()))
        self._say(f"accepted {accepted:,} jobs")
        self._workers += [self._start_worker() for _ in range(WORKERS)]
        with Live(self._progress, console=self._console, refresh_per_second=8, transient=True):
            self._watch(accepted)
        self._enqueue_same_key()
        return self._summary()

    def _make(self) -> Iterator[Bound[object]]:
        part = self._jobs // 30
        yield from (crunch.using(priority=5).bind(8) for _ in range(max(3, part // 5)))
        yield from (charge.bind(100 + n) for n in range(3 * part))
        yield from (flaky.bind(1 + n % 2) for n in range(3 * part))
        yield from (doomed.bind(n) for n in range(part // 4 + 1))
        yield from (shrink.bind(640 + n) for n in range(4 * part))
        yield from (greet.bind(f"visitor {n}") for n in range(19 * part))

    def _start_worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "worker", "holdfast.demo.app:hf"]
        environment = {**os.environ, "HOLDFAST_URL": hf.settings.url}
        errors = self._path.with_name(f"{self._path.name}-worker.log").open("ab")
        with errors:
            return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=errors)  # noqa: S603

    def _watch(self, accepted: int) -> None:
        """Show the progress until all jobs have ended, and kill a worker in between."""
        bar = self._progress.add_task("jobs done", total=accepted)
        victim: WorkerRecord | None = None
        rescue_reported = False
        reported_at = time.monotonic()
        while True:
            states = self._states()
            done = sum(states[state] for state in FINISHED)
            self._progress.update(bar, completed=done, description=_line(states))
            if done >= accepted:
                return
            if not self._console.is_terminal and time.monotonic() - reported_at > 2:
                reported_at = time.monotonic()
                self._say(_line(states))
            if victim is None and done > KILL_AFTER * accepted:
                victim = self._kill_one()
            if victim is not None and not rescue_reported:
                rescue_reported = self._report_rescue(victim)
            if time.monotonic() - self._began > LONGEST:
                self._say(f"[bold red]not finished after {LONGEST:g} s[/]: {_line(states)}")
                return
            time.sleep(0.1)

    def _kill_one(self) -> WorkerRecord | None:
        """Send SIGKILL to the worker that has the most jobs in flight."""
        holding = Counter(job.record.worker for job in hf.jobs(state=State.RUNNING, limit=200))
        known = {worker.id: worker for worker in hf.store.workers.all()}
        mine = {process.pid for process in self._workers}
        for id, _ in holding.most_common():
            if id in known and known[id].pid in mine:
                os.kill(known[id].pid, signal.SIGKILL)
                self._say(f"[bold red]kill -9[/] of worker {known[id].pid}, in the middle of its jobs")
                return known[id]
        return None

    def _report_rescue(self, victim: WorkerRecord) -> bool:
        outcomes = {row["outcome"]: row["jobs"] for row in hf.store.reads.outcomes()}
        rescued = outcomes.get("lost", 0) + outcomes.get("crashed", 0)
        if not rescued or victim.id in {worker.id for worker in hf.store.workers.all()}:
            return False
        self._say(f"[bold green]rescued[/] {rescued} jobs of worker {victim.pid}: they run again elsewhere")
        return True

    def _enqueue_same_key(self) -> None:
        again = greet.using(key=FIRST, reuse="forever").enqueue("first visitor")
        if not again.created:
            self._say(f"the same job was enqueued again: its result was there at once, {again.refresh().result!r}")

    def _summary(self) -> int:
        states = self._states()
        # Ids count up by one and are never reused, so the highest id is the number of accepted jobs.
        accepted = int(hf.jobs(limit=1)[0].id)
        unfinished = sum(count for state, count in states.items() if state not in FINISHED)
        lost = accepted - sum(states.values()) + unfinished
        outcomes = {row["outcome"]: row for row in hf.store.reads.outcomes()}
        recovered = sum(outcomes[name]["jobs"] for name in ("lost", "crashed") if name in outcomes)
        retried = outcomes["errored"]["attempts"] - states[State.FAILED] if "errored" in outcomes else 0
        with sqlite3.connect(self._path) as connection:
            [(charged, jobs)] = connection.execute("select count(*), count(distinct job) from charges").fetchall()
        connection.close()
        doubled = charged - jobs
        failures = ", ".join(f"{row['jobs']} {row['task']} ({row['error_code']})" for row in hf.store.reads.failures())
        say = self._console.print
        say(f"\nIn {time.monotonic() - self._began:.1f} s, counted from the database:")
        say(f"  accepted   {accepted:>6,}")
        say(f"  succeeded  {states[State.SUCCEEDED]:>6,}")
        say(f"  failed     {states[State.FAILED]:>6,}  {failures}")
        say(f"  retried    {retried:>6,}  attempts that failed and were retried")
        say(f"  recovered  {recovered:>6,}  jobs of the killed worker")
        say(f"  lost       {lost:>6,}")
        say(f"  doubled    {doubled:>6,}  of {charged:,} effects written together with their success")
        say("\nNow kill one yourself, in the dashboard: `make dev`, or `holdfast demo --ui`")
        return 1 if lost or doubled else 0

    def _states(self) -> Counter[State]:
        states: Counter[State] = Counter()
        for row in hf.store.reads.counts():
            states[State(row["state"])] += row["jobs"]
        return states

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.monotonic() - self._began:5.1f} s[/]  {text}")


def _line(states: Counter[State]) -> str:
    return "  ".join(f"{count:,} {state.value}" for state, count in sorted(states.items()) if count)
