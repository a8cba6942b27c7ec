"""The instruments, each against what is known by other means."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bench import bars, enqueue, growth, idle
from bench.app import hf
from bench.drain import drain
from bench.importing import import_ms
from bench.isolated import isolated_job_ms
from bench.latency import percentiles
from bench.readings import Readings
from bench.target import PostgresTarget, Target, opened
from bench.workers import WorkerProcess, wait_until
from holdfast.errors import HoldfastError
from tests.crash.fleet import children_of
from tests.servers import shared_postgres


@pytest.fixture
def target(engine: str) -> Iterator[Target]:
    with opened(engine, shared_postgres()) as target:
        yield target


def test_a_drain_is_timed_from_the_first_start_to_the_last_finish(target: Target) -> None:
    target.fill(20)  # worked, too, but not counted
    ids = target.fill(80)
    drained = drain(target, ids)
    jobs = [hf.store.reads.get(str(id)) for id in ids]
    assert {job.state for job in jobs} == {"succeeded"}
    began = min(job.started_at for job in jobs if job.started_at)
    ended = max(job.finished_at for job in jobs if job.finished_at)
    assert drained.rate == pytest.approx(80 / (ended - began).total_seconds())


def test_a_process_of_its_own_costs_some_milliseconds_a_job(target: Target) -> None:
    assert 10 < isolated_job_ms(target, 3) < 10_000
    assert target.rows("select count(*) from @jobs where state = 'succeeded'") == [(3,)]


def test_an_import_costs_some_milliseconds_and_leaves_no_compiled_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    assert 5 < import_ms(1) < 10_000
    assert list(tmp_path.iterdir()) == []


def test_growth_tells_how_much_of_a_rate_or_a_time_is_kept_pair_by_pair() -> None:
    readings = Readings()
    for fresh, crowded in ((100.0, 90.0), (10.0, 10.0), (50.0, 40.0)):
        growth._compare("both", {"drain": fresh, "claim_ms": crowded}, {"drain": crowded, "claim_ms": fresh}, readings)
    medians = readings.medians()
    assert medians["drain_with_1m_both_to_fresh"] == medians["claim_ms_with_1m_both_to_fresh"] == 0.9


def test_a_target_beside_another_leaves_it_as_it_is(target: Target) -> None:
    target.fill(3)
    with target.beside() as other:
        other.fill(2)
        assert other.rows("select count(*) from @jobs") == [(2,)]
        target.use()
        assert target.rows("select count(*) from @jobs") == [(3,)]
        assert target.fill(1)[0] == 4
        other.use()
        assert other.fill(1)[0] == 3
    assert target.fill(1)[0] == 5


def test_a_target_begins_anew(target: Target) -> None:
    ids = target.fill(3)
    assert target.unfinished(ids) == 3
    assert not target.is_finished(ids[-1])
    target.fresh()
    assert target.rows("select count(*) from @jobs") == [(0,)]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_no_schema_is_left_behind(target: PostgresTarget) -> None:
    query = "select count(*) from pg_namespace where nspname like 'bench\\_%'"
    with psycopg.connect(target.url) as db:
        before = db.execute(query).fetchone()
        target.close()
        after = db.execute(query).fetchone()
    assert before is not None
    assert after == (before[0] - 1,)
    target.__init__(target.url, own_server=False)  # type: ignore[misc]


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_enqueuers_that_shall_not_notify_do_not(target: PostgresTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue, "ENQUEUERS", 1)
    target.fresh()
    with enqueue.enqueuers() as one, psycopg.connect(target.url, autocommit=True) as listener:
        channel: str = hf.store.wakeups.channel  # type: ignore[attr-defined]
        listener.execute(enqueue.listen_everywhere(hf.store.wakeups))

        def heard(*, notify: bool) -> int:
            one.rate(10, notify=notify)
            listener.execute("select pg_notify(%s, 'end')", (channel,))
            return len(list(iter(lambda: next(listener.notifies()).payload, "end")))

        assert heard(notify=False) == 0
        assert heard(notify=True) > 0


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_a_worker_that_ended_is_not_waited_for(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_CONCURRENCY", "0")
    worker = WorkerProcess()
    with pytest.raises(HoldfastError, match="concurrency must be 1 or more"):
        wait_until(lambda: False, [worker])
    worker.stop()


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("processes", [0, 2])
def test_a_workers_cpu_time_is_that_of_its_processes(target: Target, processes: int) -> None:
    worker = WorkerProcess(processes=processes)
    try:
        wait_until(lambda: bool(hf.store.workers.all()), [worker])
        pids = [worker.pid, *children_of(worker.pid)]
        assert len(pids) == 1 + processes
        before, found, after = kernels_view(pids), worker.cpu_seconds(), kernels_view(pids)
        assert before - 0.1 <= found <= after + 0.1
        assert found > 0.05
    finally:
        worker.stop()


def kernels_view(pids: list[int]) -> float:
    stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(fields[11]) + int(fields[12]) for fields in stats) / os.sysconf("SC_CLK_TCK")


def test_statements_of_new_sessions_are_counted_on_a_private_server() -> None:
    with opened("postgres", None) as target:
        assert isinstance(target, PostgresTarget)
        with idle._logging(target):
            before = idle._logged(target)
            assert before is not None
            with psycopg.connect(target.url, autocommit=True) as db:
                for n in range(3):
                    db.execute("select %s::int", (n,))
                db.execute("begin")
                db.execute("commit")
            assert idle._logged(target) == before + 5
        with psycopg.connect(target.url, autocommit=True) as db:
            db.execute("select 1")
        assert idle._logged(target) == before + 5


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
def test_settings_of_a_foreign_server_are_left_alone(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "SETTLE", 0.0)
    assert idle.idle(target, 0.1)["idle_statements_per_minute"] is None


def test_percentiles_and_medians() -> None:
    assert percentiles([float(n) for n in range(101)], 50, 95, 99) == {"p50": 50, "p95": 95, "p99": 99}
    readings = Readings()
    for reading in (3.0, 1.0, 7.0):
        readings.add("rate", reading)
        readings.add("ms", {"p50": reading * 10})
    assert readings.medians() == {"rate": 3.0, "ms": {"p50": 30.0}}
    assert readings.spread() == {"rate": {"min": 1.0, "max": 7.0}, "ms": {"p50": {"min": 10.0, "max": 70.0}}}


def test_a_bar_is_reached_or_not_or_not_measured() -> None:
    figures = {"drain": 120.0, "raw_cycle": 100.0, "idle_statements_per_minute": 6.5, "drain_fresh": None}
    found = bars.bars("postgres", figures)
    assert found["drain_to_raw_cycle"] == {
        "text": "drain / raw cycle", "figure": 1.2, "bar": ">= 1.2", "reached": True,
    }  # fmt: skip
    assert bars.bars("postgres", figures | {"drain": 119.0})["drain_to_raw_cycle"]["reached"] is False
    assert bars.bars("sqlite", figures | {"drain": 30.0})["drain_to_raw_cycle"]["reached"] is True
    assert found["idle_statements"]["reached"] is False
    assert found["drain_with_1m_finished"]["reached"] is None
    assert found["pinned_snapshot"]["reached"] is None
    assert "enqueue_bulk_to_raw_copy" not in bars.bars("sqlite", figures)
    assert "idle_statements" not in bars.ratios("postgres", figures)
