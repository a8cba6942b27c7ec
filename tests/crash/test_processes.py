"""Handlers in processes of their own: what happens to them happens to nobody else."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise

import psycopg
import pytest

from holdfast.model.job import AttemptRecord
from holdfast.model.lifecycle import State
from tests.crash.fleet import Fleet, children_of, lives, wait_until

CYCLES = int(os.environ.get("HOLDFAST_CHAOS", "6"))  # shutdowns on each engine; `make chaos-stops` has many more


def test_the_worker_itself_imports_no_application_and_runs_no_handler(fleet: Fleet) -> None:
    fleet.enqueue("quick", 20)
    fleet.enqueue("aquick", 20)
    worker = fleet.start(processes=2)
    fleet.await_states(succeeded=40)
    runners = fleet.runners(worker)
    assert len(runners) == 2
    assert {trace.pid for trace in fleet.traces("start")} <= set(runners)
    assert fleet.importers() == set(runners)
    fleet.stop(worker)
    assert not any(lives(pid) for pid in runners)


def test_with_processes_0_the_worker_itself_imports_the_application_and_runs_its_handlers(fleet: Fleet) -> None:
    fleet.enqueue("quick", 5)
    worker = fleet.start(processes=0)
    fleet.await_states(succeeded=5)
    assert {trace.pid for trace in fleet.traces("start")} == fleet.importers() == {worker.pid}
    fleet.stop(worker)


def seconds_of(attempt: AttemptRecord) -> float:
    """How long it took until its end was recorded, by the database's clock."""
    assert attempt.started_at is not None
    return (attempt.ended_at - attempt.started_at).total_seconds()


@pytest.mark.parametrize("how", ["exit", "SIGSEGV", "SIGKILL"])
def test_a_crash_is_charged_at_once_and_said_in_words(fleet: Fleet, how: str) -> None:
    worker = fleet.start(processes=1, lease=240.0)
    [id] = fleet.enqueue("die", how=how, max_attempts=2)
    fleet.await_states(failed=1)
    job = fleet.job(id)
    attempts = fleet.store.reads.attempts(id)
    cause = "exited with status 3" if how == "exit" else f"was ended by {how}"
    assert [(a.outcome, a.error_code) for a in attempts] == [("crashed", "CRASHED")] * 2
    assert max(seconds_of(a) for a in attempts) < 5.0, "long before its lease of 240 s ends"
    assert attempts[0].error_message == f"its runner process {cause} while it ran"
    assert job.error_message == f"Job crashed and exceeded max retries; the last time its runner process {cause}"
    fleet.stop(worker)


def test_a_crash_says_how_far_the_work_was(fleet: Fleet) -> None:
    worker = fleet.start(processes=1)
    [id] = fleet.enqueue("die", how="exit", after=2.0, reached=3, max_attempts=1)
    fleet.await_states(failed=1)
    [attempt] = fleet.store.reads.attempts(id)
    assert "exited with status 3 (at 3 of 10)" in (attempt.error_message or "")
    fleet.stop(worker)


def test_three_crashes_in_a_row_quarantine_the_job(fleet: Fleet) -> None:
    worker = fleet.start(processes=1)
    [id] = fleet.enqueue("die", how="exit", max_attempts=10)
    fleet.await_states(failed=1)
    assert fleet.job(id).error_code == "QUARANTINED"
    assert len(fleet.traces("start", id)) == 3
    fleet.stop(worker)


def test_a_runners_death_changes_only_the_jobs_that_it_held(fleet: Fleet) -> None:
    """What ran there runs again at once, uncharged; what ran elsewhere is not disturbed."""
    door = fleet.home / "door"
    ids = fleet.enqueue("ahold", 8, until=str(door))
    worker = fleet.start(processes=2)
    fleet.await_starts(8)
    where = {trace.job: trace.pid for trace in fleet.traces("start")}
    victim, _ = sorted(set(where.values()))
    os.kill(victim, signal.SIGKILL)
    lost = {id for id in ids if where[id] == victim}
    wait_until(
        lambda: {a.job_id for id in ids for a in fleet.store.reads.attempts(id)} == lost, what="the loss is told"
    )
    for id in lost:
        assert [(a.outcome, a.error_code) for a in fleet.store.reads.attempts(id)] == [("lost", "LOST")]
    door.touch()
    fleet.await_states(succeeded=8)
    for job in fleet.jobs():
        assert (job.attempt, job.crashes) == (1, 0)
        if job.id not in lost:
            assert len(fleet.traces("start", job.id)) == 1
    assert all(trace.pid != victim for trace in fleet.traces("end"))
    fleet.stop(worker)


def test_eighty_jobs_of_a_dead_runner_are_done_again_within_five_seconds(fleet: Fleet) -> None:
    ids = fleet.enqueue("doze", 80, seconds=0.5)
    worker = fleet.start(processes=1)
    fleet.await_starts(80)
    [victim] = {trace.pid for trace in fleet.traces("start")}
    killed = datetime.now(UTC)
    os.kill(victim, signal.SIGKILL)
    fleet.await_states(succeeded=80)
    ended = [job.finished_at for job in fleet.jobs(ids) if job.finished_at is not None]
    assert (max(ended) - killed).total_seconds() < 5
    assert {(job.attempt, job.crashes) for job in fleet.jobs()} == {(1, 0)}
    fleet.stop(worker)


def test_the_second_time_in_a_row_each_runs_in_a_process_of_its_own(fleet: Fleet) -> None:
    door = fleet.home / "door"
    ids = fleet.enqueue("ahold", 4, until=str(door))
    worker = fleet.start(processes=1, isolated=4)
    for round in (1, 2):
        fleet.await_starts(4 * round)
        [victim] = {trace.pid for trace in fleet.traces("start")[-4:]}
        os.kill(victim, signal.SIGKILL)
    fleet.await_starts(12)
    assert len({trace.pid for trace in fleet.traces("start")[-4:]}) == 4
    [other] = fleet.enqueue("aquick")
    wait_until(lambda: fleet.job(other).state is State.SUCCEEDED, what="other work goes on beside them")
    door.touch()
    fleet.await_states(succeeded=5)
    for job in fleet.jobs(ids):
        assert (job.attempt, job.crashes, [a.outcome for a in fleet.store.reads.attempts(job.id)]) == (
            1,
            0,
            ["lost"] * 2,
        )
    fleet.stop(worker)


def test_a_poison_job_among_others_is_found_and_they_are_not_blamed(fleet: Fleet) -> None:
    innocent = fleet.enqueue("doze", 10, seconds=0.5) + fleet.enqueue("nap", 3, seconds=0.5)
    [poison] = fleet.enqueue("die", how="exit", after=0.2, max_attempts=10)
    worker = fleet.start(processes=1)
    fleet.await_states(timeout=120, succeeded=13, failed=1)
    assert fleet.job(poison).error_code == "QUARANTINED"
    for job in fleet.jobs(innocent):
        assert (job.state, job.attempt, job.crashes) == (State.SUCCEEDED, 1, 0), fleet.store.reads.attempts(job.id)
    fleet.stop(worker)


def test_the_runners_end_within_a_second_when_the_worker_is_killed(fleet: Fleet) -> None:
    """Even one that holds the GIL, and sees no closed line."""
    fleet.enqueue("grip", seconds=60.0)
    fleet.enqueue("nap", seconds=60.0)
    worker = fleet.start(processes=2)
    fleet.await_starts(2)
    runners = fleet.runners(worker)
    assert len(runners) == 2
    worker.kill()
    wait_until(lambda: not any(lives(pid) for pid in runners), timeout=1.0, what="the runners are gone")


def test_worker_and_runner_killed_together_lose_nothing(fleet: Fleet) -> None:
    ids = fleet.enqueue("nap", 4, seconds=1.0) + fleet.enqueue("quick", 50)
    worker = fleet.start(processes=2)
    fleet.await_starts(4)
    for pid in [*fleet.runners(worker), worker.pid]:
        os.kill(pid, signal.SIGKILL)
    worker.wait()
    second = fleet.start(processes=1)
    fleet.await_states(succeeded=len(ids))
    fleet.stop(second)


def test_leases_hold_while_a_handler_keeps_the_gil(fleet: Fleet) -> None:
    """Thirty seconds of it, with a lease of five."""
    [id] = fleet.enqueue("grip", seconds=30.0)
    worker = fleet.start(processes=1, lease=5.0)
    rescuer = fleet.start(processes=1, lease=5.0)
    fleet.await_states(succeeded=1)
    assert len(fleet.traces("start", id)) == 1
    assert fleet.store.reads.attempts(id) == []
    fleet.stop(worker, rescuer)


def test_a_handler_that_does_not_stop_is_ended_with_its_process(fleet: Fleet) -> None:
    """`timeout` is enforced, and the attempt says so."""
    [id] = fleet.enqueue("overrun")
    worker = fleet.start(processes=1, grace=1.0)
    fleet.await_states(failed=1)
    [attempt] = fleet.store.reads.attempts(id)
    assert (attempt.outcome, attempt.error_code) == ("timed_out", "TIMED_OUT")
    [quick] = fleet.enqueue("quick")
    wait_until(lambda: fleet.job(quick).state is State.SUCCEEDED, what="another process works on")
    fleet.stop(worker)


def test_work_that_does_not_move_is_ended_and_says_so(fleet: Fleet) -> None:
    """The lease says that the process lives, progress that the work moves. A checkpoint is progress."""
    [moves] = fleet.enqueue("creep", seconds=4.0)
    worker = fleet.start(processes=1, grace=0.5)
    fleet.await_states(succeeded=1)
    assert fleet.store.reads.attempts(moves) == []
    [stalls] = fleet.enqueue("creep", seconds=600.0, stalls=True)
    fleet.await_states(succeeded=1, failed=1)
    [attempt] = fleet.store.reads.attempts(stalls)
    assert (attempt.outcome, attempt.error_code) == ("timed_out", "STALLED")
    assert attempt.error_message == "it made no progress for 1.5 s"
    fleet.stop(worker)


def test_a_stopped_runner_is_caught_by_its_progress(fleet: Fleet) -> None:
    [id] = fleet.enqueue("creep", seconds=600.0)
    [other] = fleet.enqueue("nap", seconds=1.0)
    worker = fleet.start(processes=1, grace=0.5)
    fleet.await_starts(2)
    [runner] = fleet.runners(worker)
    os.kill(runner, signal.SIGSTOP)
    wait_until(lambda: fleet.job(id).state is State.FAILED, what="it is found")
    assert fleet.job(id).error_code == "STALLED"
    wait_until(lambda: fleet.job(other).state is State.SUCCEEDED, what="its neighbour runs once more")
    assert [(a.outcome, a.error_code) for a in fleet.store.reads.attempts(other)] == [("released", None)]
    assert not lives(runner)
    fleet.stop(worker)


def test_what_a_handler_forks_hears_signals_as_any_program(fleet: Fleet) -> None:
    [id] = fleet.enqueue("fork")
    worker = fleet.start(processes=1)
    fleet.await_states(succeeded=1)
    assert fleet.job(id).result == b"%d" % -signal.SIGTERM
    fleet.stop(worker)


def test_progress_may_be_any_kind_of_number(fleet: Fleet) -> None:
    [id] = fleet.enqueue("tell", seconds=2.0)
    worker = fleet.start(processes=1)
    fleet.await_states(succeeded=1)
    assert (fleet.job(id).done, fleet.job(id).total) == (1, 7)
    assert fleet.store.reads.attempts(id) == []
    fleet.stop(worker)


def test_a_worker_stops_while_its_runners_start(fleet: Fleet) -> None:
    worker = fleet.launch(processes=2)
    wait_until(lambda: len(children_of(worker.pid)) == 1, what="the first imports the application")
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began > 0.3)
    worker.terminate()
    fleet.await_end(worker, 20)
    wait_until(lambda: fleet.left_behind() == [], what="none is left")


def test_attempts_of_one_colour_go_where_its_slots_are_free(fleet: Fleet) -> None:
    """Long coroutines in one process are no reason to have synchronous jobs wait in another."""
    door = fleet.home / "door"
    fleet.enqueue("ahold", 3, until=str(door))
    worker = fleet.start(processes=2, threads=2)
    fleet.await_starts(3)
    fleet.enqueue("hold", 4, until=str(door))
    fleet.await_starts(7)
    door.touch()
    fleet.await_states(succeeded=7)
    fleet.stop(worker)


def test_a_crash_whose_row_is_locked_just_then_is_told_when_it_is_not(fleet: Fleet) -> None:
    if not fleet.settings.url.startswith("postgres"):
        pytest.skip("SQLite has no locks on rows")
    door = fleet.home / "door"
    [victim], [neighbour] = fleet.enqueue("hold", until=str(door)), fleet.enqueue("ahold", until=str(door))
    worker = fleet.start(processes=1)
    fleet.await_starts(2)
    with psycopg.connect(fleet.settings.url) as holder:
        table = f'"{fleet.settings.schema}".jobs'
        holder.execute(f"select 1 from {table} where id = {int(victim)} for update".encode())
        [runner] = fleet.runners(worker)
        os.kill(runner, signal.SIGKILL)
        wait_until(lambda: fleet.store.reads.attempts(neighbour), what="the other's loss is told")
        assert fleet.store.reads.attempts(victim) == []
    wait_until(lambda: fleet.store.reads.attempts(victim), timeout=10, what="and its own, once it can be")
    door.touch()
    fleet.await_states(succeeded=2)
    fleet.stop(worker)


def test_what_a_handler_started_ends_with_its_runner(fleet: Fleet) -> None:
    """Also a program in a session of its own; and nobody else's."""
    [id] = fleet.enqueue("leave", seconds=600.0)
    worker = fleet.start(processes=1, grace=0.5)
    fleet.await_starts(1)
    [runner] = fleet.runners(worker)
    wait_until(lambda: children_of(runner), what="the program runs")
    [program] = children_of(runner)
    os.kill(runner, signal.SIGKILL)
    wait_until(lambda: not lives(program), what="it is gone")
    fleet.store.operator.cancel(id)
    fleet.stop(worker)
    assert fleet.left_behind() == []


@pytest.mark.parametrize(("verb", "state"), [("cancel", State.CANCELLED), ("pause", State.PAUSED)])
def test_what_people_ask_is_forced_after_the_grace(fleet: Fleet, verb: str, state: State) -> None:
    [id] = fleet.enqueue("nap", seconds=600.0)
    worker = fleet.start(processes=1, grace=1.0)
    fleet.await_starts(1)
    [runner] = fleet.runners(worker)
    getattr(fleet.store.operator, verb)(id)
    wait_until(lambda: fleet.job(id).state is state, what=f"it is {state}")
    wait_until(lambda: not lives(runner), what="its process is gone")
    fleet.stop(worker)


def test_a_neighbour_is_not_ended_for_a_handler_that_does_not_stop(fleet: Fleet) -> None:
    door = fleet.home / "door"
    [stubborn] = fleet.enqueue("nap", seconds=600.0)
    [neighbour] = fleet.enqueue("hold", until=str(door))
    worker = fleet.start(processes=1, grace=0.5)
    fleet.await_starts(2)
    fleet.store.operator.cancel(stubborn)
    wait_until(lambda: len(fleet.runners(worker)) == 2, what="another process takes new attempts")
    [quick] = fleet.enqueue("quick")
    wait_until(lambda: fleet.job(quick).state is State.SUCCEEDED)
    assert fleet.job(stubborn).state is State.RUNNING
    door.touch()
    fleet.await_states(succeeded=2, cancelled=1)
    assert len(fleet.traces("start", neighbour)) == 1
    wait_until(lambda: len(fleet.runners(worker)) == 1, what="the old one is gone")
    fleet.stop(worker)


def test_a_shutdown_gives_back_what_does_not_end_and_leaves_no_process(fleet: Fleet) -> None:
    long = fleet.enqueue("nap", 2, seconds=600.0) + fleet.enqueue("doze", 2, seconds=600.0)
    fleet.enqueue("quick", 30)
    worker = fleet.start(processes=2, grace=0.5)
    wait_until(lambda: len(fleet.traces("end")) == 30 and len(fleet.traces("start")) == 34)
    runners = fleet.runners(worker)
    fleet.stop(worker)
    assert not any(lives(pid) for pid in runners)
    assert fleet.states() == {State.SUCCEEDED: 30, State.QUEUED: 4}
    for job in fleet.jobs(long):
        assert job.attempt == 0
        assert [a.outcome for a in fleet.store.reads.attempts(job.id)] == ["released"]
    assert fleet.sql("select count(*) from {leases}") == [(0,)]


def test_heartbeats_go_on_while_a_worker_drains_for_longer_than_its_lease(fleet: Fleet) -> None:
    """F13b."""
    [id] = fleet.enqueue("nap", seconds=7.0)
    worker = fleet.start(processes=1, lease=2.0, grace=30.0)
    fleet.await_starts(1)
    worker.terminate()
    rescuer = fleet.start(processes=1, lease=2.0)
    fleet.await_end(worker)
    fleet.await_states(succeeded=1)
    assert len(fleet.traces("start", id)) == 1
    fleet.stop(rescuer)


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGTERM, signal.SIGHUP]])
@pytest.mark.usefixtures("a_terminal_to_lose")
def test_signals_to_all_processes_of_a_service_end_it_in_good_order(
    fleet: Fleet, signals: list[signal.Signals]
) -> None:
    """As systemd does: to the worker and to its runners at once. A hang-up behind the other is no second request."""
    ids = fleet.enqueue("nap", 3, seconds=1.0)
    worker = fleet.start(processes=1)
    fleet.await_starts(3)
    for number in signals:
        for pid in [*fleet.runners(worker), worker.pid]:
            os.kill(pid, number)
    fleet.await_end(worker)
    assert worker.returncode == 0
    assert fleet.states() == {State.SUCCEEDED: len(ids)}


def test_an_application_that_cannot_be_imported_is_refused_as_without_processes(fleet: Fleet) -> None:
    environment = fleet.environment(processes=1)
    for place, told in (("tests.crash.nowhere:hf", "there is no module"), ("tests.crash.app:nobody", "nobody")):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", "worker", place], env=environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 2
        assert told in done.stderr
        assert "Traceback" not in done.stderr


def test_a_stream_of_crashes_is_survived(fleet: Fleet) -> None:
    """Runners killed at random moments: nothing is lost, the worker lives."""
    worker = fleet.start(processes=2)
    ids = fleet.enqueue("aquick", 2000) + fleet.enqueue("quick", 200)
    kills = 0
    while fleet.states()[State.SUCCEEDED] < len(ids) // 2 and kills < 4:
        runners = children_of(worker.pid)
        if len(runners) == 2 and len(fleet.traces("start")) > kills * 200:
            with suppress(ProcessLookupError):  # the one before was still listed
                os.kill(runners[kills % 2], signal.SIGKILL)
                kills += 1
    fleet.await_states(timeout=120, succeeded=len(ids))
    assert worker.poll() is None
    assert kills
    fleet.stop(worker)


def test_shutdowns_at_random_moments_lose_nothing_and_leave_no_process(fleet: Fleet) -> None:
    """With jobs longer than the grace time: coroutines, threads that hear nothing, one that holds the GIL."""
    luck = random.Random(5)
    jobs = 0
    for _ in range(-(-CYCLES // 3)):
        jobs += len(fleet.enqueue("aquick", 60) + fleet.enqueue("quick", 20) + fleet.enqueue("heed", 1))
        jobs += len(fleet.enqueue("doze", 2, seconds=600.0) + fleet.enqueue("nap", 2, seconds=600.0))
        jobs += len(fleet.enqueue("grip", seconds=2.0))
        workers = fleet.start_many(3, processes=luck.choice((1, 2)), grace=0.3, concurrency=8)
        for worker in workers:
            moment = time.monotonic() + luck.uniform(0, 0.3)
            wait_until(lambda at=moment: time.monotonic() >= at)  # type: ignore[misc]
            worker.terminate()
        for worker in workers:
            fleet.await_end(worker, 30)
            assert worker.returncode == 0, fleet.log_of(worker)
        states = fleet.states()
        assert set(states) <= {State.QUEUED, State.SUCCEEDED, State.CANCELLED}, states
        assert states.total() == jobs
        assert fleet.sql("select * from {leases} where held > 0") == []
        assert fleet.left_behind() == []
        for job in fleet.jobs():
            if job.state is State.QUEUED:
                assert (job.attempt, job.crashes, job.suspicion) == (0, 0, 0)
                if job.task in ("doze", "nap", "heed"):
                    fleet.store.operator.cancel(job.id)
    last = fleet.start(processes=2)
    wait_until(lambda: not fleet.states()[State.QUEUED] and not fleet.states()[State.RUNNING], timeout=120)
    fleet.stop(last)
    assert set(fleet.states()) == {State.SUCCEEDED, State.CANCELLED}


def test_pids_are_not_kept(fleet: Fleet) -> None:
    """Each runner that ended was reaped."""
    worker = fleet.start(processes=1)
    seen: list[int] = []

    def another_runs() -> bool:
        runners = fleet.runners(worker)  # asked once: one may end between two questions
        return len(runners) == 1 and runners[0] not in seen

    for _ in range(3):
        [runner] = fleet.runners(worker)
        seen.append(runner)
        os.kill(runner, signal.SIGKILL)
        wait_until(another_runs)
    assert all(a != b for a, b in pairwise(seen))
    assert not any(os.path.exists(f"/proc/{pid}") for pid in seen)
    fleet.stop(worker)
