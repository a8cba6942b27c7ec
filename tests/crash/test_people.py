"""People and the work of other processes: what they ask reaches a handler within a second, what it saved survives
SIGKILL, and a step that is done stays done."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast.model.lifecycle import State
from holdfast.model.why import Why
from holdfast.store.why import why
from tests.crash.fleet import Fleet, wait_until

WAYS = ("track", "checkpoint", "should_stop", "step", "await")
SOON = 1.0  # seconds
KILLS = 6


def begin(fleet: Fleet, way: str) -> str:
    [id] = fleet.enqueue("aattend") if way == "await" else fleet.enqueue("attend", way=way)
    wait_until(lambda: fleet.traces("start", id), what=f"{way} starts")
    return id


def seconds_until_stopped(fleet: Fleet, id: str, asked: float) -> float:
    wait_until(lambda: fleet.traces("stopped", id), what=f"job {id} stops: {fleet.job(id)}")
    return fleet.traces("stopped", id)[-1].at - asked


@pytest.mark.parametrize("processes", [1, 0])
@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_what_people_ask_reaches_the_handler_of_another_process_within_a_second(
    fleet: Fleet, verb: str, processes: int
) -> None:
    """With the default settings: the next beat would come after five seconds."""
    fleet.start(processes=processes)
    waited = []
    for way in WAYS:
        id = begin(fleet, way)
        asked = time.time()
        assert getattr(fleet.store.operator, verb)(id, "enough for today", "ops") is State.RUNNING
        waited.append(seconds_until_stopped(fleet, id, asked))
        ended = State.PAUSED if verb == "pause" else State.CANCELLED
        wait_until(lambda id=id, ended=ended: fleet.job(id).state is ended, what=f"{way} is {ended}")  # type: ignore[misc]
        job = fleet.job(id)
        assert (job.asked_by, job.asked_why) == ("ops", "enough for today")
        assert job.attempt == (0 if verb == "pause" else 1)
        if verb == "cancel":
            assert job.error_message == "enough for today"
    assert max(waited) < SOON, dict(zip(WAYS, waited, strict=True))


def test_where_nothing_can_be_heard_a_request_is_seen_at_the_next_beat(fleet: Fleet) -> None:
    beat = 1.0
    fleet.start(listen=False, lease=4.0, heartbeat=beat)
    id = begin(fleet, "await")
    asked = time.time()
    fleet.store.operator.cancel(id)
    assert seconds_until_stopped(fleet, id, asked) < beat + SOON


def test_a_paused_job_frees_its_slot_and_goes_on_elsewhere_from_its_checkpoint(fleet: Fleet, tmp_path: Path) -> None:
    first = fleet.start(threads=1)
    [id] = fleet.enqueue("count", until=str(tmp_path / "enough"), max_attempts=1)
    wait_until(lambda: len(fleet.traces(job=id)) > 20)
    fleet.store.operator.pause(id)
    wait_until(lambda: fleet.job(id).state is State.PAUSED)
    [other] = fleet.enqueue("quick")
    wait_until(lambda: fleet.job(other).state is State.SUCCEEDED, what="its slot is free")
    saved = [int(t.what.partition(":")[2]) for t in fleet.traces(job=id) if t.what.startswith("saved:")]
    job = fleet.job(id)
    assert job.checkpoint is not None
    assert job.done in (saved[-1], saved[-1] + 1)  # the last call saved, and never returned
    assert (job.attempt, job.pending) == (0, job.done)
    [depth] = fleet.store.reads.depths()
    assert (depth.pending_running, depth.pending) == (0, job.done)
    fleet.stop(first)
    fleet.start(threads=1)
    (tmp_path / "enough").touch()
    fleet.store.operator.resume(id)
    wait_until(lambda: fleet.job(id).state is State.SUCCEEDED)
    assert fleet.job(id).result == str(job.done).encode()


def test_a_handler_on_a_thread_that_does_not_listen_keeps_its_slot_and_lease_and_why_says_so(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.start(lease=2.0, heartbeat=0.5)
    [id] = fleet.enqueue("hold", until=str(tmp_path / "enough"))
    fleet.await_starts(1)
    holder = fleet.job(id).worker
    fleet.store.operator.cancel(id, "too long", "ops")
    wait_until(lambda: why(fleet.store, id)[-1].details["waits_seconds"] > 6.0, what="three leases pass")
    leased, asked = why(fleet.store, id)
    assert (leased.code, asked.code) == (Why.LEASED, Why.CANCEL_REQUESTED)
    assert "by ops (too long), and has not yet" in asked.text
    assert "keeps its slot and lease until it returns" in asked.text
    job = fleet.job(id)
    assert (job.state, job.worker, len(fleet.traces("start"))) == (State.RUNNING, holder, 1)
    (tmp_path / "enough").touch()
    wait_until(lambda: fleet.job(id).finished)
    assert fleet.job(id).state is State.SUCCEEDED  # recorded before the cancel took effect


@pytest.mark.parametrize("processes", [1, 0])
def test_the_next_attempt_finds_the_newest_checkpoint_whose_call_returned_whenever_its_worker_is_killed(
    fleet: Fleet, tmp_path: Path, processes: int
) -> None:
    """SIGKILL at a random moment, again and again."""
    moments = random.Random(8)
    [id] = fleet.enqueue("count", until=str(tmp_path / "enough"), max_attempts=100)
    for kill in range(KILLS):
        worker = fleet.start(quarantine_after=0, processes=processes)
        wait_until(lambda kill=kill: len(founds(fleet, id)) > kill, what="it is run again")  # type: ignore[misc]
        wait_until(lambda: fleet.traces(job=id)[-1].what.startswith("saved:"), what="it saves")
        time.sleep(moments.uniform(0.0, 0.3))
        fleet.kill(worker)
        assert fleet.store.reads.depths()[0].pending > 0  # nobody runs it, and its work is still counted
    (tmp_path / "enough").touch()
    last = fleet.start(quarantine_after=0, processes=processes)
    wait_until(lambda: fleet.job(id).state is State.SUCCEEDED)
    fleet.stop(last)
    saved = 0
    for trace in fleet.traces(job=id):
        word, _, number = trace.what.partition(":")
        if word == "saved":
            assert int(number) > saved
            saved = int(number)
        elif word == "found":
            assert int(number) in (saved, saved + 1), "a call may have saved without coming to return; none goes back"
    assert len(founds(fleet, id)) == KILLS + 1


def founds(fleet: Fleet, id: str) -> list[str]:
    return [t.what for t in fleet.traces(job=id) if t.what.startswith("found:")]


def test_a_step_that_is_known_to_be_kept_is_not_run_again_whenever_its_worker_is_killed(fleet: Fleet) -> None:
    moments = random.Random(9)
    steps = 150
    [id] = fleet.enqueue("stride", steps=steps, max_attempts=100)
    kills = 0
    while fleet.job(id).state is not State.SUCCEEDED:
        worker = fleet.start(quarantine_after=0)
        wait_until(lambda kills=kills: len(fleet.traces("start", id)) > kills or fleet.job(id).finished)  # type: ignore[misc]
        if kills == KILLS:
            wait_until(lambda: fleet.job(id).state is State.SUCCEEDED)
            break
        time.sleep(moments.uniform(0.05, 0.3))
        fleet.kill(worker)
        kills += 1
    assert kills >= 2, "too quick to be killed"
    kept: set[str] = set()
    effects: Counter[str] = Counter()
    for trace in fleet.traces(job=id):
        word, _, number = trace.what.partition(":")
        if word == "kept":
            kept.add(number)
        elif word == "effect":
            assert number not in kept, f"step {number} was kept, and run again"
            effects[number] += 1
    assert len(effects) == steps
    assert sum(effects.values()) <= steps + kills  # only the one under way when it was killed
    result = fleet.job(id).result
    assert result is not None
    assert result.decode() == str([n * n for n in range(steps)]).replace(" ", "")
    assert [step.name for step in fleet.store.reads.steps(id)] == [f"step {n}" for n in range(steps)]
