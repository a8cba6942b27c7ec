"""How fast jobs get in: one at a time, many, and from many processes at once with and without wake-ups.

As a program: one of the many. It takes orders on stdin (`on 100`: enqueue a hundred, with wake-ups) and answers with
when it began and ended."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO, Any

from bench.app import PAD, hf, noop
from bench.raw import rate
from bench.workers import environment

ENQUEUERS = 16


def enqueue_one(jobs: int) -> float:
    noop.enqueue(PAD)  # the connection is there
    return rate(jobs, lambda: [noop.enqueue(PAD) for _ in range(jobs)])


def enqueue_bulk(jobs: int) -> float:
    noop.enqueue(PAD)
    return rate(jobs, lambda: hf.enqueue_many(noop.bind(PAD) for _ in range(jobs)))


class Enqueuers:
    """Sixteen processes that enqueue one job at a time."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes
        for process in processes:
            assert _out(process).readline() == "ready\n", "an enqueuer of the benchmark did not start"

    def compare(self, jobs: int) -> dict[str, float]:
        return {
            "with_notification": self.rate(jobs, notify=True),
            "without_notification": self.rate(jobs, notify=False),
        }

    def rate(self, jobs: int, *, notify: bool) -> float:
        each = max(1, jobs // len(self._processes))
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write(f"{'on' if notify else 'off'} {each}\n")
            process.stdin.flush()
        times = [tuple(map(int, _out(process).readline().split())) for process in self._processes]
        return each * len(times) * 1e9 / (max(ended for _, ended in times) - min(began for began, _ in times))


def listen_everywhere(wakeups: Any) -> bytes:
    return ";".join(f'listen "{channel}"' for channel in (wakeups.channel, *wakeups.channels)).encode()


@contextmanager
def enqueuers() -> Iterator[Enqueuers]:
    """Somebody listens, as a worker would: without that, a notification costs the database less."""
    import psycopg

    store: Any = hf.store
    with psycopg.connect(hf.settings.url, autocommit=True) as listener, ExitStack() as stack:
        listener.execute(listen_everywhere(store.wakeups))
        command = [sys.executable, "-m", "bench.enqueue"]
        processes = []
        for _ in range(ENQUEUERS):
            process = subprocess.Popen(  # noqa: S603 - our own arguments
                command, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            processes.append(stack.enter_context(process))
        yield Enqueuers(processes)


def _out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


class Silence:
    """In the place of a notifier: tells nobody."""

    def turn(self, _wakeup: tuple[str, str]) -> bool:
        return False

    def enqueued(self, _id: int, _seconds: float) -> None:
        return

    def send(self, _wakeups: Iterable[tuple[str, str]]) -> None:
        return


def main() -> None:
    noop.enqueue(PAD)
    store: Any = hf.store
    notifiers = {"on": store.wakeups.notifier, "off": Silence()}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for line in sys.stdin:
        word, jobs = line.split()
        store.wakeups.notifier = notifiers[word]
        began = time.monotonic_ns()
        for _ in range(int(jobs)):
            noop.enqueue(PAD)
        sys.stdout.write(f"{began} {time.monotonic_ns()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
