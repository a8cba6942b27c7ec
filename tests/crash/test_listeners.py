"""What listeners and error hooks of an application hear of its worker, which is another process."""

from __future__ import annotations

import os
import signal
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.model.job import NewJob
from tests.crash.fleet import Fleet, wait_until
from tests.crash.listening import MOOD, PLACE, heard, jobs_of
from tests.running import take_over


@pytest.fixture
def place(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the listeners write."""
    place = fleet.home / "events"
    monkeypatch.setenv(PLACE, str(place))
    return place


def memory_of(pid: int) -> int:
    """Bytes."""
    [pages] = [line.split()[1] for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in line]
    return int(pages) * 1024


@pytest.mark.parametrize("processes", [0, 1, 2])
def test_a_listener_hears_of_every_job_once_and_of_the_workers_start_and_end(
    fleet: Fleet, place: Path, processes: int
) -> None:
    ids = fleet.enqueue("quick", 50) + fleet.enqueue("aquick", 50)
    worker = fleet.start(processes=processes)
    fleet.await_states(succeeded=100)
    wait_until(lambda: len(jobs_of(heard(place, "succeeded"))) >= 100, what="all successes are heard")
    fleet.stop(worker)
    for name in ("claimed", "succeeded"):
        assert sorted(jobs_of(heard(place, name))) == sorted(ids), name
    assert Counter(one.name for one in heard(place, "worker_started", "worker_stopped", "events_dropped")) == {
        "worker_started": 1,
        "worker_stopped": 1,
    }
    assert len({one.pid for one in heard(place)}) == 1, "one process hears all that happens in the worker"


def test_a_killed_runner_is_told_of_to_the_next_one_and_so_is_all_that_follows(fleet: Fleet, place: Path) -> None:
    worker = fleet.start()
    [id] = fleet.enqueue("hold", until=str(fleet.home / "never"), max_attempts=1)
    fleet.await_starts(1)
    [before] = {trace.pid for trace in fleet.traces("start")}
    wait_until(lambda: jobs_of(heard(place, "claimed")) == [id], what="the claim is heard")
    os.kill(before, signal.SIGKILL)
    fleet.await_states(failed=1)
    [after] = fleet.enqueue("quick")
    wait_until(lambda: jobs_of(heard(place, "succeeded")) == [after], what="what follows is heard")
    fleet.stop(worker)
    [ended] = heard(place, "runner_ended")
    assert (ended.fields["pid"], ended.pid != before) == (before, True)
    [errored] = heard(place, "errored")
    assert (errored.fields["job"], errored.fields["error_code"], errored.fields["raised"]) == (id, "CRASHED", False)
    [told] = heard(place, "on_error")
    assert (told.pid, told.fields["job"], told.fields["error"]) == (ended.pid, [id, "hold", 1], "Crashed")
    assert "was ended by SIGKILL" in told.fields["message"]
    assert jobs_of(heard(place, "claimed")) == [id, after]


def test_an_error_that_a_handler_raised_is_heard_once(fleet: Fleet, place: Path) -> None:
    worker = fleet.start()
    [id] = fleet.enqueue("quick", number="no number", max_attempts=1)
    wait_until(lambda: heard(place, "failed"), what="the failure is heard")
    fleet.stop(worker)
    assert [one.fields["job"] for one in heard(place, "errored", "failed")] == [id, id]
    assert [one.fields["job"] for one in heard(place, "on_error")] == [[id, "quick", 1]]


def test_a_lost_lease_is_heard_of_once(fleet: Fleet, place: Path) -> None:
    """Handler and worker both come upon it."""
    worker = fleet.start()
    [id] = fleet.enqueue("count", until=str(fleet.home / "never"))
    wait_until(lambda: fleet.traces("saved:1"), what="it runs")
    with Holdfast(**asdict(fleet.settings)) as app:
        take_over(app, id)
        wait_until(lambda: heard(place, "lease_lost"), what="the loss is heard")
    fleet.stop(worker)
    assert [one.fields["job"] for one in heard(place, "lease_lost")] == [id]
    assert [(one.fields["job"], one.fields["error"]) for one in heard(place, "on_error")] == [
        ([id, "count", 1], "LeaseLost")
    ]


def test_a_listener_that_stands_still_holds_up_nobody_and_is_told_how_much_it_missed(
    fleet: Fleet, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand jobs are done while it is at its first event; the worker does not keep what it may say of them."""
    door = fleet.home / "door"
    monkeypatch.setenv(MOOD, str(door))
    worker = fleet.start()
    wait_until(lambda: heard(place), what="the listener stands still")
    before = memory_of(worker.pid)
    job = NewJob(task="aquick", args=b"{}", correlation_id="c" * 200)
    fleet.enqueue_all([job] * 10_000)
    fleet.await_states(succeeded=10_000)
    assert len(heard(place)) == 1
    assert memory_of(worker.pid) - before < 40 << 20
    door.touch()
    wait_until(lambda: heard(place, "events_dropped"), what="it is told what was dropped")
    fleet.stop(worker)
    assert all(one.fields["count"] > 0 for one in heard(place, "events_dropped"))
    told = Counter(jobs_of(heard(place, "claimed", "succeeded")))
    assert max(told.values()) <= 2
    assert 0 < sum(told.values()) < 20_000
    assert "did not reach the application's listeners" in fleet.log_of(worker)


def test_a_listener_that_stands_still_does_not_keep_the_worker_from_stopping(
    fleet: Fleet, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MOOD, str(fleet.home / "never"))
    worker = fleet.start()
    wait_until(lambda: heard(place), what="the listener stands still")
    fleet.stop(worker)
    assert "did not reach the application's listeners" in fleet.log_of(worker)


def test_a_listener_that_raises_is_logged_once_and_hurts_nobody(
    fleet: Fleet, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MOOD, "raises")
    worker = fleet.start()
    for count in range(1, 4):
        fleet.enqueue("quick")
        fleet.await_states(succeeded=count)
    wait_until(lambda: len(jobs_of(heard(place, "succeeded"))) == 3, what="all are heard all the same")
    fleet.stop(worker)
    assert fleet.log_of(worker).count("a listener failed at event") == 1
