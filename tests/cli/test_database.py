"""Which database a command works on, and that it says so."""

from __future__ import annotations

import pytest

from tests.cli.shell import Shell

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])

IN_CODE = "from holdfast import Holdfast\nhf = Holdfast('sqlite:///code.db')\n@hf.task\ndef t() -> None: ...\n"
PINNED = IN_CODE.replace("code.db'", "code.db', pinned=True")


@pytest.fixture
def bare(shell: Shell) -> Shell:
    """A directory with an application that names its database, and nothing else that names one."""
    (shell.directory / "app.py").write_text(IN_CODE)
    del shell.environment["HOLDFAST_URL"]
    return shell


def databases(shell: Shell) -> list[str]:
    return sorted(path.name for path in shell.directory.glob("*.db"))


RUNNING = [
    ("worker", "app.py"), ("drain", "app.py"), ("drain", "app.py", "-p", "0"), ("enqueue", "t", "--app", "app.py"),
    ("migrate", "app.py"), ("migrate", "app.py", "--dry-run"), ("doctor", "app.py"),
]  # fmt: skip


@pytest.mark.parametrize("words", RUNNING, ids=" ".join)
def test_two_urls_that_differ_stop_a_command(bare: Shell, words: tuple[str, ...]) -> None:
    said = bare(*words, code=2, HOLDFAST_URL="sqlite:///other.db").stderr
    assert said.startswith("HF1151 which database? app.py, line 2, names sqlite:///code.db, and HOLDFAST_URL names ")
    assert "or unset HOLDFAST_URL" in said
    said = bare(*words, "--url", "sqlite:///other.db", code=2).stderr
    assert said.startswith("HF1151 which database? app.py names sqlite:///code.db, and --url names sqlite:///other.db")
    assert said.endswith("or leave out --url\n")
    assert databases(bare) == []


def test_a_pinned_database_ignores_the_environment_but_not_a_flag(bare: Shell) -> None:
    (bare.directory / "app.py").write_text(PINNED)
    bare("drain", "app.py", HOLDFAST_URL="sqlite:///other.db")
    assert databases(bare) == ["code.db"]
    assert "HF1151" in bare("drain", "app.py", "--url", "sqlite:///other.db", code=2).stderr


def test_a_flag_wins_over_the_environment_and_may_agree_with_the_code(bare: Shell) -> None:
    bare("drain", "app.py", "--url", "sqlite:///code.db", HOLDFAST_URL="sqlite:///other.db")
    bare("drain", "app.py", "-p", "0", "--url", "sqlite:///code.db", HOLDFAST_URL="sqlite:///other.db")
    assert databases(bare) == ["code.db"]
    bare("jobs", "list", "--url", "sqlite:///code.db", HOLDFAST_URL="sqlite:///other.db")


def test_an_isolated_job_runs_on_the_database_of_its_worker(bare: Shell) -> None:
    (bare.directory / "app.py").write_text(
        IN_CODE.replace("@hf.task", "@hf.task(isolation='process', database=True, env=['HOLDFAST_URL'])")
    )
    bare("enqueue", "t", "--app", "app.py")
    arguments = ("drain", "app.py", "--url", "sqlite:///code.db")
    done = bare(*arguments, HOLDFAST_URL="sqlite:///other.db")
    assert done.stdout == "1 job done (1 attempt)\n", done.stderr


# -- migrate ---------------------------------------------------------------------------------------------------------


def test_migrate_makes_no_file_that_nobody_asked_for(bare: Shell) -> None:
    for more in ((), ("--dry-run",)):
        said = bare("migrate", *more, code=2).stderr
        assert said.startswith("HF1152 which database? Name the application, as in `holdfast migrate app.py`, or a URL")
        assert said.endswith("; there is app.py\n")
    assert databases(bare) == []


@pytest.mark.parametrize(
    ("words", "file"), [(("app.py",), "code.db"), (("--url", "sqlite:///flag.db"), "flag.db"), ((), "toml.db")]
)
def test_migrate_makes_the_file_it_was_asked_for(bare: Shell, words: tuple[str, ...], file: str) -> None:
    if not words:
        (bare.directory / "holdfast.toml").write_text('url = "sqlite:///toml.db"\n')
    bare("migrate", *words)
    assert databases(bare) == [file]


# -- paths that lead nowhere -------------------------------------------------------------------------------------------

COMMANDS = [("jobs", "list"), ("migrate",), ("migrate", "--dry-run"), ("drain", "app.py"), ("doctor",)]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("file", "said"),
    [("loop/jobs.db", "loop"), ("x" * 300 + ".db", "can't be reached: File name too long"),
     ("a%00b.db", "can't be reached: embedded null byte"), (":memory:", "a database in memory belongs to one")],
    ids=["loop", "long", "nul", "memory"],
)  # fmt: skip
def test_a_path_that_leads_nowhere_is_one_line(shell: Shell, words: tuple[str, ...], file: str, said: str) -> None:
    (shell.directory / "loop").symlink_to("loop")
    done = shell.any(*words, "--url", f"sqlite:///{file}")
    text = done.stdout if words == ("doctor",) else done.stderr
    assert done.returncode in (1, 2), done.stderr
    assert said in text
    assert "Traceback" not in done.stderr
    assert words == ("doctor",) or len(done.stderr.splitlines()) == 1, done.stderr
    assert databases(shell) == []
    assert not (shell.directory / ":memory:").exists()
