"""A job that ends its worker blames itself in the end, not its neighbours (F10, F11). Values that can't be kept hurt
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
    """Starts a worker again whenever it died, as systemd or a container host would."""

    def __init__(self, fleet: Fleet, **settings: float) -> None:
        self._fleet = fleet
        self._settings = settings
        self._stopping = False
        self.deaths = 0
        self.worker: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while not self._stopping:
            self.worker = self._fleet.launch(**self._settings)
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
        wait_until(lambda: fleet.store.workers(), what="a worker lives")
    print(f"\n{supervisor.deaths} deaths")
    assert supervisor.deaths <= DEATHS
    assert (fleet.job(poison).state, fleet.job(poison).error_code) == (State.FAILED, "QUARANTINED")
    assert fleet.job(poison).crashes == 3
    for job in fleet.jobs(innocent):
        assert (job.attempt, job.crashes) == (1, 0), "the deaths they saw were not charged to them"
        assert {a.outcome for a in fleet.store.attempts(job.id)} <= {"lost"}


def test_a_poison_job_with_few_attempts_fails_when_they_are_used_up(fleet: Fleet) -> None:
    """A stale job whose attempts are used up is never claimed again (R5.10)."""
    [poison] = fleet.enqueue("die", how="exit", max_attempts=2)
    with supervised(fleet) as supervisor:
        fleet.await_states(failed=1)
    assert supervisor.deaths == 2
    assert (fleet.job(poison).attempt, fleet.job(poison).error_code) == (2, "CRASHED")


def test_new_work_goes_on_beside_a_poison_job(fleet: Fleet) -> None:
    """Two workers, one poison job: what comes meanwhile is done."""
    fleet.enqueue("die", how="exit", max_attempts=10)
    with supervised(fleet) as one, supervised(fleet) as two:
        fleet.enqueue("doze", 40, seconds=0.2)
        fleet.await_states(timeout=120, succeeded=40, failed=1)
        fleet.enqueue("aquick", 20)
        fleet.await_states(succeeded=60, failed=1)
    assert one.deaths + two.deaths <= DEATHS
    assert {(job.attempt, job.crashes) for job in fleet.jobs() if job.state is State.SUCCEEDED} == {(1, 0)}


def suspects(fleet: Fleet, count: int, times: int) -> list[str]:
    """Jobs that were there together when their worker died, so many times."""
    ids = fleet.enqueue("aquick", count)
    for _ in range(times):
        taken: set[str] = set()
        wait_until(lambda: len(_take(fleet, taken)) == count, what="all are taken")  # noqa: B023 - called at once
        assert len(fleet.store.rescue(by_expiry=False, dead=["dead"])) == count
    return ids


def _take(fleet: Fleet, taken: set[str]) -> set[str]:
    taken |= {str(job.id) for job in claim(fleet.store, 100, tasks=("aquick",), worker="dead").jobs}
    return taken


def test_suspects_run_alone_one_right_after_the_other(fleet: Fleet) -> None:
    ids = suspects(fleet, 12, times=2)
    assert {job.suspicion for job in fleet.jobs(ids)} == {2}, "company is allowed again after a minute only"
    worker = fleet.start()
    fleet.await_states(succeeded=12, timeout=30)
    assert {(job.attempt, job.crashes) for job in fleet.jobs()} == {(1, 0)}
    fleet.stop(worker)


def test_a_worker_with_a_long_job_does_not_stand_still_for_a_suspect(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds back for one that must run alone; but once another worker has run that one, it goes on."""
    monkeypatch.setenv("CRASH_PEEK", "1")
    go = fleet.home / "go"
    ids = suspects(fleet, 2, times=3)
    assert {job.suspicion for job in fleet.jobs(ids)} == {3}, "they wait for an idle worker, as long as it takes"
    fleet.store.hold("task", "aquick")
    busy = fleet.start(host="alpha")
    fleet.enqueue("ahold", until=str(go))
    fleet.await_starts(1)
    fleet.store.let_go("task", "aquick")
    fleet.enqueue("quick")
    other = fleet.start(host="beta")
    fleet.await_states(succeeded=3, running=1)
    fleet.stop(other)
    fleet.enqueue("quick", 30)
    fleet.await_states(succeeded=33, running=1, timeout=40)
    go.touch()
    fleet.await_states(succeeded=34)
    fleet.stop(busy)


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
