"""A worker's side of its lines, with a fuzzer at the other end: the real pool and the real runner of isolated attempts,
on real sockets, in the state they are in while handlers run. Only the processes are missing."""

from __future__ import annotations

import logging
import math
import os
import random
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from dataclasses import replace as replace_link
from itertools import count, islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from msgspec.structs import replace

from holdfast import events
from holdfast.errors import HoldfastError
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import CODE_LIMIT, LONGEST_DELAY, MESSAGE_LIMIT, TRACEBACK_LIMIT, Crash, Error, Outcome
from holdfast.model.payload import checked
from holdfast.model.stack import LIMIT as STACK_LIMIT
from holdfast.model.stack import taken
from holdfast.runners import isolated_process, pooled_process
from holdfast.runners.arrivals import WORDS
from holdfast.runners.base import WorkerLink
from holdfast.runners.isolated import IsolatedRunner
from holdfast.runners.process_pool import ProcessPool
from holdfast.runners.process_watcher import ProcessWatcher
from holdfast.runners.spawn import ExitStatus
from holdfast.runners.wire import REQUESTS, Hello, Ready, frame
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.tasks.attempt import NOTE_LIMIT, Attempt
from holdfast.tasks.manifest import TaskInfo
from tests.fuzz.frames import ALONE, OPENING, POOLED, SECRET, Frames

TASKS = (
    TaskInfo("task", (), "default", 3, None, delays=(1.0, 1.0)),
    TaskInfo("own", (), "default", 3, None, isolation="process"),  # its output is captured
)
KINDS = ("pooled", "alone")
MEMORY = 150 * 2**20  # bytes that this process may grow by
FRAMES = 30  # on one line, if it is not broken before
TIMEOUT = 30.0  # seconds that a line may take to come to its end


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Nobody:
    """Stands where a process would: it lives until it is killed, or says that it has ended."""

    pids = count(10**6)

    def __init__(self, line: int) -> None:
        self.pid = next(self.pids)
        self.watched, self._lives = os.pipe()  # readable when it has ended
        self.line = socket.socket(fileno=os.dup(line))
        self.line.setblocking(False)
        self.exit_status: ExitStatus | None = None
        self._status: int | None = None

    def close(self, status: int = 0) -> None:
        """It has ended by itself."""
        if self._status is None:
            self._status = status
            self.line.close()
            os.close(self._lives)

    def kill(self) -> None:
        self.close(-signal.SIGKILL)

    def terminate(self) -> None: ...

    def wait(self) -> None: ...

    def ended(self) -> bool:
        return self._status is not None

    def reap(self) -> ExitStatus | None:
        if self.exit_status is None:
            self.exit_status = ExitStatus(self._status, killed=self._status != 0)
            os.close(self.watched)
        return self.exit_status

    def send(self, data: bytes | bytearray, turn: Callable[[], None] = lambda: None) -> bool:
        """False: it is not heard any more. What the worker says is read, and forgotten. `turn`: has the worker read."""
        with suppress(OSError):
            while self.line.recv(2**20):
                pass
        left = memoryview(data)
        try:
            while left:
                with suppress(BlockingIOError):
                    left = left[self.line.send(left) :]
                turn()
        except OSError:
            return False
        return True


class Broken(AssertionError):
    """The worker did something that it should not, whatever it was told."""


class Ends:
    """Where attempts end: each once, and with what a store takes."""

    def __init__(self) -> None:
        self.left: set[Attempt] = set()
        self.outcomes: list[Outcome] = []  # of the newest line
        self.count = 0
        self.last: Outcome | Crash | None = None

    def finished(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        if attempt not in self.left:
            raise Broken("an attempt ended twice")
        self.left.remove(attempt)
        self.last = outcome
        self.count += 1
        check_times(attempt)
        check_progress(attempt)
        if isinstance(outcome, Crash):
            check_text(outcome.cause, 1000)
        elif outcome is not None:
            check_outcome(attempt.held, outcome)
            self.outcomes.append(replace(outcome, progress=attempt.progress, recorded=False))

    def succeeded(self, attempts: Sequence[Attempt], outcomes: Sequence[Outcome]) -> None:
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            self.finished(attempt, outcome)


def check_text(text: str | None, limit: int) -> None:
    if text is None:
        return
    text.encode()
    if len(text) > limit or "\x00" in text or SECRET in text:
        raise Broken(f"a text of {len(text)} characters is kept: {text[:200]!r}")


def check_times(attempt: Attempt) -> None:
    began, ended = attempt.started, attempt.ended
    if not (math.isfinite(began) and math.isfinite(ended) and (not ended or 0 <= began <= ended)):
        raise Broken(f"it ran from {began} to {ended}")


def check_progress(attempt: Attempt) -> None:
    if (progress := attempt.progress) is not None:
        done, total, note = progress
        if not all(count is None or 0 <= count <= 10**15 for count in (done, total)):
            raise Broken(f"its progress is {progress}")
        check_text(note, NOTE_LIMIT)


def check_outcome(held: ClaimedJob, outcome: Outcome) -> None:
    if (outcome.id, outcome.fence) != (held.id, held.fence):
        raise Broken("an outcome of another attempt")
    if outcome.attempt not in WORDS[outcome.verb] or outcome.progress is not None:
        raise Broken(f"this makes no sense: {outcome}")
    if not 0 <= outcome.delay <= LONGEST_DELAY:
        raise Broken(f"it is put off by {outcome.delay} s")
    if outcome.result is not None:
        checked(outcome.result, limit=2**20).decode()
    check_text(outcome.output, 10**5)
    error = outcome.error or Error("", "")
    for text, limit in ((error.code, CODE_LIMIT), (error.message, MESSAGE_LIMIT), (error.traceback, TRACEBACK_LIMIT)):
        check_text(text, limit)


class Lines:
    """One of each kind of runner, for any number of lines, one after the other."""

    def __init__(self, store: Store) -> None:
        self._settings = Settings(grace=1.0, isolated=1)
        self._log = logging.getLogger("holdfast")
        self._level = self._log.level
        self._log.setLevel(logging.CRITICAL)
        self._ids = count(1)
        self.frames = 0
        self.ends = Ends()
        self._patched = [
            patch.object(pooled_process, "spawn", self._spawn_pooled),
            patch.object(isolated_process, "spawn", self._spawn_alone),
        ]
        for spawn in self._patched:
            spawn.start()
        self._unsubscribe = events.subscribe(self._heard, only=["stumbled"])
        self._stumbled: list[Any] = []
        link = WorkerLink("w", self.ends, self._stack_taken, give_up=self._given_up)
        self.pool = ProcessPool("nowhere:hf", processes=1)
        self.alone = IsolatedRunner("nowhere:hf", (), TASKS, store, self._settings)
        with patch.object(ProcessWatcher, "start"):  # the fuzzer turns their loops
            self.alone.open(link)
            self.pool.open(replace_link(link, stopping=lambda: True))
        self.pool._link = link
        self.pool._watcher.round()

    def close(self) -> None:
        for spawn in self._patched:
            spawn.stop()
        self._log.setLevel(self._level)
        self._unsubscribe()
        self.pooled.close()
        self.pool._closing = True
        while self.pool._watcher.processes:
            self.pool._watcher.round()
        for one in self.alone._watcher.processes:
            one.child.kill()
            one.channel.close()
        self.alone._watcher.processes.clear()
        self.alone.close()
        self.alone._helpers.shutdown(wait=True)
        self.pool._watcher.close(0.0)

    def _spawn_pooled(self, command: Sequence[str], *, pass_fds: Sequence[int], **_: Any) -> Nobody:
        self.pooled = Nobody(pass_fds[0])
        self.pooled.send(frame(Hello(asdict(self._settings), TASKS)))
        return self.pooled

    def _spawn_alone(self, command: Sequence[str], *, pass_fds: Sequence[int], **_: Any) -> Nobody:
        self._isolated_end = Nobody(pass_fds[0])
        return self._isolated_end

    def _heard(self, name: str, fields: dict[str, Any]) -> None:
        self._stumbled.append(fields)

    def _given_up(self, error: HoldfastError) -> None:
        raise Broken(f"the worker would end: {error}")

    def _stack_taken(self, attempt: Attempt, stack: str) -> None:
        found = taken(stack)
        check_text(found.text, STACK_LIMIT)
        check_text(found.thread, STACK_LIMIT)

    def held(self) -> ClaimedJob:
        args = msgspec.json.encode({"password": SECRET})
        task = "task" if next(self._ids) % 10 else "own"
        return ClaimedJob(next(self._ids), "00000000-0000-0000-0000-000000000001", task, "default", args, 1, 3)

    # -- one line ------------------------------------------------------------------------------------------------------

    def talk(self, kind: str, seed: str, held: Callable[[], ClaimedJob] | None = None) -> None:
        """Raises Broken, or whatever the worker's thread would have met."""
        self.ends.outcomes.clear()
        attempts = [Attempt((held or self.held)(), None, 1.0) for _ in range(5 if kind == "pooled" else 1)]
        self.ends.left = set(attempts)
        (self._talk_pooled if kind == "pooled" else self._talk_alone)(attempts, random.Random(seed))
        if self._stumbled:
            raise Broken(f"stumbled: {self._stumbled}")
        if self.ends.left:
            raise Broken(f"never ended: {self.ends.left}")

    def _talk_pooled(self, attempts: list[Attempt], chance: random.Random) -> None:
        pool, nobody = self.pool, self.pooled
        [one] = pool._watcher.processes
        silent = pool._ever_ready and chance.random() < 0.1  # it attacks before it is ready
        if not silent:
            nobody.send(frame(Ready()))
            pool._watcher.round()
            if not one.give(attempts, is_async=False):
                raise Broken("it takes no attempts")
            for attempt in attempts[:2]:
                pool.stack(attempt)
            one.withdrawals.request(1, is_async=True)
        else:
            self.ends.left = set()
        numbered = [(attempt.number, attempt.held) for attempt in attempts]
        self._feed(
            nobody,
            Frames(chance, OPENING if silent else POOLED, numbered),
            pool._watcher.round,
            lambda: one in pool._watcher.processes,
        )
        while one in pool._watcher.processes:
            pool._watcher.round()
        if pool._trouble is not None:
            raise Broken(f"the worker would end: {pool._trouble}")
        pool._starts.failures, pool._starts.at = 0, 0.0  # it need not wait
        pool._watcher.round()
        if len(pool._watcher.processes) != 1:
            raise Broken("no other was started")

    def _talk_alone(self, attempts: list[Attempt], chance: random.Random) -> None:
        runner = self.alone
        runner.start(attempts)
        while not runner._watcher.processes:
            runner._watcher.round()
        [one] = runner._watcher.processes
        runner.request_stack(attempts[0])
        self._feed(
            self._isolated_end,
            Frames(chance, ALONE, [(0, attempts[0].held)]),
            runner._watcher.round,
            lambda: bool(runner._watcher.processes),
        )
        while runner._watcher.processes:
            runner._watcher.round()
        for _ in range(REQUESTS):  # all that it asked for is answered
            if not one.requests.acquire(timeout=TIMEOUT):
                raise Broken("a request was never answered")

    def _feed(self, nobody: Nobody, frames: Frames, turn: Callable[[], None], lives: Callable[[], bool]) -> None:
        for data in islice(frames, FRAMES):
            self.frames += 1
            if not nobody.send(data, turn) or not lives():
                break
        nobody.close()
