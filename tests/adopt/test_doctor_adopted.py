"""What the doctor says of adopted tables: everything at once, each with its fix."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast import Holdfast
from holdfast.doctor import Finding, Level, Thresholds, examine
from holdfast.errors import StoreError
from holdfast.model.mapping import Mapping, mapping_of
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.adopt.live_table import STATES, LiveTable, live_table


@pytest.fixture
def audits(kept: Store, settings: Settings) -> Iterator[LiveTable]:
    with live_table(settings) as table:
        yield table


@pytest.fixture
def mapping(audits: LiveTable) -> Mapping:
    return mapping_of(
        audits.name,
        {
            "states": STATES, "heartbeat_at": "last_heartbeat", "run_at": "scheduled_at", "attempts": "retry_count",
            "worker": "processing_worker_id",
        },
    )  # fmt: skip


@pytest.fixture
def adopted(kept: Store, audits: LiveTable, mapping: Mapping) -> LiveTable:
    kept.adopted.install(mapping)
    return audits


def told(settings: Settings, mappings: dict[str, Mapping] | None = None, **limits: float) -> list[Finding]:
    """What it says of adopted tables."""
    found = examine(settings, Thresholds(**limits), mappings)  # type: ignore[arg-type]
    return [finding for finding in found if finding.code.startswith("HF45")]


def complaints(settings: Settings, mappings: dict[str, Mapping] | None = None, **limits: float) -> list[Finding]:
    found = [finding for finding in told(settings, mappings, **limits) if finding.level is not Level.OK]
    assert all(finding.meaning and finding.fix for finding in found)
    return found


def test_where_nothing_is_adopted_it_says_so(kept: Store, settings: Settings) -> None:
    [only] = told(settings)
    assert (only.code, only.level, only.found) == ("HF4501", Level.OK, "no table is adopted")


def test_a_sound_table_is_clean_and_every_check_is_told(
    settings: Settings, adopted: LiveTable, mapping: Mapping
) -> None:
    adopted.add("completed")
    adopted.add("draft")
    others = [finding for finding in examine(settings) if finding.code[:4] != "HF45" and finding.level is not Level.OK]
    assert {finding.code for finding in others} <= {"HF4002", "HF4404"}, "nothing else minds"
    found = told(settings, {"audits": mapping})
    assert {finding.level for finding in found} == {Level.OK}, found
    assert [finding.code for finding in found] == ["HF4505", "HF4502", "HF4501", "HF4503", "HF4504"]
    assert "left alone" in found[3].found
    assert "1 'draft'" in found[3].found


def test_rows_that_nothing_leads_out_of_are_counted(
    kept: Store, settings: Settings, adopted: LiveTable, engine: str
) -> None:
    adopted.add(retry_count=3)
    adopted.add(retry_count=7)
    adopted.add("processing")
    adopted.add(scheduled_at="2999-01-01 00:00:00")
    adopted.add("PENDING")
    if engine == "sqlite":
        adopted.add(scheduled_at="soon")
    spent, leaseless, unreachable, misspelt = complaints(settings)
    assert {one.code for one in (spent, leaseless, unreachable, misspelt)} == {"HF4503"}
    assert "retry_count says that its attempts are used up" in spent.found
    assert "(2 rows)" in spent.found
    assert "last_heartbeat is empty" in leaseless.found
    assert "(1 row)" in leaseless.found
    assert "scheduled_at lies more than ten years ahead" in unreachable.found
    assert ("(2 rows)" if engine == "sqlite" else "(1 row)") in unreachable.found
    assert "'PENDING', which is not quite 'pending'" in misspelt.found


def test_rows_without_a_status_are_counted(kept: Store, settings: Settings, engine: str) -> None:
    with live_table(settings, "text") as table:
        kept.adopted.install(mapping_of(table.name, {"states": STATES}))
        table("insert into {t} (id, url, status) values (1, 'x', null)")
        [empty] = complaints(settings)
    assert "status is empty: the row is no job (1 row)" in empty.found


def test_a_suspended_table_is_named(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    kept.adopted.suspend("audits")
    [named] = complaints(settings)
    assert (named.code, named.level) == ("HF4502", Level.WARNING)
    assert "holdfast adopt audits --resume" in named.fix


def test_a_dropped_trigger_is_told(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    live = kept.adopted.describe(adopted.name)
    assert live.triggers
    for trigger in live.triggers:
        adopted(f'drop trigger "{trigger}"' + (" on {t}" if adopted.schema else ""))
    found = complaints(settings)
    assert {finding.code for finding in found} == {"HF4501"}
    assert any("trigger" in finding.found for finding in found)


@pytest.mark.parametrize("engine", ["postgres"])
def test_a_disabled_trigger_is_told(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    """Its rows are still worked, as workers look along the table; only later."""
    adopted("alter table {t} disable trigger user")
    found = complaints(settings)
    assert {(finding.code, finding.level) for finding in found} == {("HF4501", Level.WARNING)}
    assert all("is disabled" in finding.found and "enable trigger" in finding.fix for finding in found)


def test_a_column_that_is_gone_is_an_error(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    kept.adopted.suspend("audits")
    adopted("alter table {t} rename column scheduled_at to later_at")
    errors = [finding for finding in complaints(settings) if finding.level is Level.ERROR]
    assert [finding.code for finding in errors] == ["HF4501"]
    assert "scheduled_at" in errors[0].found


def test_of_a_renamed_column_one_thing_is_said(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    adopted.add()
    adopted("alter table {t} rename column last_heartbeat to beat_at")
    with contextlib.suppress(StoreError):
        kept.adopted.settle("audits")  # a worker finds that it can't be written
    [error] = [one for one in complaints(settings) if one.code == "HF4501"]
    assert (error.level, error.fix) == (Level.ERROR, "Name another column, or leave heartbeat_at out")


def test_heartbeats_too_far_apart_for_its_lease_are_an_error(settings: Settings, adopted: LiveTable) -> None:
    [only] = complaints(replace(settings, lease=400.0, heartbeat=110.0))
    assert (only.code, only.level, only.fix) == ("HF4501", Level.ERROR, "Set heartbeat to 75 or less")


def test_a_table_that_is_gone_is_an_error(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    adopted("drop table {t}")
    errors = [finding for finding in complaints(settings) if finding.level is Level.ERROR]
    assert [finding.code for finding in errors] == ["HF4501"]
    assert "audits" in errors[0].found


def test_code_that_maps_it_otherwise_is_an_error(settings: Settings, adopted: LiveTable, mapping: Mapping) -> None:
    other = mapping_of(adopted.name, {"states": STATES, "lease": 60.0, "heartbeat_at": "last_heartbeat"})
    [drift] = complaints(settings, {"audits": other})
    assert (drift.code, drift.level) == ("HF4505", Level.ERROR)
    assert "run_at, attempts, worker, lease" in drift.found
    assert drift.fix == "Run: holdfast adopt audits --app APP"


def test_a_table_that_only_the_code_knows_is_told(kept: Store, settings: Settings, audits: LiveTable) -> None:
    with Holdfast(settings.url, schema=settings.schema) as app:
        app.adopt(audits.name, states=dict(STATES))
        [missing] = [one for one in app.doctor() if one.code == "HF4505"]
    assert missing.level is Level.WARNING
    assert "nobody has adopted it" in missing.found


def test_outcomes_that_are_owed_for_long_are_told(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    """A handler ended while its table was suspended, and the table never came back."""
    adopted.add()
    kept.adopted.settle("audits")
    settings = replace(settings, lease=20.0)
    with Holdfast(settings.url, schema=settings.schema) as app:

        @app.task(name="audits", queue="audits")
        def work(row: dict[str, object]) -> None:
            app.store.adopted.suspend("audits")

        app.drain(["audits"])
    assert [finding.code for finding in complaints(settings)] == ["HF4502"]
    late = [finding for finding in complaints(settings, owed=-1.0) if finding.code == "HF4504"]
    assert [finding.level for finding in late] == [Level.WARNING]
    assert "1 row not told what became of their job" in late[0].found
    assert adopted.statuses() == ["processing"]
    kept.adopted.resume("audits")
    kept.adopted.settle("audits")
    assert adopted.statuses() == ["completed"]
    assert complaints(settings, owed=-1.0) == []


@pytest.mark.parametrize("engine", ["postgres"])
def test_changes_that_nobody_takes_up_are_told(kept: Store, settings: Settings, adopted: LiveTable) -> None:
    adopted.add()
    [late] = [finding for finding in complaints(settings, unsettled=-1.0) if finding.code == "HF4504"]
    assert "1 row changed by others and not taken up" in late.found
    kept.adopted.settle("audits")
    assert complaints(settings, unsettled=-1.0) == []
