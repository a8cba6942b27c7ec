"""Each of the four tables, adopted while its own system goes on with it: poller, watchdog, user interface and readers.
Real workers work it with the system's preset, and two of them are killed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model.mapping import Mapping
from tests.adopt.systems import SYSTEMS
from tests.adopt.systems.app import HOLDER, NAME
from tests.adopt.systems.conftest import LEASE, MakeApp, MakeSystem, haste
from tests.adopt.systems.ledger import Ledger, Line
from tests.adopt.systems.proof import assert_each_done_once, assert_in_step, assert_never_two_at_once
from tests.adopt.systems.system import System
from tests.adopt.systems.world import OLD, World
from tests.crash.commands import Command, Commands
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0
ENOUGH = 3  # rows that each side has done beside the other


@pytest.mark.parametrize("table", SYSTEMS)
def test_a_table_is_adopted_and_worked_while_its_system_goes_on(
    table: str,
    make_system: MakeSystem,
    make_app: MakeApp,
    ledger: Ledger,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = make_system(table)
    system.leave_rows()
    world = World(system, ledger)
    hf = make_app(table)
    commands.app(
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.adopt.systems.app import application\n"
        "from tests.adopt.systems.ledger import Ledger\n"
        f"hf = application({table!r}, Ledger({str(ledger.path)!r}), {{}}, lease={LEASE})\n"
    )
    with world.going_on():
        hf.adopted[table].install()
        steady = start(commands, "steady", monkeypatch)
        wait_until(world.claim_and_die, "an old worker to claim and die", timeout=PATIENCE)
        # One after the other: a table without heartbeats shows rows that are held for long as stale.
        for name in (f"{HOLDER}-1", f"{HOLDER}-2"):
            kill_while_it_runs(start(commands, name, monkeypatch), name, world)
        wait_until(lambda: done_by(world, OLD) and done_by(world, "steady"), "both to get work", timeout=PATIENCE)
        world.people_leave()
        wait_until(lambda: world.check() and finished(world), f"all to be done: {table}", timeout=PATIENCE)
        wait_until(lambda: not waiting_to_be_settled(system), "all to be settled", timeout=PATIENCE)
        assert steady.stop(signal.SIGTERM) < PATIENCE
    assert world.snapshots > 20
    assert_never_two_at_once(ledger)
    assert_each_done_once(system, ledger)
    in_step(hf, world, hf.adopted[table].mapping)


def start(commands: Commands, name: str, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv(NAME, name)
    return commands.start(**haste(LEASE), worker_name=name)


def kill_while_it_runs(worker: Command, name: str, world: World) -> None:
    def held() -> list[Line]:
        world.check()
        assert worker.poll() is None, worker.log
        return world.ledger.lines(what="start", who=name)

    [start] = wait_until(held, f"{name} to hold a row", timeout=PATIENCE)
    world.ledger.note("died", start.id, name)
    worker.kill()
    worker.wait()


def done_by(world: World, who: str) -> bool:
    return world.check() and len(world.ledger.lines(what="end", who=who)) >= ENOUGH


def finished(world: World) -> bool:
    counts = world.system.status_counts()
    return not counts.keys() & {world.system.waiting, world.system.running, "paused"}


def waiting_to_be_settled(system: System) -> list[dict[str, Any]]:
    """SQLite has no such list: its triggers settle at once."""
    return system.db.rows("select * from holdfast.inbox") if system.db.engine == "postgres" else []


def in_step(hf: Holdfast, world: World, mapping: Mapping) -> None:
    system = world.system
    ours = "holdfast_jobs" if system.db.engine == "sqlite" else "holdfast.jobs"
    jobs = system.db.rows(f"select source_id, state, owed from {ours} where source is not null")
    assert {line.id for line in world.ledger.lines(what="end", who="steady")} <= {job["source_id"] for job in jobs}
    assert_in_step(system, jobs, {word: state.value for word, state in mapping.meanings.items()})
    assert not waiting_to_be_settled(system)
    assert not hf.store.adopted.check(mapping)
