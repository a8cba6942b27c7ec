"""`holdfast adopt`: the plan is shown, then done; it can be repeated, suspended and undone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.adopt.live_table import STATES, LiveTable, live_table
from tests.cli.shell import Shell
from tests.cli.tty import terminal

KEYS = {
    "table", "name", "origin", "mapping", "columns", "payload", "words", "jobs", "choices", "problems", "locks",
    "wishes", "statements", "undo", "toml", "python", "differs",
}  # fmt: skip


@pytest.fixture
def audits(kept: Store, settings: Settings) -> Iterator[LiveTable]:
    with live_table(settings) as table:
        for status in ("pending", "pending", "completed", "draft"):
            table.add(status)
        yield table


@pytest.fixture
def shell(tmp_path: Path, settings: Settings) -> Shell:
    return Shell(tmp_path, settings)


def write_down(shell: Shell, audits: LiveTable, **more: object) -> None:
    """The mapping as the plan prints it for holdfast.toml."""
    [plan] = [shell.json("adopt", audits.name, "--dry-run")]
    text = plan["toml"]
    for name, value in more.items():
        text = text.replace("\n", f"\n{name} = {json.dumps(value)}\n", 1)
    (shell.directory / "holdfast.toml").write_text(text)


def adopted(shell: Shell, audits: LiveTable) -> None:
    write_down(shell, audits)
    shell("adopt", audits.name, "--yes")


def test_the_plan_is_shown_and_nothing_is_done(shell: Shell, audits: LiveTable, engine: str) -> None:
    done = shell("adopt", audits.name, "--dry-run", "--sql")
    for told in (
        "last_heartbeat", "sign of life", "2 rows would become jobs", "left alone", "guessed", "[adopt.audits]",
        "audits = hf.adopt(", "create ", "lock: ", "to undo it",
    ):  # fmt: skip
        assert told in done.stdout, told
    [made] = [line for line in done.stdout.splitlines() if "what is made" in line]
    assert re.search(r"\d triggers \(" if engine == "sqlite" else r"made: \d functions, \d triggers \(", made), made
    assert "nothing was changed" in done.stderr
    assert shell.json("adopt") == []
    assert shell.json("jobs", "count") == {"jobs": 0}


def test_the_plan_is_a_document(shell: Shell, audits: LiveTable) -> None:
    plan = shell.json("adopt", audits.name, "--dry-run")
    assert set(plan) == KEYS
    assert (plan["origin"], plan["jobs"], plan["name"]) == ("proposed", 2, "audits")
    assert plan["mapping"]["states"] == STATES
    assert {"word": "draft", "rows": 1, "state": None} in plan["words"]
    assert {"word": "pending", "rows": 2, "state": "queued"} in plan["words"]
    assert plan["statements"]
    assert plan["undo"]
    assert not [problem for problem in plan["problems"] if problem["fatal"]]


@pytest.mark.parametrize("engine", ["postgres"])
def test_the_plan_says_which_times_have_no_zone(shell: Shell, audits: LiveTable) -> None:
    audits("alter table {t} alter column last_heartbeat type timestamp")
    lines = shell("adopt", audits.name, "--dry-run").stdout.splitlines()
    told = {line.split()[0]: line for line in lines if line.strip()}
    assert "read and written as UTC" in told["last_heartbeat"]
    assert "UTC" not in told["created_at"]


def test_a_proposal_is_not_taken_for_granted(shell: Shell, audits: LiveTable) -> None:
    said = shell("adopt", audits.name, "--yes", code=2).stderr
    assert "HF1163" in said
    assert "only proposed" in said
    assert "HF1401" in shell("adopt", audits.name, code=2).stderr
    assert shell.json("adopt") == []


def test_what_is_written_down_is_adopted_once_however_often_it_is_asked(shell: Shell, audits: LiveTable) -> None:
    write_down(shell, audits)
    for _ in range(2):
        said = shell("adopt", audits.name, "--yes").stderr
        assert "is adopted" in said
        assert shell.json("jobs", "count", "state:queued") == {"jobs": 2}
    [row] = shell.json("adopt")
    assert (row["name"], row["table"], row["state"], row["due"]) == ("audits", audits.name, "working", 2)
    assert "audits" in shell("adopt").stdout
    assert audits.statuses() == ["pending", "pending", "completed", "draft"]


def test_a_name_that_the_application_maps_is_adopted_by_it(shell: Shell, audits: LiveTable) -> None:
    (shell.directory / "app.py").write_text(
        f"from holdfast import Holdfast\nhf = Holdfast()\n"
        f"mine = hf.adopt({audits.name!r}, states={STATES!r}, name='mine', lease=60.0)\n"
    )
    plan = shell.json("adopt", "mine", "--app", "app.py", "--dry-run")
    assert (plan["origin"], plan["name"], plan["mapping"]["lease"]) == ("the application", "mine", 60.0)
    shell("adopt", "mine", "--app", "app.py", "--yes")
    assert [row["name"] for row in shell.json("adopt")] == ["mine"]


def test_a_table_is_known_however_its_name_is_written(shell: Shell, audits: LiveTable) -> None:
    adopted(shell, audits)
    other = ".".join(f'"{part}"' for part in audits.name.split("."))
    assert shell.json("adopt", other, "--dry-run")["origin"] == "[adopt.audits] in holdfast.toml"
    (shell.directory / "holdfast.toml").unlink()
    assert shell.json("adopt", other, "--dry-run")["origin"] == "what is installed"
    shell("adopt", other, "--suspend")
    assert [row["state"] for row in shell.json("adopt")] == ["suspended"]


def test_another_mapping_of_an_adopted_table_says_what_changes(shell: Shell, audits: LiveTable) -> None:
    adopted(shell, audits)
    assert shell.json("adopt", "audits", "--dry-run")["differs"] == []
    text = (shell.directory / "holdfast.toml").read_text()
    (shell.directory / "holdfast.toml").write_text(text.replace("[adopt.audits]\n", "[adopt.audits]\nlease = 60.0\n"))
    assert shell.json("adopt", "audits", "--dry-run")["differs"] == ["lease"]
    assert "which differs in lease" in shell("adopt", "audits", "--yes").stdout
    assert shell.json("adopt", "audits", "--dry-run")["differs"] == []


def test_at_a_terminal_a_proposal_is_asked_about(shell: Shell, audits: LiveTable, kept: Store) -> None:
    with terminal(shell, "adopt", audits.name, columns=200, lines=100) as tty:
        tty.shows("guessed: look at these", f"adopt {audits.name}? [y/N]")
        tty.press("n\n")
        assert tty.process.wait(30) == 1
    assert kept.adopted.installed() == []
    with terminal(shell, "adopt", audits.name, columns=200, lines=100) as tty:
        tty.shows(f"adopt {audits.name}? [y/N]")
        tty.press("y\n")
        assert tty.process.wait(30) == 0
    assert [source.name for source in kept.adopted.installed()] == ["audits"]


def test_a_mapping_that_does_not_fit_says_everything_at_once(shell: Shell, audits: LiveTable) -> None:
    write_down(shell, audits, run_at="due_at", priority="url")
    text = (shell.directory / "holdfast.toml").read_text().replace('run_at = "scheduled_at"\n', "")
    (shell.directory / "holdfast.toml").write_text(text)
    said = shell("adopt", audits.name, "--yes", code=2).stderr
    assert "HF1162" in said
    assert "no column 'due_at'" in said
    assert "url is text" in said.lower()
    assert shell.json("adopt") == []


def test_a_table_that_is_not_there_is_named(shell: Shell, kept: Store) -> None:
    said = shell("adopt", "audit", code=2).stderr
    assert "audit" in said
    assert "Traceback" not in said


def test_a_table_without_a_status_asks_for_help(shell: Shell, audits: LiveTable) -> None:
    audits("alter table {t} rename column status to kind")
    said = shell("adopt", audits.name, code=2).stderr
    assert "HF1163" in said
    assert "status=…" in said


def test_what_it_says_to_write_down_is_toml(shell: Shell, audits: LiveTable) -> None:
    table = '"Druck-Aufträge: neu"'
    audits(f"create table {audits.beside(table)} (id integer primary key, phase text)")
    said = shell("adopt", audits.beside(table), code=2).stderr
    assert '[adopt."Druck-Aufträge: neu"] in holdfast.toml' in said


def test_a_suspended_table_is_left_alone_until_it_is_resumed(shell: Shell, audits: LiveTable, kept: Store) -> None:
    adopted(shell, audits)
    assert "--resume" in shell("adopt", "audits", "--suspend", "--reason", "a rename").stderr
    assert [row["state"] for row in shell.json("adopt")] == ["suspended"]
    assert "is resumed" in shell("adopt", "audits", "--resume").stderr
    assert [row["state"] for row in shell.json("adopt")] == ["working"]
    verbs = [(row["verb"], row["reason"], row["changed"], bool(row["ended_at"])) for row in shell.json("audit")]
    assert verbs == [
        ("resume_table", None, 1, True), ("suspend_table", "a rename", 1, True), ("adopt", None, 1, True)
    ]  # fmt: skip


def test_undo_leaves_the_table_as_it_is_and_nothing_of_ours(shell: Shell, audits: LiveTable, engine: str) -> None:
    adopted(shell, audits)
    script = shell("adopt", "audits", "--undo", "--dry-run").stdout
    assert "drop trigger" in script.lower()
    assert "HF1401" in shell("adopt", "audits", "--undo", code=2).stderr
    said = shell("adopt", "audits", "--undo", "--yes").stderr
    assert "2 unfinished jobs removed" in said
    assert shell.json("adopt") == []
    assert shell.json("jobs", "count") == {"jobs": 0}
    audits.add("pending")
    assert audits.statuses() == ["pending", "pending", "completed", "draft", "pending"]
    assert shell.json("jobs", "count") == {"jobs": 0}, "nothing hears of its rows any more"
    shell("adopt", audits.name, "--yes")
    assert shell.json("jobs", "count") == {"jobs": 3}


def test_the_undo_script_does_what_undo_does(shell: Shell, audits: LiveTable, engine: str) -> None:
    adopted(shell, audits)
    script = shell("adopt", "audits", "--undo", "--dry-run").stdout
    with audits.connection() as connection:
        connection.executescript(script) if engine == "sqlite" else connection.execute(script)
        connection.commit()
    audits.add("pending")
    assert shell.json("adopt") == []


def test_verbs_need_a_table_that_is_adopted(shell: Shell, audits: LiveTable) -> None:
    for verb in ("--suspend", "--resume", "--undo"):
        said = shell("adopt", audits.name, verb, "--yes", code=2).stderr
        assert "HF1164" in said
    assert "which table?" in shell("adopt", "--undo", code=2).stderr
    adopted(shell, audits)
    assert "did you mean 'audits'" in shell("adopt", "audit", "--suspend", code=2).stderr
