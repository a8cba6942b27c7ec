"""What all commands share: errors as a number, a sentence and an exit code; options; printing. Data goes to stdout,
messages to stderr. `EXIT_CODES` and docs/cli.md list the exit codes."""

from __future__ import annotations

import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast import app_loader
from holdfast.app import Holdfast
from holdfast.app_loader import find_app
from holdfast.durations import parse_duration
from holdfast.errors import (
    BadArguments,
    BadSettings,
    HoldfastError,
    JobFailed,
    JobNotFound,
    Refused,
    SchemaOutdated,
    StoreUnavailable,
    UnknownTask,
    WaitTimeout,
    WorkerNotFound,
)
from holdfast.harmless import UNSAFE, block, harmless
from holdfast.model.durations import relative_to
from holdfast.model.job import COUNTED
from holdfast.redact import scrub
from holdfast.settings import misspelled

__all__ = [
    "DURATION", "EXIT_CODES", "Cli", "DurationType", "ago", "app_argument", "cli", "counted", "database_option",
    "find_app", "open_app", "output_option", "print_data", "print_table", "queues_option", "say", "split",
    "talk", "to_json", "url_option", "who_options",
]  # fmt: skip

EXIT_CODES: tuple[tuple[type[HoldfastError], int], ...] = (
    (BadSettings, 2),
    (BadArguments, 2),
    (UnknownTask, 2),
    (JobNotFound, 3),
    (WorkerNotFound, 3),
    (Refused, 4),
    (StoreUnavailable, 5),
    (SchemaOutdated, 6),
    (JobFailed, 7),
    (WaitTimeout, 8),
    (HoldfastError, 1),
)
INTERRUPTED = 130
APP, LOOKED_AT = "holdfast.app", "holdfast.looked_at"  # kept in the context of a command


class Command(click.Command):
    """A command whose help ends with the examples of its docstring."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        text, mark, examples = inspect.cleandoc(self.help or "").partition("\b\nExamples:")
        if mark:
            self.help, self.epilog = text.rstrip(), mark + examples

    def get_short_help_str(self, limit: int = 45) -> str:
        """Its first sentence, in full, for a list of commands."""
        first = inspect.cleandoc(self.help or "").partition("\n\n")[0]
        return " ".join(first.split())


class Group(Command, click.Group):
    command_class = Command
    group_class: type[click.Group] | type[type] | None = type  # groups in this group have the same class


class Cli(Group):
    """Prints our errors as a sentence and exits with their code; prints a traceback only with --debug."""

    group_class = Group

    def invoke(self, ctx: click.Context) -> Any:
        try:
            _look_around()
            return super().invoke(ctx)
        except HoldfastError as error:
            talk(scrub(str(error)))
            if ctx.meta.get(LOOKED_AT, "") not in str(error):
                say_database(ctx)
            if ctx.params.get("debug"):
                click.echo(block("".join(traceback.format_exception(error))), err=True)
            ctx.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))
        except (KeyboardInterrupt, click.Abort):
            ctx.exit(INTERRUPTED)


def _look_around() -> None:
    """A deploy may have deleted the directory that a shell is in."""
    try:
        Path.cwd()
    except FileNotFoundError:
        raise BadSettings("the current directory is gone: go to another one", number="HF1107") from None


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="holdfast")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(debug: bool) -> None:
    """Durable background jobs in the database you already have.

    \b
    Examples:
      holdfast demo --jobs 200
      holdfast worker --help
    """
    for name, setting in misspelled(os.environ).items():
        talk(f"{name} is no setting, and changes nothing; did you mean {setting}?")


# -- options that many commands share ---------------------------------------------------------------------------------

url_option = click.option(
    "--url",
    help="The database: sqlite:///file.db or postgresql://… Wins over HOLDFAST_URL and holdfast.toml; refused if the "
    "application's code names another.",
)


def database_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a command that looks at a database: --url, and --app, which `open_app` finds in the context."""

    def remember(ctx: click.Context, _: click.Parameter, app: str | None) -> None:
        ctx.meta[APP] = app

    app_option = click.option(
        "--app", callback=remember, expose_value=False,
        help="The application whose database it is: module:name or file.py. [env: HOLDFAST_APP]",
    )  # fmt: skip
    return app_option(url_option(command))


def app_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """APP, the application. It may also be named by --app, as other commands have it."""

    def either(ctx: click.Context, _: click.Parameter, app: str | None) -> str | None:
        named: str | None = ctx.params.pop("named_app", None)
        if app and named and app != named:
            raise click.UsageError(f"two applications are named, {app} and --app {named}: which one?")
        return app or named

    app_option = click.option("--app", "named_app", hidden=True, is_eager=True)
    return app_option(click.argument("app", required=False, callback=either)(command))


def open_app(url: str | None) -> Holdfast:
    """The database that a command looks at: that of its --app, its --url or the settings. On a terminal it says which;
    elsewhere only beside an empty list or an error. Not beside JSON, which programs read."""
    context = click.get_current_context()
    found = app_loader.open_app(context.meta.get(APP), url)
    if context.params.get("output", "table") == "table":
        context.meta[LOOKED_AT] = found.settings.shown_url
    if sys.stderr.isatty():
        say_database(context)
    return found


def say_database(context: click.Context) -> None:
    if url := context.meta.pop(LOOKED_AT, None):
        talk(f"database: {url}")


output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True,
    help="How to print the data.",
)  # fmt: skip


def who_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Who does something that is recorded, and why."""
    for option in (
        click.option("--by", help="Who asks. Default: the user's name."),
        click.option("--reason", help="Shown to whoever wonders, and kept in the audit."),
    ):
        command = option(command)
    return command


class DurationType(click.ParamType[float]):
    """Seconds, given as a number or as text with units."""

    name = "duration"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):  # the default
            return value
        option = param.opts[0] if param is not None else "it"
        try:
            seconds = parse_duration(value).total_seconds()
        except (ValueError, OverflowError):
            raise BadArguments(f"{option} {value} is no duration: write 90 (seconds), 90s, 10m or 1h") from None
        if seconds < self._least:
            raise BadArguments(f"{option} {value} is too short: {self._least:g}s is the least")
        return seconds


DURATION = DurationType()

queues_option = click.option("-q", "--queues", help="Only these queues, with commas between. Default: all.")


def split(names: str | None) -> list[str] | None:
    if names is None:
        return None
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise BadSettings("--queues is empty: name queues, or leave it out to serve all of them")
    return found


# -- printing --------------------------------------------------------------------------------------------------------


def say(text: str, *, after: str = "", err: bool = False) -> None:
    """Print a line that may contain untrusted text. `after`: our own styled text to print before it."""
    click.echo(after + harmless(text), err=err)


def talk(text: str) -> None:
    """Print a message for the user to stderr."""
    say(text, err=True)


def to_json(value: Any) -> str:
    """JSON in which characters that terminals act on are escaped."""
    text = msgspec.json.encode(value).decode()
    return re.sub(UNSAFE, lambda found: f"\\u{ord(found[0]):04x}", text)


def print_data(rows: Sequence[Any], output: str, *, one: bool = False) -> None:
    if output == "jsonl" or one:
        for row in rows:
            click.echo(to_json(row))
    else:
        click.echo(to_json(rows))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, err: bool = False) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(Text(_shown(cell)) for cell in row))  # as Text, so that brackets are not taken for markup
    stream = sys.stderr if err else sys.stdout
    # Outside of a terminal, lines are not folded.
    Console(file=stream, highlight=False, width=None if stream.isatty() else 10_000).print(table)
    if not rows and (context := click.get_current_context(silent=True)):
        say_database(context)


def _shown(cell: Any) -> str:
    lines = cell if isinstance(cell, list) else ["" if cell is None else cell]
    return "\n".join(harmless(str(line)) for line in lines)


def counted(count: int, capped: bool) -> str:
    """A number of jobs; `10,000+` where no more were counted."""
    return f"{count:,}+" if capped and count >= COUNTED else f"{count:,}"


def ago(moment: datetime) -> str:
    """How far a moment lies back, or ahead, by this host's clock."""
    return relative_to(datetime.now(UTC), moment)
