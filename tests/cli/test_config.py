"""Settings with where they came from, completion, finding the application."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.forking import run_holdfast
from tests.cli.shell import Shell
from tests.factories import new_job

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])


def sources(shell: Shell, *arguments: str) -> dict[str, tuple[object, str]]:
    return {row["name"]: (row["value"], row["source"]) for row in shell.json("config", *arguments)}


def test_each_value_says_where_it_came_from(shell: Shell) -> None:
    (shell.directory / "pyproject.toml").write_text("[tool.holdfast]\nlease = 30\ngrace = 9\n")
    shell.environment |= {"HOLDFAST_GRACE": "7", "HOLDFAST_URL": "postgresql://me:s3cret@db/x?sslpassword=s4cret"}
    found = sources(shell)
    assert found["lease"] == (30.0, "pyproject.toml")
    assert found["grace"] == (7.0, "HOLDFAST_GRACE")
    assert found["concurrency"] == (100, "default")
    assert found["url"] == ("postgresql://me:***@db/x?sslpassword=***", "HOLDFAST_URL")
    assert set(found) == set(Settings.__dataclass_fields__) - {"queues"}, "of queues, what is set"
    assert sources(shell, "--url", "sqlite:///x.db")["url"] == ("sqlite:///x.db", "argument")
    (shell.directory / "holdfast.toml").write_text("lease = 40\n")
    assert sources(shell)["lease"] == (40.0, "holdfast.toml")
    assert "s3cret" not in shell("config").stdout


def test_what_a_queue_sets_for_itself_says_where_it_came_from(shell: Shell) -> None:
    (shell.directory / "pyproject.toml").write_text(
        "[tool.holdfast.queues.mail]\npoll_max = 5\nclaim_size = 9\n[tool.holdfast.queues.'a.b']\npoll_grace = 1\n"
    )
    (shell.directory / "app.py").write_text(
        "from holdfast import Holdfast\nhf = Holdfast(queues={'mail': {'claim_size': 3}, 'news': {'poll_max': 60}})\n"
    )
    found = sources(shell, "app:hf")
    assert {name: said for name, said in found.items() if name.startswith("queues")} == {
        "queues.mail.poll_max": (5.0, "pyproject.toml"),
        "queues.mail.claim_size": (3, "argument"),
        "queues.a.b.poll_grace": (1, "pyproject.toml"),
        "queues.news.poll_max": (60, "argument"),
    }
    assert found["poll_max"] == (15.0, "default")
    assert "queues.mail.poll_max" in shell("config", "app:hf").stdout
    assert shell("config", HOLDFAST_QUEUES="mail").stderr == "HOLDFAST_QUEUES is no setting, and changes nothing\n"


def test_a_variable_that_sets_nothing_is_pointed_out(shell: Shell) -> None:
    said = shell("config", HOLDFAST_CONCURENCY="3", HOLDFAST_SERVICE_PORT_HTTP="80").stderr.splitlines()
    assert said == [
        "HOLDFAST_CONCURENCY is no setting, and changes nothing; did you mean HOLDFAST_CONCURRENCY?",
        "HOLDFAST_SERVICE_PORT_HTTP is no setting, and changes nothing",
    ]


def test_every_command_points_out_a_misspelled_setting_once(shell: Shell, kept: Store) -> None:
    shell.environment |= {"HOLDFAST_LEES": "30", "HOLDFAST_SERVICE_PORT_HTTP": "80"}
    for words in (("jobs", "list", "-o", "json"), ("drain", "app:hf"), ("queues", "pause", "mail")):
        said = shell(*words).stderr.splitlines()
        about = [line for line in said if "HOLDFAST_" in line]
        assert about == ["HOLDFAST_LEES is no setting, and changes nothing; did you mean HOLDFAST_LEASE?"], words


def test_what_the_application_sets_is_an_argument(shell: Shell) -> None:
    (shell.directory / "app.py").write_text("from holdfast import Holdfast\nhf = Holdfast(lease=12)\n")
    assert sources(shell, "app:hf")["lease"] == (12, "argument")


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ("holdfast worker app:hf", None),
        ("holdfast drain app.py", None),
        ("holdfast drain app", None),
        ("holdfast drain sub/jobs.py:work", None),
        ("holdfast drain sub.jobs:work", None),
        ("holdfast drain", "[tool.holdfast]\napp = 'sub/jobs.py'\n"),
    ],
)
def test_the_application_is_found(shell: Shell, line: str, where: str | None) -> None:
    (shell.directory / "sub").mkdir()
    (shell.directory / "sub" / "beside.py").write_text("N = 1\n")
    (shell.directory / "sub" / "jobs.py").write_text(
        "import sys\nif 'sub.jobs' not in sys.modules: from beside import N\n"
        "from holdfast import Holdfast\nwork = Holdfast()\n@work.task\ndef t() -> None: ...\n"
    )
    if where:
        (shell.directory / "pyproject.toml").write_text(where)
    command, *rest = line.split()[1:]
    if command == "worker":
        shell("drain", *rest)
    else:
        shell(command, *rest)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ap:hf", "HF1107 there is no module 'ap' here"),
        ("ap:hf", "found: app.py:hf"),
        ("nowhere.py", "found: app.py:hf"),
        ("app:fh2", "HF1108 app has no Holdfast application called 'fh2'; found: hf"),
        ("two.py", "HF1108 two.py should have one Holdfast application, or be named as two.py:name; found: a, b"),
    ],
)
def test_a_wrong_name_lists_what_was_found(shell: Shell, name: str, said: str) -> None:
    (shell.directory / "two.py").write_text("from holdfast import Holdfast\na = Holdfast()\nb = Holdfast()\n")
    assert said in shell("drain", name, code=2).stderr


def test_commands_that_take_an_application_also_know_it_by_option(shell: Shell) -> None:
    for command in (["migrate"], ["drain"], ["config"], ["doctor"]):
        assert shell(*command, "--app", "app:hf").returncode == 0
    assert "HF1107" in shell("drain", "--app", "ap:hf", code=2).stderr
    assert "two applications are named" in shell("drain", "app:hf", "--app", "two.py", code=2).stderr


def test_what_the_application_lacks_is_not_called_a_wrong_name(shell: Shell) -> None:
    (shell.directory / "app.py").write_text("import no_such_library\n")
    said = "can't be imported: ModuleNotFoundError: No module named 'no_such_library'"
    for name in ("app:hf", "app.py"):
        done = shell("drain", name, code=2)
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    (shell.directory / "application.py").write_text("import app\n")
    assert said in shell("drain", "application:hf", code=2).stderr
    (shell.directory / "app.py").write_text("def (\n")
    assert "app.py, line 1" in shell("drain", "app.py", code=2).stderr


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_is_printed(shell: Shell, name: str) -> None:
    assert "_HOLDFAST_COMPLETE" in shell("completion", name).stdout


def test_the_shell_is_offered_what_fits(shell: Shell) -> None:
    words = "holdfast jobs re"
    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cli import main; main()"], text=True, capture_output=True, check=False,
        env={**shell.environment, "_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"},
    )  # fmt: skip
    assert {"plain,resume", "plain,retry"} <= set(done.stdout.split())


def test_errors_come_first_and_tracebacks_only_when_asked_for(shell: Shell, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/text.db"
    (tmp_path / "text.db").write_text("not a database, but long enough to look at it\n" * 100)
    plain = shell("jobs", "list", "--url", url, code=1).stderr
    assert plain.startswith("HF3306 ")
    assert "Traceback" not in plain
    told = shell("--debug", "jobs", "list", "--url", url, code=1).stderr
    assert told.startswith("HF3306 ")
    assert "sqlite3.DatabaseError" in told


def test_settings_are_shown_even_if_the_application_is_not_found(shell: Shell) -> None:
    (shell.directory / "holdfast.toml").write_text("lease = 33\n")
    done = shell("config", "-o", "json", code=2, HOLDFAST_APP="nowhere:hf")
    shown = {row["name"]: (row["value"], row["source"]) for row in json.loads(done.stdout)}
    assert shown["lease"] == (33, "holdfast.toml") or shown["lease"][0] == 33
    assert "these are the settings without the application's own" in done.stderr
    assert "HF1107 there is no module 'nowhere' here" in done.stderr
    assert "HF1107" in shell("config", "ap:hf", code=2).stderr


@pytest.mark.parametrize("words", [(), ("jobs",), ("queues",), ("tasks",), ("cron",), ("sql",)])
def test_no_help_is_cut_off(shell: Shell, words: tuple[str, ...]) -> None:
    assert "..." not in shell(*words, "--help", COLUMNS="80").stdout.replace("[ARGS]...", "")


LOOKING = [
    ("jobs", "list"), ("jobs", "show", "1"), ("why", "1"), ("queues", "list"), ("tasks", "list"), ("workers",),
    ("pauses",), ("cron", "list"), ("top", "--once"), ("stack", "1"), ("jobs", "cancel", "1"), ("doctor",), ("config",),
]  # fmt: skip


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_to_look_into_a_directory_runs_none_of_its_code(shell: Shell, kept: Store, words: tuple[str, ...]) -> None:
    """Whoever wrote its holdfast.toml is not who looks. Who names the application means it."""
    (shell.directory / "trap.py").write_text("import pathlib; pathlib.Path('sprung').touch()\n")
    (shell.directory / "holdfast.toml").write_text('app = "trap:hf"\n')
    kept.enqueue(new_job("double", b'{"n":1}'))
    run_holdfast(words, cwd=shell.directory, env=shell.environment, timeout=60)
    assert not (shell.directory / "sprung").exists()
    run_holdfast(words, cwd=shell.directory, env={**shell.environment, "HOLDFAST_APP": "trap:hf"}, timeout=60)
    assert (shell.directory / "sprung").exists()
