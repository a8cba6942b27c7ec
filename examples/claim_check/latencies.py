"""How long a claim waits until somebody works it, in each way to work the table (about four minutes):

    python -m examples.claim_check.latencies

Each way has a database, a web server and a worker of its own; they are measured beside each other. The times are the
database's: from the row's `created_at` to its `claimed_at`."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psycopg

from bench.embedded import EmbeddedPostgres
from examples.claim_check import database
from examples.scenes import Stage

WAITED = "select extract(epoch from claimed_at - created_at)::float8 from analysis_jobs where status = 'done'"
KEY = "cron"


@dataclass(frozen=True)
class Way:
    name: str
    said: str  # of the old system: seconds, average and most
    samples: int
    every: float  # seconds: one submission in each of these, at a random moment of it
    worker: dict[str, str] | None = None  # its settings; None: a cron job drains
    tick: float = 0.0  # seconds between two of these


WAYS = [
    Way("a worker that is notified (LISTEN), preset claim-check", "under 1", 60, 3.0, {}),
    Way("a worker that polls every 1.5 s", "1.5", 60, 3.0, {"HOLDFAST_LISTEN": "0"}),
    Way("a cron job, every 30 s", "15", 24, 7.5, tick=30.0),
    Way("a cron job, every minute", "30, at most 60", 14, 15.0, tick=60.0),
]


@dataclass
class Measurement:
    way: Way
    url: str
    model: str
    random: random.Random = field(default_factory=lambda: random.Random(23))  # noqa: S311 - moments, no secrets

    def run(self) -> list[float]:
        place = {"HOLDFAST_URL": self.url, "CLAIM_CHECK_MODEL_URL": self.model}
        with ExitStack() as stack:
            stage = Stage("examples.claim_check", Path(stack.enter_context(tempfile.TemporaryDirectory())))
            server = stack.enter_context(stage.running("serve", "--port", "0", "--no-worker", **place))
            client = stack.enter_context(httpx2.Client(base_url=stage.address(server), timeout=120))
            if self.way.worker is None:
                stack.enter_context(self.cron(client))
            else:
                stack.enter_context(stage.running("worker", **place, **self.way.worker))
                self.submit(client, "the first one, which finds it up")
                self.await_done(1)
                with database.connect(self.url) as db:
                    db.execute("delete from analysis_jobs")
            for n in range(self.way.samples):
                began, at = time.monotonic(), self.random.uniform(0, self.way.every)
                time.sleep(at)
                self.submit(client, f"claim {n}")
                time.sleep(max(0.0, began + self.way.every - time.monotonic()))
            self.await_done(self.way.samples)
        with database.connect(self.url) as db:
            return [row[0] for row in db.execute(WAITED)]

    def submit(self, client: httpx2.Client, text: str) -> None:
        client.post("/functions/v1/analyze_product", json={"text": text}).raise_for_status()

    def await_done(self, number: int) -> None:
        deadline = time.monotonic() + 150
        while database.counted(self.url).get("done", 0) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.way.name}: {database.counted(self.url)}")
            time.sleep(0.2)

    @contextmanager
    def cron(self, client: httpx2.Client) -> Iterator[None]:
        stopped = threading.Event()
        made = subprocess.run(  # noqa: S603 - our own
            [sys.executable, "-m", "holdfast", "keys", "create", KEY, "--role", "operator", "--url", self.url],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        headers = {"Authorization": f"Bearer {made.stdout.split()[-1]}"}

        def ticking() -> None:
            while not stopped.wait(self.way.tick):
                client.post("/jobs/v1/drain", json={"seconds": self.way.tick - 5}, headers=headers).raise_for_status()

        thread = threading.Thread(target=ticking)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()


def measured() -> list[tuple[Way, list[float]]]:
    from tests.examples.claim_check.standin import StandIn

    server = EmbeddedPostgres(18)
    try:
        with StandIn() as standin, ThreadPoolExecutor(len(WAYS)) as at_once:
            with psycopg.connect(server.url, autocommit=True) as connection:
                for n in range(len(WAYS)):
                    connection.execute(f"create database way_{n}".encode())
            measurements = [
                Measurement(way, server.url.replace("/postgres?", f"/way_{n}?"), standin.url)
                for n, way in enumerate(WAYS)
            ]
            return list(zip(WAYS, at_once.map(Measurement.run, measurements), strict=True))
    finally:
        server.destroy()


def table(found: list[tuple[Way, list[float]]]) -> str:
    lines = ["| worked by | average | median | most | samples | the old system said |", "|---|---|---|---|---|---|"]
    for way, waits in found:
        figures: list[Any] = [statistics.fmean(waits), statistics.median(waits), max(waits)]
        shown = " | ".join(f"{1000 * one:.0f} ms" if one < 0.1 else f"{one:.2g} s" for one in figures)
        lines.append(f"| {way.name} | {shown} | {len(waits)} | {way.said} s |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(measured()))
