"""Attempts go to a runner process, and what became of them comes back, by the batch: each is still its own."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

from holdfast.model.job import Claimed, ClaimedJob
from holdfast.model.outcome import (
    CODE_LIMIT,
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    Crash,
    Error,
    Outcome,
    returned,
    stopped,
)
from holdfast.runners import pooled_child as child_module
from holdfast.runners.attempt_table import MARKS
from holdfast.runners.base import WorkerLink
from holdfast.runners.pooled_child import PooledChild
from holdfast.runners.pooled_process import PooledProcess
from holdfast.runners.process_pool import ProcessPool
from holdfast.runners.wire import Begin, Channel, Close, Done, Hello, Progressed, Ready, Start, ToWorker, frame
from holdfast.tasks.attempt import NOTE_LIMIT, Attempt
from holdfast.tasks.context import JobContext
from holdfast.worker.in_flight import InFlight
from tests.waiting import wait_until
from tests.work import batch_app
from tests.work.scripted import Bench, held

PATIENCE = 60.0  # seconds: processes take a while to start on a busy machine


class Heard:
    """What a desk is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Attempt, Outcome | Crash | None]] = []

    def finished(self, attempt: Attempt, outcome: Outcome | Crash | None) -> None:
        self.told.append((attempt, outcome))

    def succeeded(self, attempts: list[Attempt], outcomes: list[Outcome]) -> None:
        self.told += zip(attempts, outcomes, strict=True)

    def wait(self, count: int) -> dict[int | str, Outcome | Crash | None]:
        """By job: how so many attempts ended, once each."""
        wait_until(lambda: len(self.told) >= count, timeout=PATIENCE)
        by_job = {attempt.held.id: outcome for attempt, outcome in self.told}
        assert len(by_job) == len(self.told) == count
        self.told.clear()
        return by_job


class Group:
    """A pool of one process with its two runners, and what its desk would be told."""

    def __init__(self) -> None:
        self.pool = ProcessPool(f"{Path(__file__).with_name('batch_app.py')}:hf", processes=1)
        self.heard = Heard()
        self.coroutines, self.threads = self.pool.runners
        self.pool.open(WorkerLink("w1", self.heard, lambda attempt, stack: None))

    @property
    def process(self) -> PooledProcess:
        [process] = self.pool.ready()
        return process

    def loads(self) -> tuple[int, int]:
        return self.process.table.load(is_async=True), self.process.table.load(is_async=False)


@pytest.fixture(scope="module")
def opened() -> Iterator[Group]:
    group = Group()
    yield group
    group.pool.close(time.monotonic() + 10)


@pytest.fixture
def group(opened: Group) -> Group:
    assert opened.loads() == (0, 0)
    assert not opened.heard.told
    return opened


def echoes(ids: range, fence: str, task: str = "echo") -> list[Attempt]:
    return [
        Attempt(ClaimedJob(id, fence, task, "default", json.dumps({"n": id}).encode(), 1, 3), None, 1.0) for id in ids
    ]


def as_told(held: ClaimedJob) -> Outcome:
    n = int(held.id)
    if held.task == "echo" and n % 7 == 6:
        return Outcome("release", n, held.fence, "snoozed", delay=60.0)
    return returned(held, None if held.task == "echo" and n % 3 == 0 else str(n).encode())


def test_each_outcome_is_that_of_its_own_job_and_claim(group: Group) -> None:
    first, second, third = (
        echoes(range(500), "f1"), echoes(range(500, 1000), "f2"), echoes(range(1000, 1050), "f3", "echo_on_thread")
    )  # fmt: skip
    group.coroutines.start(first)
    group.threads.start(third)
    group.coroutines.start(second)
    attempts = [*first, *second, *third]
    outcomes = group.heard.wait(len(attempts))
    assert outcomes == {attempt.held.id: as_told(attempt.held) for attempt in attempts}
    assert all(0 < attempt.started <= attempt.ended for attempt in attempts)
    assert group.loads() == (0, 0)
    assert [runner.waiting_since() for runner in group.pool.runners] == [None, None]


def test_numbers_come_round_in_the_middle_of_a_batch(group: Group) -> None:
    process = group.process
    process.table._next = -(-process.table._next // MARKS) * MARKS + MARKS - 30
    process.table.marks._memory[:] = b"\x02" * MARKS  # as others left them that ended
    attempts = echoes(range(100), "f1")
    group.coroutines.start(attempts)
    assert group.heard.wait(100) == {attempt.held.id: as_told(attempt.held) for attempt in attempts}
    assert [attempt.number % MARKS for attempt in attempts[28:32]] == [MARKS - 2, MARKS - 1, 0, 1]
    assert group.coroutines.waiting_since() is None
    assert all(process.table.marks.has_ended(attempt) for attempt in attempts)


def test_what_a_process_had_is_given_back_if_it_could_not_be_looked_after(
    group: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours costs a process, and no attempt: none may be left in flight for ever."""
    process = group.process
    args = json.dumps({"path": str(tmp_path / "never")}).encode()
    running = [Attempt(ClaimedJob(id, "f1", "until_told", "default", args, 1, 3), None, 1.0) for id in range(4)]
    group.coroutines.start(running)
    wait_until(lambda: all(process.table.marks.runs(attempt) for attempt in running), timeout=PATIENCE)

    def stumble(*_: object) -> None:
        raise RuntimeError("a surprise")

    with monkeypatch.context() as patched:
        patched.setattr(group.pool, "ended", stumble)
        os.kill(process.child.pid, signal.SIGKILL)
        outcomes = group.heard.wait(4)
    assert [outcome.verb for outcome in outcomes.values() if isinstance(outcome, Outcome)] == ["release"] * 4
    wait_until(lambda: len(group.pool.ready()) == 1 and group.process is not process, timeout=PATIENCE)


def test_what_runs_and_what_waits_is_told_apart_and_only_the_latter_comes_back(group: Group, tmp_path: Path) -> None:
    process, path = group.process, tmp_path / "go"
    blocking = [
        Attempt(
            ClaimedJob(id, "f1", "until_told", "default", json.dumps({"path": str(path)}).encode(), 1, 3), None, 1.0
        )
        for id in range(4)
    ]
    waiting = echoes(range(100, 200), "f2")
    process.table._next = -(-process.table._next // MARKS) * MARKS + MARKS - 50  # those that wait go round
    group.coroutines.start(blocking)
    wait_until(lambda: all(process.table.marks.runs(attempt) for attempt in blocking), timeout=PATIENCE)
    assert group.coroutines.waiting_since() is None
    for attempt in waiting:
        attempt.taken = 2.0
    group.coroutines.start(waiting)
    assert group.coroutines.waiting_since() == 2.0
    assert not any(process.table.marks.runs(attempt) or process.table.marks.has_ended(attempt) for attempt in waiting)
    assert group.coroutines.withdraw(60) == []
    back = group.heard.wait(60)
    assert back == {attempt.held.id: None for attempt in waiting[40:]}, "the newest first"
    assert group.loads() == (44, 0)
    assert group.coroutines.waiting_since() == 2.0
    # Whatever is still said of them is of nobody any more.
    group.pool._messages.done(
        process, Done([waiting[-1].number], [1.0], [2.0], [], [(waiting[-2].number, 1.0, 2.0, None)])
    )
    assert not group.heard.told
    assert group.loads() == (44, 0)
    path.touch()
    group.heard.wait(44)
    assert group.loads() == (0, 0)
    assert group.coroutines.waiting_since() is None


def test_one_of_a_batch_can_be_asked_to_stop(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "go"
    args = json.dumps({"path": str(path)}).encode()
    attempts = [Attempt(ClaimedJob(id, "f1", "until_told", "default", args, 1, 3), None, 1.0) for id in range(3)]
    group.coroutines.start(attempts)
    wait_until(lambda: all(group.process.table.marks.runs(attempt) for attempt in attempts), timeout=PATIENCE)
    attempts[1].ask("cancel")
    assert group.heard.wait(1) == {1: stopped(attempts[1].held)}
    path.touch()
    assert group.heard.wait(2) == {id: returned(attempts[id].held, None) for id in (0, 2)}


def test_what_ended_is_told_though_the_loop_is_blocked_since(group: Group, tmp_path: Path) -> None:
    path = tmp_path / "go"
    args = json.dumps({"path": str(path)}).encode()
    [plain] = echoes(range(1), "f1")
    blocking = Attempt(ClaimedJob(1, "f1", "block_until_told", "default", args, 1, 3), None, 1.0)
    group.coroutines.start([plain, blocking])
    assert group.heard.wait(1) == {0: returned(plain.held, None)}
    path.touch()
    assert group.heard.wait(1) == {1: returned(blocking.held, None)}


def test_a_runner_forgets_what_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here in this process, to see what it has in hand."""
    monkeypatch.setattr(child_module, "forks_are_no_runners", lambda *descriptors: None)
    ours, theirs = socket.socketpair()
    child = PooledChild(theirs, batch_app.hf.settings, batch_app.hf._runner_group())
    thread = threading.Thread(target=child.serve)
    channel, said = Channel(ours), list[ToWorker]()
    with ours, theirs, tempfile.TemporaryFile() as shared:
        thread.start()
        assert isinstance(wait_until(lambda: channel.receive() or [])[0], Hello)
        shared.truncate(MARKS)
        socket.send_fds(ours, [frame(Begin("w1"))], [shared.fileno()])
        assert wait_until(lambda: channel.receive() or []) == [Ready()]
        for task in ("echo", "echo_on_thread"):
            ours.sendall(frame(Start(0, 1.0, [attempt.held for attempt in echoes(range(30), "f1", task)])))
            said.clear()
            while sum(len(done.numbers) + len(done.others) for done in said if isinstance(done, Done)) < 30:
                said += wait_until(lambda: channel.receive() or [])
            assert child._in_flight == {}
        ours.sendall(frame(Close(10.0)))
        thread.join(PATIENCE)


def test_what_is_too_much_for_one_frame_comes_in_several() -> None:
    """Results, errors and notes at their limits, of more attempts than a frame may hold."""
    limit, count = 2**20, 3000
    held = [ClaimedJob(number, "f1", "echo", "default", b"{}", 1, 3) for number in range(count)]
    error = Error("E" * CODE_LIMIT, "\N{SNOWMAN}" * MESSAGE_LIMIT, "\N{PILE OF POO}" * TRACEBACK_LIMIT)
    outcomes = [
        returned(one, b"x" * limit) if int(one.id) < 12 else Outcome("fail", one.id, one.fence, "errored", error=error)
        for one in held[:200]
    ]
    ours, theirs = socket.socketpair()
    child = PooledChild(theirs, batch_app.hf.settings, batch_app.hf._runner_group())
    for one, outcome in zip(held, [*outcomes, *(returned(one, None) for one in held[200:])], strict=True):
        attempt = Attempt(one, number=int(one.id), started=1.0, ended=2.0)
        attempt.done, attempt.note = 1, "\N{PILE OF POO}" * NOTE_LIMIT
        if int(one.id) < 200:
            child._outcomes._finished.append((attempt, outcome))
        else:
            child._outcomes._succeeded.append(attempt)
    channel, told, moved = Channel(ours, limit), list[int](), list[int]()
    thread = threading.Thread(target=child._outcomes.flush)
    with ours, theirs:
        thread.start()
        while len(told) < count:
            for message in wait_until(lambda: channel.receive() or []):
                assert isinstance(message, Done | Progressed)
                if isinstance(message, Progressed):
                    moved += [number for number, *_ in message.progress]
                else:
                    told += [*message.numbers, *(number for number, *_ in message.others)]
        thread.join(PATIENCE)
    assert not channel.broken
    assert sorted(told) == sorted(moved) == list(range(count))


def test_an_attempt_shows_no_arguments() -> None:
    """An event loop logs what it calls when that goes wrong."""
    attempt = Attempt(ClaimedJob(7, "f", "echo", "default", b'{"password": "hunter2"}', 2, 3))
    assert repr(attempt) == "<Attempt 2 of job 7: waits>"
    attempt.begin()
    attempt.ask("pause")
    assert repr(attempt) == "<Attempt 2 of job 7: runs, asked to stop: pause>"


def test_an_attempt_leaves_nothing_behind() -> None:
    """It is not looked at by the garbage collector: nothing may lead from it back to it, whatever its handler did."""
    attempt = Attempt(ClaimedJob(1, "f", "echo", "default", b'{"n": 1}', 1, 3))
    context = JobContext(attempt, None, None)
    context.progress(1, total=2, note="password=hunter2")
    assert attempt.progress == (1, 2, "password=***")
    left: list[object] = [attempt.hide, attempt.speed, attempt.interrupt, attempt.remote]
    seen = set()
    while left:
        one = left.pop()
        assert one is not attempt
        if id(one) not in seen and not isinstance(one, type | ModuleType):
            seen.add(id(one))
            left += (one.__closure__ or ()) if isinstance(one, FunctionType) else gc.get_referents(one)


# -- at the desk -------------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch, slots=4)


def ended(bench: Bench, attempts: list[Attempt]) -> None:
    """They ended in one process, and it said so in one frame."""
    for attempt in attempts:
        attempt.started, attempt.ended = attempt.taken + 0.1, attempt.taken + 0.2
    bench.desk.ended.succeeded(attempts, [returned(attempt.held, None) for attempt in attempts])


def test_a_batch_may_be_of_several_claims_and_runners(bench: Bench) -> None:
    bench.desk.add(bench.other)
    bench.store.answers = [Claimed([held(1, "f1"), held(2, "f1")]), Claimed([held(3, "f2", "other")])]
    bench.desk.turn()
    attempts = [*bench.runner.running, *bench.other.running]
    assert (bench.runner.busy, bench.other.busy) == (2, 1)
    ended(bench, attempts[::-1])
    bench.until_idle()
    assert sorted((o.id, o.fence) for o in bench.store.recorded) == [(1, "f1"), (2, "f1"), (3, "f2")]
    assert (bench.runner.busy, bench.other.busy) == (0, 0)
    assert not bench.desk.in_flight.attempts()


def test_what_ended_in_a_batch_counts_once_and_is_not_in_hand_once_it_is_recorded(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(id, "f1") for id in range(4)])]
    bench.desk.turn()
    attempts = list(bench.runner.running)
    ended(bench, attempts[:3])
    assert not bench.desk.idle()
    assert [attempt.held.id for attempt in bench.desk.undecided()] == [3]
    bench.until_idle()
    assert (bench.desk.meters.attempts, bench.runner.busy) == (3, 1)
    assert bench.desk.in_flight.attempts() == attempts[3:]


def test_what_was_given_back_is_not_recorded_as_a_success_as_well(bench: Bench) -> None:
    bench.store.answers = [Claimed([held(1, "f1"), held(2, "f1")])]
    bench.desk.turn()
    stuck, other = bench.runner.running
    bench.desk.mandate.claiming = False
    stuck.started = 1.0
    bench.desk.outbox.give_back(stuck)
    ended(bench, [stuck, other])
    bench.until_idle()
    assert [(o.id, o.verb) for o in bench.store.recorded] == [(1, "release"), (2, "succeed")]


def test_what_is_in_flight_is_kept_by_claim() -> None:
    in_flight = InFlight()
    first, second = ([Attempt(held(id, fence)) for id in (1, 2)] for fence in ("f1", "f2"))
    in_flight.add(first)
    in_flight.add(second)
    assert len(in_flight) == 4
    in_flight.remove([returned(held(1, "f1"), None), returned(held(2, "f2"), None), returned(held(3, "f2"), None)])
    assert in_flight.attempts() == [first[1], second[0]]
    assert list(in_flight.emptied_by([returned(held(1, "f2"), None)])) == ["f2"]
    in_flight.remove([held(2, "f1")])
    assert (len(in_flight), in_flight.has_claim("f1"), in_flight.has_claim("f2")) == (1, False, True)
