from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from holdfast.errors import BadSettings
from holdfast.settings import MOST_EAGER, QueueSettings, Settings, load_settings, redact


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


# -- what queues set for themselves ---------------------------------------------------------------------------------


def polling(settings: Settings) -> dict[str, float]:
    return {name: getattr(settings, name) for name in MOST_EAGER}


SLOW: QueueSettings = {
    "poll_base": 9.0, "poll_max": 60.0, "poll_multiplier": 3.0, "poll_grace": 0, "after_job_delay": 2.0,
    "claim_size": 1,
}  # fmt: skip
EAGER: QueueSettings = {
    "poll_base": 0.1, "poll_max": 3.0, "poll_multiplier": 1.1, "poll_grace": 5, "after_job_delay": 0.0,
    "claim_size": 50,
}  # fmt: skip


def test_a_worker_of_one_queue_has_that_queues_settings() -> None:
    settings = Settings(lease=60.0, queues={"slow": SLOW, "eager": EAGER, "half": {"poll_max": 7.0}})
    assert polling(settings.serving(["slow"])) == SLOW
    assert polling(settings.serving(["eager"])) == EAGER
    assert polling(settings.serving(["half"])) == polling(settings) | {"poll_max": 7.0}
    assert settings.serving(["slow"]).lease == 60
    for queues in ([], ["other"]):
        assert settings.serving(queues) is settings


@pytest.mark.parametrize("name", MOST_EAGER)
def test_of_several_queues_the_most_eager_counts_setting_by_setting(name: str) -> None:
    mixed: Any = SLOW | {name: EAGER[name]}  # type: ignore[literal-required]
    settings = Settings(**cast(Any, SLOW), queues={"slow": SLOW, "mixed": mixed})
    for queues in (["slow", "mixed"], ["mixed", "slow"], ["mixed", "other"], iter(["other", "mixed"])):
        assert polling(settings.serving(queues)) == mixed


def test_a_queue_without_settings_asks_for_the_workers_own() -> None:
    settings = Settings(**cast(Any, EAGER), queues={"slow": SLOW})
    assert polling(settings.serving(["slow", "other"])) == EAGER


def test_a_claim_size_of_0_is_the_largest() -> None:
    settings = Settings(claim_size=5, queues={"all": {"claim_size": 0}, "few": {"claim_size": 2}})
    assert [settings.serving(["few", *more]).claim_size for more in ([], ["other"], ["all"])] == [2, 5, 0]


def test_queues_can_set_what_their_type_says() -> None:
    assert list(QueueSettings.__annotations__) == list(MOST_EAGER)


def test_settings_of_queues_are_merged_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(
        "[queues.mail]\npoll_base = 2\npoll_max = 5\n[queues.news]\npoll_grace = 1\n"
    )
    given = {"mail": {"poll_max": 9.0}, "files": {"claim_size": 1}}
    assert load(tmp_path, queues=given).queues == {
        "mail": {"poll_base": 2, "poll_max": 9}, "news": {"poll_grace": 1}, "files": {"claim_size": 1},
    }  # fmt: skip
    assert set(load(tmp_path, queues=None).queues) == {"mail", "news"}
    assert given == {"mail": {"poll_max": 9.0}, "files": {"claim_size": 1}}


@pytest.mark.parametrize("file", ["holdfast.toml", "pyproject.toml"])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("queues = 5", r"queues must be settings by queue, and is 5 \(in {file}\): write .* \[queues.mail\]"),
        ("[queues]\npoll_max = 5", r"queues must be settings by queue, and is {{'poll_max': 5}} \(in {file}\)"),
        ("[queues.mail]\npol_max = 5", r"no setting 'queues.mail.pol_max' \(in {file}\): .* can have poll_base"),
        ("[queues.mail]\npoll_max = 'soon'", r"mail.poll_max must be 0 or more .*, and is 'soon' \(in {file}\)"),
        ("[queues.mail]\npoll_grace = 1.5", "setting queues.mail.poll_grace is 1.5 in {file}; it must be of type int"),
        ("[queues.mail]\npoll_max = -1", r"queues.mail.poll_max must not be negative, and is -1.0 \(in {file}\)"),
        ("[queues.'a,b']\npoll_max = 1", r"'a,b' can't be the name of a queue \(in {file}\)"),
        ("'queues.mail.poll_max' = 1", r"there is no setting 'queues.mail.poll_max'.*\(in {file}\)"),
        ("poll_max = -1", r"poll_max must not be negative, and is -1.0 \(in {file}\)"),
    ],
)  # fmt: skip
def test_what_a_queue_cannot_have_is_refused_with_its_place(tmp_path: Path, file: str, text: str, why: str) -> None:
    if file == "pyproject.toml":
        text = text.replace("[queues", "[tool.holdfast.queues") if "[" in text else f"[tool.holdfast]\n{text}"
    (tmp_path / file).write_text(text)
    with pytest.raises(BadSettings, match=why.format(file=file)):
        load(tmp_path)


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
    ("name", "text", "said"),
    [
        (
            "LEASE",
            "90 sec",
            "lease must be 0 or more seconds, .* such as \"90s\", .* and is '90 sec' .in HOLDFAST_LEASE.",
        ),
        ("LEASE", "", "lease must be 0 or more seconds, .* and is '' .in HOLDFAST_LEASE."),
        ("CONCURRENCY", "1.5", "the setting concurrency is '1.5' in HOLDFAST_CONCURRENCY; it must be of type int"),
        ("LISTEN", "maybe", "the setting listen is 'maybe' in HOLDFAST_LISTEN; it must be of type bool"),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(BadSettings, match=said):
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
