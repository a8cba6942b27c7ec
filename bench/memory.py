"""Does memory stay flat: of a process that enqueues a million jobs in one stream, and of the worker that works them?

As a program: the one that enqueues. It prints what it took after a tenth of the stream, and at its end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.app import PAD, hf, noop
from bench.target import Target
from bench.workers import PATIENCE, environment, rss_mb, wait_until, working
from holdfast.tasks.task import Bound

LOOKS = 20  # at the worker's memory, over the whole drain
SLOWEST = 1_000  # jobs a second; slower than that, and the drain is given up


def stream_memory(jobs: int) -> dict[str, float]:
    """Of an enqueue_stream of so many jobs, in a process of its own. They stay queued."""
    command = [sys.executable, "-m", "bench.memory", str(jobs)]
    began = time.monotonic()
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    early, late = map(float, done.stdout.split())
    return _flat(early, late) | {"rate": jobs / (time.monotonic() - began)}


def worker_memory(target: Target, jobs: int) -> dict[str, float]:
    """Of one worker over so many jobs, which are queued: after a tenth of them, and the most from then on."""
    [(first,)] = target.rows("select min(id) from @jobs where ready_at is not null")
    target.settle()
    with working() as workers:
        sizes = []
        for part in range(1, LOOKS + 1):
            last = first + jobs * part // LOOKS - 1
            wait_until(lambda last=last: target.is_finished(last), workers, PATIENCE + jobs / SLOWEST)  # type: ignore[misc]
            sizes.append(workers[0].rss_mb())
    settled = sizes[LOOKS // 10 - 1 :]
    return _flat(settled[0], max(settled)) | {"rate": jobs / target.seconds_worked(range(first, first + jobs))}


def _flat(early: float, late: float) -> dict[str, float]:
    return {"early_mb": early, "late_mb": late, "growth": late / early}


def main() -> None:
    jobs = int(sys.argv[1])
    early: list[float] = []

    def source() -> Iterator[Bound[Any]]:
        for n in range(jobs):
            if n == jobs // 10:
                early.append(rss_mb(os.getpid()))
            yield noop.bind(PAD)

    hf.enqueue_stream(source())
    sys.stdout.write(f"{early[0]} {rss_mb(os.getpid())}\n")


if __name__ == "__main__":
    main()
