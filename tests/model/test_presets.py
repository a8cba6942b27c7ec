"""Presets: exact to the number, and below everything that sets a single value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, presets
from holdfast.errors import BadSettings
from holdfast.model.mapping import mapping_of
from holdfast.model.presets import PRESETS
from holdfast.model.retry import Fixed
from holdfast.settings import load_settings, sources

WAITS: dict[str, list[float]] = {  # after the 1st, 2nd, … empty poll
    "site-audit": [5, 5, 5, 5],
    "recording": [5, 5, 7.5, 11.25, 16.875, 25.3125, 30, 30],
    "claim-check": [1.5, 1.5, 1.5],
    "crawl": [5, 5, 5],
    "docgen": [15, 15, 15],
}
LEASES = {  # lease, heartbeat
    "site-audit": (300, 30), "recording": (300, 30), "claim-check": (600, 150), "crawl": (120, 10), "docgen": (120, 30)
}  # fmt: skip
CLAIMS = {"site-audit": (1, 1), "recording": (1, 1), "claim-check": (1, 1), "docgen": (50, 8)}  # size, at once
# Seconds that running jobs get when a worker is told to stop: none, they are released; as long as they need; or until
# the next checkpoint.
GRACE = {"site-audit": 0, "recording": 3600, "claim-check": 0, "crawl": 25, "docgen": 0}
ATTEMPTS = {"site-audit": 3, "recording": 3, "claim-check": 3, "crawl": 3, "docgen": 4}


def load(directory: Path, environment: dict[str, str] | None = None, **arguments: Any) -> Any:
    return load_settings(directory=directory, environment=environment or {}, **arguments)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_numbers_of_the_systems_it_stands_for(name: str, tmp_path: Path) -> None:
    settings = load(tmp_path, preset=name)
    assert [settings.backoff.wait(n) for n in range(1, len(WAITS[name]) + 1)] == WAITS[name]
    assert (settings.lease, settings.heartbeat) == LEASES[name]
    assert settings.quarantine_after == 0
    assert settings.grace == GRACE[name]
    assert settings.after_job_delay == (0.5 if name == "claim-check" else 0)
    if name in CLAIMS:
        assert (settings.claim_size, settings.concurrency, settings.threads) == (*CLAIMS[name], CLAIMS[name][1])
    hf = Holdfast(f"sqlite:///{tmp_path}/x.db", preset=name)

    @hf.task
    def work() -> None: ...

    assert work._defaults.max_attempts == ATTEMPTS[name]
    assert work._defaults.priority == 0, "first in, first out, unless a job says otherwise"
    assert work._defaults.retry == Fixed((60, 300, 900) if name == "docgen" else (0,))
    assert work._defaults.isolation == ("process" if name == "crawl" else None)


def test_single_values_override_a_preset(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("preset = 'crawl'\npoll_max = 60\n")
    settings = load(tmp_path, {"HOLDFAST_CLAIM_SIZE": "4"}, quarantine_after=2)
    assert (settings.preset, settings.poll_base, settings.poll_max) == ("crawl", 5, 60)
    assert (settings.claim_size, settings.quarantine_after) == (4, 2)
    assert load(tmp_path, {"HOLDFAST_PRESET": "docgen"}).claim_size == 50
    assert load(tmp_path, lease=20.0).heartbeat == 5, "the preset's heartbeat belongs to its own lease"
    places = sources(directory=tmp_path, environment={}, quarantine_after=2)
    assert (places["poll_base"], places["poll_max"], places["quarantine_after"]) == (
        "preset crawl", "holdfast.toml", "argument",
    )  # fmt: skip


def test_a_task_overrides_what_the_preset_says_of_tasks(tmp_path: Path) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path}/x.db", preset="crawl")

    @hf.task(max_attempts=7, isolation=None)
    def work() -> None: ...

    assert (work._defaults.max_attempts, work._defaults.isolation, work._defaults.retry) == (7, None, Fixed((0.0,)))


def test_a_preset_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"no preset 'crawler' \(in HOLDFAST_PRESET\): there are site-audit, rec"):
        load(tmp_path, {"HOLDFAST_PRESET": "crawler"})
    with pytest.raises(BadSettings, match="no preset 'x': there are"):
        Holdfast("sqlite:///x.db", preset="x")


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if preset.table])
def test_the_table_of_a_preset_is_a_mapping(name: str) -> None:
    table = dict(PRESETS[name].table or {})
    mapping = mapping_of(table.pop("table"), table)
    assert mapping.lease == LEASES[name][0]
    assert mapping.max_attempts == ("max_retries" if name == "crawl" else 3)
    assert mapping.renew == (name != "claim-check"), "a claim holds for ten minutes from when it was made"


@pytest.mark.parametrize("name", ["audits", "execution_jobs", "analysis_jobs", "crawl_jobs"])
def test_the_tables_of_presets_are_adopted_by_name(name: str, tmp_path: Path) -> None:
    hf = Holdfast(f"sqlite:///{tmp_path}/x.db")
    table = hf.adopt(**getattr(presets, name) | {"queue": "old"})
    assert (table.name, table.mapping.table, table.mapping.queue) == (name, name, "old")
