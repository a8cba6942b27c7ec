"""Rows in every state, as years of an old system's work have left them: each ends as it should, under us alone."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from holdfast import presets
from tests.adopt.systems import SYSTEMS
from tests.adopt.systems.conftest import MakeApp, MakeSystem
from tests.adopt.systems.system import System
from tests.running import working
from tests.waiting import wait_until

# What a row becomes: its word, and its attempts as the table counts them.
ENDS: dict[str, dict[str, tuple[str, int | None]]] = {
    "audits": {  # failures
        "waiting": ("completed", 0), "tried": ("completed", 1), "used-up": ("completed", 0), "alive": ("completed", 1),
        "dead": ("completed", 2), "last-chance": ("failed", 3), "done": ("completed", 0), "failed": ("failed", 3),
    },
    "execution_jobs": {
        "waiting": ("completed", None), "requeued": ("completed", None), "alive": ("completed", None),
        "dead": ("completed", None), "done": ("completed", None), "failed": ("failed", None),
    },
    "analysis_jobs": {  # claims
        "waiting": ("done", 1), "tried": ("done", 2), "used-up": ("done", 1), "alive": ("done", 2), "dead": ("done", 2),
        "last-chance": ("failed", 3), "done": ("done", 1), "failed": ("failed", 3),
    },
    "crawl_jobs": {  # recoveries
        "waiting": ("completed", 0), "tried": ("completed", 1), "used-up": ("completed", 0), "alive": ("completed", 1),
        "dead": ("completed", 2), "last-chance": ("failed", 2), "done": ("completed", 0), "failed": ("failed", 2),
        "paused": ("paused", 0), "cancelled": ("cancelled", 0),
    },
}  # fmt: skip


@pytest.mark.parametrize("table", SYSTEMS)
def test_rows_in_every_state_end_as_they_should(table: str, make_system: MakeSystem, make_app: MakeApp) -> None:
    system = make_system(table)
    system.leave_rows()
    hf = make_app(table, lease=1.5)
    hf.adopted[table].install()
    with working(hf):
        idle = {system.waiting, system.running}.isdisjoint
        wait_until(lambda: idle(system.status_counts()), table, timeout=60)
    found = by_kind(system)
    assert {kind: (row["status"], row["n"]) for kind, row in found.items()} == ENDS[table]
    assert not system.wrong()
    assert not system.stale()
    results_are_there(table, found)


@pytest.mark.parametrize("table", SYSTEMS)
def test_a_preset_takes_dead_from_living_workers_by_its_own_rule(
    table: str, make_system: MakeSystem, make_app: MakeApp
) -> None:
    system = make_system(table)
    system.leave_rows()
    hf = make_app(table, lease=1.2, table_lease=getattr(presets, table)["lease"])
    hf.adopted[table].install()
    with working(hf):
        wait_until(lambda: by_kind(system)["dead"]["status"] == system.done, "the row of a dead worker")
        assert by_kind(system)["alive"]["status"] == system.running


def by_kind(system: System) -> dict[str, dict[str, Any]]:
    rows = system.db.rows(f"select *, {system.attempts} as n from {system.table}")
    return {row[system.subject].removeprefix("https://").removesuffix(".example"): row for row in rows}


def results_are_there(table: str, found: dict[str, dict[str, Any]]) -> None:
    match table:
        case "audits":
            assert found["waiting"]["score"] == 90
            assert found["done"]["score"] == 87, "what had finished is left as it was"
            assert found["waiting"]["processing_worker_id"] is None
        case "execution_jobs":
            assert found["waiting"]["version"] == 3, "one for the claim, and one for the end"
            assert found["done"]["version"] == 3
            assert found["waiting"]["updated_at"] > found["done"]["updated_at"]
        case "analysis_jobs":
            assert Decimal(str(found["waiting"]["bs_score"])) == Decimal("6.5")
            assert found["waiting"]["model_used"] == "sonar-pro"
            assert found["tried"]["last_error_code"] is None, "it has succeeded since"
            assert found["waiting"]["claim_id"] is None
            assert found["last-chance"]["last_error_code"]
        case "crawl_jobs":
            assert found["last-chance"]["error_message"].startswith("Job crashed and exceeded max retries")
