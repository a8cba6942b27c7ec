from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import BadSettings
from holdfast.settings import Settings, load_settings, redact


def load(directory: Path, environment: dict[str, str] | None = None, **arguments: Any) -> Settings:
    return load_settings(directory=directory, environment=environment or {}, **arguments)


# -- leases and heartbeats ----------------------------------------------------------------------------------


def test_where_only_the_lease_is_set_the_heartbeat_is_a_quarter_of_it() -> None:
    assert Settings().lease == 20
    assert Settings().heartbeat == 5
    assert Settings(lease=120).heartbeat == 30


@pytest.mark.parametrize(("lease", "heartbeat"), [(300, 30), (120, 10), (30, 10), (3, 1)])
def test_a_lease_of_three_heartbeats_or_more_is_fine(lease: float, heartbeat: float) -> None:
    assert Settings(lease=lease, heartbeat=heartbeat).heartbeat == heartbeat


@pytest.mark.parametrize(("lease", "heartbeat"), [(29.9, 10), (10, 5), (5, 10), (1, 0.34)])
def test_a_lease_of_less_than_three_heartbeats_is_refused_in_one_sentence(lease: float, heartbeat: float) -> None:
    with pytest.raises(BadSettings, match=rf"lease is {lease:g} s and heartbeat {heartbeat:g} s.*at least 3"):
        Settings(lease=lease, heartbeat=heartbeat)


@pytest.mark.parametrize(
    "wrong",
    [
        {"lease": 0}, {"lease": -1}, {"lease": float("nan")}, {"heartbeat": -1}, {"concurrency": 0}, {"threads": -1},
        {"poll_base": -1}, {"grace": -1}, {"max_args": -1}, {"quarantine_after": -1}, {"synchronous": "extra"},
        {"schema": "a b"}, {"schema": 'a"b'}, {"schema": ""}, {"schema": "x" * 42}, {"prefix": "1a"}, {"prefix": "a.b"},
        {"prefix": ""}, {"log_format": "xml"}, {"lease": float("inf")}, {"lease": 1e10}, {"grace": 1e9},
        {"poll_max": 1e12}, {"concurrency": 10**20}, {"threads": 10**6},
    ],
)  # fmt: skip
def test_a_value_that_cannot_work_is_refused_and_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadSettings, match=next(iter(wrong))):
        Settings(**wrong)


def test_the_poll_settings_are_those_of_the_backoff() -> None:
    backoff = Settings(poll_base=5, poll_max=30, poll_multiplier=1.5, poll_grace=2).backoff
    assert [backoff.wait(n) for n in (1, 2, 3)] == [5, 5, 7.5]


# -- where values come from -----------------------------------------------------------------------------------------


def test_arguments_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("lease = 60\nconcurrency = 7\nthreads = 3\n")
    environment = {"HOLDFAST_LEASE": "40", "HOLDFAST_CONCURRENCY": "8", "LEASE": "1"}
    settings = load(tmp_path, environment, lease=80.0, url=None)
    assert (settings.lease, settings.concurrency, settings.threads) == (80, 8, 3)
    assert settings.url == "sqlite:///holdfast.db"


def test_pyproject_serves_where_there_is_no_file_of_our_own(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nlease = 1\n[tool.holdfast]\nlease = 60\nlisten = false\n")
    settings = load(tmp_path)
    assert (settings.lease, settings.listen) == (60, False)
    (tmp_path / "holdfast.toml").write_text("lease = 90\n")
    assert load(tmp_path).lease == 90


def test_no_files_no_environment_are_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path) == Settings()


@pytest.mark.parametrize(
    ("text", "value"), [("1", True), ("true", True), ("TRUE", True), ("0", False), ("False", False)]
)
def test_yes_and_no_in_the_environment(tmp_path: Path, text: str, value: bool) -> None:
    assert load(tmp_path, {"HOLDFAST_LISTEN": text}).listen is value


@pytest.mark.parametrize(
    ("name", "text"), [("LEASE", "soon"), ("CONCURRENCY", "1.5"), ("LISTEN", "maybe"), ("LEASE", "")]
)
def test_a_value_of_the_wrong_kind_is_named(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(BadSettings, match=f"the setting {name.lower()} is {text!r} in HOLDFAST_{name}; "):
        load(tmp_path, {f"HOLDFAST_{name}": text})


def test_an_unknown_setting_in_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("leese = 5\n")
    with pytest.raises(BadSettings, match="there is no setting 'leese'"):
        load(tmp_path)


def test_a_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("lease = = 5")
    with pytest.raises(BadSettings, match=r"holdfast\.toml can't be read"):
        load(tmp_path)


# -- what may be shown ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://usr@db/jobs", "postgresql://usr@db/jobs"),
        ("postgresql://usr:secret@db/jobs", "postgresql://usr:***@db/jobs"),
        ("postgresql://usr:s%40cret@db:5432/jobs", "postgresql://usr:***@db:5432/jobs"),
        ("postgresql://:secret@db/jobs", "postgresql://:***@db/jobs"),
        ("postgresql://usr:sec@ret@db/jobs", "postgresql://usr:***@db/jobs"),
        ("postgresql://usr:se/cret@db/jobs", "postgresql://usr:***@db/jobs"),
        ("postgresql://usr:se:cret@db/jobs", "postgresql://usr:***@db/jobs"),
        ("postgresql+psycopg://usr:secret@db/jobs", "postgresql+psycopg://usr:***@db/jobs"),
        ("postgresql://db/jobs?user=usr&password=secret&x=1", "postgresql://db/jobs?user=usr&password=***&x=1"),
        ("postgresql://db/jobs?sslpassword=secret", "postgresql://db/jobs?sslpassword=***"),
        ("postgresql://db/jobs?PASSWORD=secret", "postgresql://db/jobs?PASSWORD=***"),
        ("postgresql://db/jobs?passfile=/home/usr/secret", "postgresql://db/jobs?passfile=***"),
        ("host=db user=usr password=secret", "host=db user=usr password=***"),
        ("host=db password='sec ret' user=usr", "host=db password=*** user=usr"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redact(url) == shown
    assert Settings(url=url).shown_url == shown
