"""A job that ends its worker blames itself in the end, not its neighbours. Values that can't be kept hurt
only the job that left them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.model.lifecycle import State
from tests.crash.fleet import Fleet, wait_until
from tests.factories import claim

DEATHS = 10  # at most, until a poison job is alone and has been counted out


class Supervisor:
    """Starts a worker again whenever it died, as systemd or a container host would. Its handlers run in the worker's
    own process: only there can they end it (test_processes has those that end their runner, and where suspects are
    isolated, so that their neighbours lose no attempt)."""

    def __init__(self, fleet: Fleet, **settings: float) -> None:
        self._fleet = fleet
        self._settings = settings
        self._stopping = False
        self.deaths = 0
        self.worker: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stopping:
            self.worker = self._fleet.launch(processes=0, **self._settings)
            while self.worker.poll() is None and not self._stopping:
                threading.Event().wait(0.02)
            self.deaths += not self._stopping

    def __enter__(self) -> Supervisor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()


@contextmanager
def supervised(fleet: Fleet, **settings: float) -> Iterator[Supervisor]:
    with Supervisor(fleet, **settings) as supervisor:
        yield supervisor


@pytest.mark.parametrize(("how", "after"), [("exit", 0.0), ("SIGSEGV", 0.3)])
def test_a_poison_job_is_quarantined_and_its_neighbours_are_not_blamed(fleet: Fleet, how: str, after: float) -> None:
    innocent = fleet.enqueue("doze", 10, seconds=0.5) + fleet.enqueue("nap", 3, seconds=0.5)
    [poison] = fleet.enqueue("die", how=how, after=after, max_attempts=10)
    with supervised(fleet, grace=5.0) as supervisor:
        fleet.await_states(timeout=120, succeeded=13, failed=1)
        wait_until(lambda: fleet.store.workers.all(), what="a worker lives")
    print(f"\n{supervisor.deaths} deaths")
    assert supervisor.deaths <= DEATHS
    assert (fleet.job(poison).state, fleet.job(poison).error_code) == (State.FAILED, "QUARANTINED")
    assert fleet.job(poison).crashes == 3
    for job in fleet.jobs(innocent):
        # "crashed": lost twice, claimed again, and not given back yet when another suspect ended the worker.
        assert {a.outcome for a in fleet.store.reads.attempts(job.id)} <= {"lost", "crashed"}


def test_a_poison_job_with_few_attempts_fails_when_they_are_used_up(fleet: Fleet) -> None:
    """A stale job whose attempts are used up is never claimed again."""
    [poison] = fleet.enqueue("die", how="exit", max_attempts=2)
    with supervised(fleet) as supervisor:
        fleet.await_states(failed=1)
    assert supervisor.deaths == 2
    assert (fleet.job(poison).attempt, fleet.job(poison).error_code) == (2, "CRASHED")


def test_new_work_goes_on_beside_a_poison_job(fleet: Fleet) -> None:
    """Two workers, one poison job: what comes meanwhile is done."""
    [poison] = fleet.enqueue("die", how="exit", max_attempts=10)
    with supervised(fleet) as one, supervised(fleet) as two:
        fleet.enqueue("doze", 20, seconds=0.2)
        fleet.await_states(timeout=120, succeeded=20, failed=1)
        fleet.enqueue("aquick", 20)
        fleet.await_states(succeeded=40, failed=1)
    assert one.deaths + two.deaths <= DEATHS
    assert fleet.job(poison).error_code == "QUARANTINED"


def lost_together(fleet: Fleet, count: int, times: int) -> list[str]:
    """Jobs that were held together by a worker that died, so many times in a row."""
    ids = fleet.enqueue("aquick", count)
    for _ in range(times):
        assert len(claim(fleet.store, count, tasks=("aquick",), worker="dead").jobs) == count
        assert len(fleet.store.rescues.rescue(by_expiry=False, dead=["dead"])) == count
    return ids


def test_jobs_lost_twice_in_a_row_run_in_a_process_each(fleet: Fleet) -> None:
    ids = lost_together(fleet, 12, times=2)
    worker = fleet.start(processes=1)
    [other] = fleet.enqueue("aquick")
    fleet.await_states(succeeded=13, timeout=60)
    assert {(job.attempt, job.crashes) for job in fleet.jobs()} == {(1, 0)}
    where = {trace.job: trace.pid for trace in fleet.traces("start")}
    alone = {where[id] for id in ids}
    assert len(alone) == 12, "each had a process to itself"
    assert where[other] not in alone
    fleet.stop(worker)


UNFIT = ("nul", "huge", "deep", "nan", "surrogate", "integer", "object", "cycle", "raises-nul")


def test_values_that_cannot_be_kept_hurt_only_their_own_job(fleet: Fleet) -> None:
    fleet.enqueue("aquick", 50)
    bad = {kind: fleet.enqueue("poison", kind=kind, max_attempts=1)[0] for kind in UNFIT}
    fleet.enqueue("quick", 50)
    fit = fleet.enqueue("poison", kind="fine")
    worker = fleet.start()
    wait_until(lambda: not fleet.states()[State.QUEUED] and not fleet.states()[State.RUNNING])
    ended = {kind: (fleet.job(id).state, fleet.job(id).error_code) for kind, id in bad.items()}
    for kind, (state, code) in ended.items():
        if kind == "nan":  # it has a JSON form: null
            continue
        assert state is State.FAILED, kind
        assert code == ("ValueError" if kind == "raises-nul" else "RESULT_UNFIT"), kind
        assert fleet.job(bad[kind]).error_message
    assert fleet.job(fit[0]).result == b'"fine"'
    assert {job.state for job in fleet.jobs() if job.id not in bad.values()} == {State.SUCCEEDED}
    assert worker.poll() is None
    fleet.stop(worker)
