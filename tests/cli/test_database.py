"""Which database a command works on, and that it says so."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from holdfast.cli import cli
from tests.cli.shell import Shell, wait_until
from tests.cli.tty import terminal

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


# -- commands that look at a database ----------------------------------------------------------------------------------

LOOKING = [
    ("jobs", "list"), ("queues", "list"), ("tasks", "list"), ("workers",), ("pauses",), ("cron", "list"),
    ("top", "--once"), ("why", "--queue", "default"), ("queues", "pause", "mail"), ("queues", "resume", "mail"),
    ("pause", "args.n:1"), ("resume", "args.n:1"), ("jobs", "retry", "state:failed", "--dry-run"),
]  # fmt: skip


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_a_command_looks_at_the_database_of_an_app(bare: Shell, words: tuple[str, ...]) -> None:
    said = bare(*words, code=2).stderr
    assert said.startswith(f"HF1109 there is no file {bare.directory}/holdfast.db: name the database with --url or ")
    assert said.endswith("or the application whose database it is: --app app.py\n")
    bare("drain", "app.py")
    bare(*words, "--app", "app.py")
    assert "HF1151" in bare(*words, "--app", "app.py", code=2, HOLDFAST_URL="sqlite:///other.db").stderr
    assert databases(bare) == ["code.db"]


def test_the_app_that_is_suggested_is_named_fully_where_a_file_has_several(bare: Shell) -> None:
    (bare.directory / "app.py").write_text(IN_CODE + "other = Holdfast()\n")
    assert bare("jobs", "list", code=2).stderr.endswith("--app app.py:hf\n")
    (bare.directory / "app.py").unlink()
    assert bare("jobs", "list", code=2).stderr.endswith("name the database with --url or HOLDFAST_URL\n")


@pytest.mark.parametrize(
    ("place", "words", "environment"),
    [
        ("HOLDFAST_URL", ("jobs", "list"), {"HOLDFAST_URL": "sqlite:///gone.db"}),
        ("--url", ("jobs", "list", "--url", "sqlite:///gone.db"), {}),
        ("holdfast.toml", ("jobs", "list"), {}),
        ("the application", ("jobs", "list", "--app", "app.py"), {}),
    ],
)
def test_a_file_that_is_not_there_is_told_with_who_names_it(
    bare: Shell, place: str, words: tuple[str, ...], environment: dict[str, str]
) -> None:
    if place == "holdfast.toml":
        (bare.directory / "holdfast.toml").write_text('url = "sqlite:///gone.db"\n')
    name = "code.db" if place == "the application" else "gone.db"
    assert bare(*words, code=2, **environment).stderr == (
        f"HF1109 {place} names sqlite:///{name}, and there is no file {bare.directory}/{name}: correct it, or make "
        f"one: holdfast migrate --url sqlite:///{name}\n"
    )
    assert databases(bare) == []


def test_an_app_that_has_no_database_yet_is_told_how_to_make_it(bare: Shell) -> None:
    (bare.directory / "app.py").write_text("from holdfast import Holdfast\nhf = Holdfast()\n")
    for words, environment in ((("--app", "app.py"), {}), ((), {"HOLDFAST_APP": "app.py"})):
        assert bare("jobs", "list", *words, code=2, **environment).stderr == (
            f"HF1109 there is no file {bare.directory}/holdfast.db, where app.py keeps its jobs: nothing was enqueued "
            "yet. To make it: holdfast migrate app.py\n"
        )
    bare("migrate", "app.py")
    bare("jobs", "list", "--app", "app.py")


def commands(group: click.Group, *words: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *words, name)
        else:
            yield " ".join((*words, name)), command


def test_every_command_that_takes_a_url_takes_an_app(shell: Shell) -> None:
    takes = {name: {parameter.name for parameter in command.params} for name, command in commands(cli)}
    assert [name for name in takes if "url" in takes[name] and "app" not in takes[name]] == ["bench"]


def test_an_empty_list_and_an_error_say_which_database_it_was(shell: Shell) -> None:
    shell("migrate")
    line = f"database: {shell.environment['HOLDFAST_URL']}\n"
    assert shell("jobs", "list").stderr == line
    assert shell("workers").stderr == line
    assert shell("jobs", "show", "7", code=3).stderr == f"HF1301 there is no job 7 in {line.removeprefix('database: ')}"
    said = shell("stack", "7", code=3).stderr
    assert said.count(shell.environment["HOLDFAST_URL"]) == 1
    shell("enqueue", "refuse", "n=1", "--app", "app.py")
    shell("drain", "app.py")
    assert shell("jobs", "resume", "1", code=4).stderr.endswith(f"must be paused\n{line}")
    shell("jobs", "delete", "1")
    assert shell("jobs", "list", "-o", "json").stderr == ""
    assert line not in shell("jobs", "show", "7", "-o", "json", code=3).stderr
    shell("enqueue", "double", "n=1", "--app", "app.py")
    assert shell("jobs", "list").stderr == ""


def test_on_a_terminal_every_look_says_which_database_it_is(shell: Shell) -> None:
    shell("enqueue", "double", "n=1", "--app", "app.py")
    with terminal(shell, "jobs", "list") as seen:
        assert seen.process.wait(60) == 0
        wait_until(lambda: b"double" in seen.raw)
        assert seen.raw.count(f"database: {shell.environment['HOLDFAST_URL']}".encode()) == 1
    with terminal(shell, "jobs", "list", "-o", "json") as seen:
        assert seen.process.wait(60) == 0
        wait_until(lambda: b"double" in seen.raw)
        assert b"database:" not in seen.raw


# -- queues that nobody knows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_worker_of_a_queue_that_nobody_knows_is_warned_of_it(shell: Shell, processes: str) -> None:
    (shell.directory / "app.py").write_text(
        "from holdfast import Holdfast\nhf = Holdfast()\n@hf.task(queue='mail')\ndef t() -> None: ...\n"
    )
    drain = ("drain", "app.py", "-p", processes)
    assert shell(*drain, "-q", "mial,mail").stderr == (
        "no task, job or other worker uses queue 'mial'; did you mean 'mail'?\n"
    )
    shell("enqueue", "t", "--app", "app.py", "--queue", "mial")
    assert shell(*drain, "-q", "mial,mail").stderr == ""
    assert shell(*drain, "-q", "zzz").stderr == "no task, job or other worker uses queue 'zzz'\n"


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_queue_that_only_the_settings_name_is_pointed_out(shell: Shell, processes: str) -> None:
    (shell.directory / "app.py").write_text(
        "from holdfast import Holdfast\nhf = Holdfast()\n@hf.task(queue='mail')\ndef t() -> None: ...\n"
    )
    (shell.directory / "holdfast.toml").write_text("[queues.mial]\npoll_max = 5\n[queues.mail]\npoll_max = 5\n")
    said = "queue 'mial', which the settings name; did you mean 'mail'?\n"
    assert shell("drain", "app.py", "-p", processes).stderr == f"no task, job or other worker uses {said}"
    assert shell("config", "app.py").stderr == f"no task has {said}"
    assert shell("config").stderr == "", "without the application its tasks are not known"
    shell("enqueue", "t", "--app", "app.py", "--queue", "mial")
    assert shell("drain", "app.py", "-p", processes).stderr == ""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_a_limit_of_one_queue_that_other_queues_of_the_worker_overrule_is_pointed_out(
    shell: Shell, processes: str
) -> None:
    (shell.directory / "app.py").write_text(
        "from holdfast import Holdfast\nhf = Holdfast()\n"
        "@hf.task(queue='mail')\ndef t() -> None: ...\n@hf.task(queue='files')\ndef u() -> None: ...\n"
    )
    (shell.directory / "holdfast.toml").write_text(
        "[queues.mail]\nafter_job_delay = '300ms'\npoll_max = 5\n[queues.files]\nclaim_size = 0\n"
    )
    drain = ("drain", "app.py", "-p", processes)
    assert shell(*drain).stderr == (
        "queues.mail.after_job_delay = 0.3 has no effect in a worker that also serves other queues (there it is 0): "
        "give queue 'mail' a worker of its own\n"
    )
    assert shell(*drain, "-q", "mail").stderr == ""
    assert shell(*drain, "-q", "files").stderr == ""
