"""How a table is mapped, in Python and in a settings file, and how its task is declared."""

from __future__ import annotations

import typing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from holdfast import BadArguments, BadSettings, Holdfast, JobContext
from holdfast.adopting import AdoptArguments
from holdfast.model.mapping import Mapping

STATES: dict[str, str | list[str]] = {
    "queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed",
}  # fmt: skip
TOML = """
[adopt.audits]
heartbeat_at = "last_heartbeat"
[adopt.audits.states]
queued = "pending"
running = "processing"
succeeded = "completed"
failed = "failed"
"""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Holdfast:
    monkeypatch.chdir(tmp_path)
    return Holdfast("sqlite:///jobs.db")


def test_the_arguments_are_the_fields_of_a_mapping() -> None:
    fields = [name for name in Mapping.__struct_fields__ if name != "table"]
    assert list(AdoptArguments.__annotations__) == fields
    typed = typing.get_type_hints(Mapping)
    for name, hint in typing.get_type_hints(AdoptArguments).items():
        assert hint == typed[name] or name == "counts", name


def test_a_mapping_is_said_in_python(app: Holdfast) -> None:
    audits = app.adopt("public.audits", states=STATES, heartbeat_at="last_heartbeat")
    assert (audits.name, audits.mapping.queue, audits.mapping.heartbeat_at) == ("audits", "audits", "last_heartbeat")
    assert app.adopted == {"audits": audits}


@pytest.mark.parametrize(
    ("file", "text"),
    [("holdfast.toml", TOML), ("pyproject.toml", TOML.replace("[adopt", "[tool.holdfast.adopt"))],
)
def test_or_in_a_settings_file(app: Holdfast, file: str, text: str) -> None:
    Path(file).write_text(text)
    assert app.adopt("audits").mapping == Mapping(
        table="audits", states=STATES, name="audits", queue="audits", heartbeat_at="last_heartbeat"
    )
    assert Holdfast("sqlite:///jobs.db").settings  # a mapping is not a setting


def test_in_both_places_it_must_say_the_same(app: Holdfast) -> None:
    Path("holdfast.toml").write_text(TOML)
    assert app.adopt("audits", states=STATES, heartbeat_at="last_heartbeat").mapping.heartbeat_at == "last_heartbeat"
    with pytest.raises(BadSettings) as refused:
        Holdfast("sqlite:///jobs.db").adopt("audits", states=STATES, claimed_at="since")
    text = str(refused.value)
    assert "HF1161" in text
    assert "test_surface_mapping.py, line " in text
    assert "[adopt.audits] in holdfast.toml" in text
    assert "differ in heartbeat_at, claimed_at" in text


def test_a_table_that_nothing_maps_is_refused(app: Holdfast) -> None:
    Path("holdfast.toml").write_text(TOML)
    with pytest.raises(BadSettings, match=r"no \[adopt.audit\] \(perhaps 'audits'\).*holdfast adopt audit"):
        app.adopt("audit")


def test_a_table_is_adopted_once(app: Holdfast) -> None:
    app.adopt("audits", states=STATES)
    with pytest.raises(BadSettings, match="adopted twice"):
        app.adopt("old.audits", states=STATES)


def test_a_mapping_that_can_t_work_is_refused(app: Holdfast) -> None:
    with pytest.raises(BadSettings, match="no word for 'failed'"):
        app.adopt("audits", states={"queued": "new", "running": "busy", "succeeded": "done"})
    with pytest.raises(BadSettings, match="heartbeat"):
        app.adopt("audits", states=STATES, heartbeat="last")  # type: ignore[call-arg]


@dataclass
class DataRow:
    id: int
    url: str


class StructRow(msgspec.Struct):
    id: int
    url: str


@attrs.define
class AttrsRow:
    id: int
    url: str


class PydanticRow(pydantic.BaseModel):
    id: int
    url: str


class DictRow(TypedDict):
    id: int
    url: str


def test_a_misspelt_field_of_a_mapping_is_named_with_the_nearest(app: Holdfast) -> None:
    misspelt: Any = {"states": STATES, "heartbeet_at": "beat"}
    with pytest.raises(BadSettings, match=r"mapping of 'audits' .* no 'heartbeet_at' \(perhaps 'heartbeat_at'\)"):
        app.adopt("audits", **misspelt)


@pytest.mark.parametrize("kind", [DataRow, StructRow, AttrsRow, PydanticRow, DictRow, dict, dict[str, Any], Any])
def test_a_handler_gets_the_columns_that_its_row_names(app: Holdfast, kind: Any) -> None:
    audits = app.adopt("audits", states=STATES, max_attempts=5, queue="slow")

    def analyse(ctx: JobContext, row: Any) -> Any:
        return row

    analyse.__annotations__["row"] = kind
    task = audits.task(timeout=5)(analyse)
    assert (task.name, task._defaults.queue, task._defaults.max_attempts, task._defaults.timeout) == (
        "audits", "slow", 5, 5.0,
    )  # fmt: skip
    row = task._run(JobContext.detached("audits"), b'{"row":{"id":7,"url":"https://a.example","notes":null}}')
    read = row if isinstance(row, dict) else {"id": row.id, "url": row.url}
    assert (read["id"], read["url"]) == (7, "https://a.example")


def test_a_handler_without_a_context(app: Holdfast) -> None:
    @app.adopt("audits", states=STATES).task
    def analyse(row: DataRow) -> str:
        return row.url

    assert analyse(DataRow(1, "https://a.example")) == "https://a.example"
    assert app.tasks == {"audits": analyse}


def test_its_jobs_are_rows_so_it_can_t_be_enqueued(app: Holdfast) -> None:
    @app.adopt("audits", states=STATES).task
    def analyse(row: DataRow) -> None: ...

    for enqueue in (analyse.enqueue, analyse.bind):
        with pytest.raises(BadArguments, match=r"insert a row, or call submit\(…\)"):
            enqueue(DataRow(1, ""))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "x"}, r"queue is not .* say it to hf.adopt\(…, queue=…\)"),
        ({"max_attempts": 2}, r"hf.adopt\(…, max_attempts=…\)"),
        ({"priority": 2}, r"hf.adopt\(…, priority=…\)"),
        ({"cron": "* * * * *"}, "cron is not for the rows of an adopted table; leave it out"),
        ({"timout": 2}, r"timout \(did you mean timeout\?\)"),
    ],
)
def test_what_the_mapping_says_is_no_option(app: Holdfast, options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadSettings, match=said):
        app.adopt("audits", states=STATES).task(**options)(lambda row: None)
    assert not app.tasks


def test_the_row_has_one_name(app: Holdfast) -> None:
    def analyse(ctx: JobContext, audit: DataRow) -> None: ...

    with pytest.raises(BadSettings, match=r"by the name `row`.*this one takes audit"):
        app.adopt("audits", states=STATES).task(analyse)


@dataclass
class Findings:
    score: int


class Model(pydantic.BaseModel):
    score: int


@pytest.mark.parametrize("kind", [Findings, Model, dict, Any, Findings | None, dict[str, int]])
def test_a_result_that_may_have_the_mapped_fields(app: Holdfast, kind: Any) -> None:
    def analyse(row: dict[str, Any]) -> Any: ...

    analyse.__annotations__["return"] = kind
    app.adopt("audits", states=STATES, results={"score": "score", "result": "*"}).task(analyse)


@pytest.mark.parametrize(
    ("kind", "said"),
    [(Findings, "`Findings` has score"), (Model, "`Model` has score"), (int, "`int` has no fields")],
)
def test_a_result_that_can_t_have_them(app: Holdfast, kind: Any, said: str) -> None:
    def analyse(row: dict[str, Any]) -> Any: ...

    analyse.__annotations__["return"] = kind
    with pytest.raises(BadSettings, match=f"the column points takes the field 'points' of the result, and {said}"):
        app.adopt("audits", states=STATES, results={"points": "points"}).task(analyse)


def test_where_a_lease_is_not_renewed_an_attempt_ends_before_it(app: Holdfast) -> None:
    audits = app.adopt("audits", states=STATES, claimed_at="since", lease=300, renew=False)
    with pytest.raises(BadSettings, match="must be shorter"):
        audits.task(timeout=300)(lambda row: None)

    @audits.task
    def analyse(row: dict[str, Any]) -> None: ...

    assert analyse._defaults.timeout == 300 - app.settings.grace
    brief = app.adopt("brief", states=STATES, claimed_at="since", lease=20, renew=False)
    assert brief.task(lambda row: None)._defaults.timeout == 10
    app.settings = replace(app.settings, grace=0.0)
    hasty = app.adopt("hasty", states=STATES, claimed_at="since", lease=300, renew=False)
    assert hasty.task(lambda row: None)._defaults.timeout == 285
