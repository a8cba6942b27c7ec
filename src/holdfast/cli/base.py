"""What every command shares: our errors as one sentence and an exit code, options, finding the application, printing.
Data goes to stdout, talk to stderr; exit codes are those of `EXIT_CODES`."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import msgspec

from holdfast.client import Holdfast
from holdfast.errors import (
    BadArguments,
    BadSettings,
    HoldfastError,
    JobNotFound,
    Refused,
    SchemaOutdated,
    StoreUnavailable,
    UnknownTask,
)
from holdfast.redact import scrub
from holdfast.settings import load_settings
from holdfast.store.sqlite.connect import path_of

EXIT_CODES: tuple[tuple[type[HoldfastError], int], ...] = (
    (BadSettings, 2),
    (BadArguments, 2),
    (UnknownTask, 2),
    (JobNotFound, 3),
    (Refused, 4),
    (StoreUnavailable, 5),
    (SchemaOutdated, 6),
    (HoldfastError, 1),
)


class Cli(click.Group):
    """Turns our errors into one sentence and an exit code; a traceback only with --debug."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            if ctx.params.get("debug"):
                raise
            click.echo(f"holdfast: {scrub(str(error))}", err=True)
            ctx.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="holdfast")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(debug: bool) -> None:
    """Durable background jobs in the database you already have."""


# -- options many commands share -------------------------------------------------------------------------------------

url_option = click.option("--url", help="The database: sqlite:///file.db or postgresql://… [env: HOLDFAST_URL]")
output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table", show_default=True,
    help="How to print the data.",
)  # fmt: skip
app_argument = click.argument("app", required=False)
queues_option = click.option("-q", "--queues", help="Only these queues, with commas between. Default: all.")


def split(names: str | None) -> list[str] | None:
    if names is None:
        return None
    found = [name.strip() for name in names.split(",") if name.strip()]
    if not found:
        raise BadSettings("--queues is empty: name queues, or leave it out to serve all of them")
    return found


# -- finding the application -----------------------------------------------------------------------------------------


def open_app(url: str | None) -> Holdfast:
    """The database to look at: the one named, else the configured application's, else the configured one."""
    known = load_settings(url=url)
    app = find_app(None) if known.app and url is None else Holdfast(url)
    if app.settings.url.startswith("sqlite") and not path_of(app.settings).exists():
        raise BadSettings(f"there is no file {path_of(app.settings)}: name the database with --url or HOLDFAST_URL")
    return app


def find_app(where: str | None, *, url: str | None = None, **settings: Any) -> Holdfast:
    """The application a command line names: `module:name`, `file.py:name`, `module`, or the setting `app`."""
    where = where or load_settings().app
    if not where:
        raise BadSettings('which application? Name it (holdfast worker app:hf), or set app = "app:hf" in holdfast.toml')
    place, _, name = where.partition(":")
    module = load(place)
    found = {key: value for key, value in vars(module).items() if isinstance(value, Holdfast)}
    if name and name not in found:
        there = ", ".join(sorted(found)) or "none"
        raise BadSettings(f"{place} has no Holdfast application called {name!r}; found: {there}")
    if not name and len(found) != 1:
        there = ", ".join(sorted(found)) or "none"
        raise BadSettings(f"{place} should have one Holdfast application, or be named as {place}:name; found: {there}")
    app = found[name] if name else next(iter(found.values()))
    given = {key: value for key, value in {"url": url, **settings}.items() if value is not None}
    if given:
        app.reconfigure(**given)
    return app


def load(place: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    path = Path(place)
    if path.suffix != ".py":
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as missing:
            if missing.name is None or not place.startswith(missing.name):
                raise
            raise BadSettings(f"there is no module {place!r} here ({Path.cwd()}); {modules_here()}") from None
    if not path.is_file():
        raise BadSettings(f"there is no file {place}; {modules_here()}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def modules_here() -> str:
    files = sorted(path.name for path in Path.cwd().glob("*.py"))
    return "found: " + (", ".join(files) or "no Python files")


# -- printing --------------------------------------------------------------------------------------------------------


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def print_data(rows: Sequence[Any], output: str, *, one: bool = False) -> None:
    if output == "jsonl" or one:
        for row in rows:
            click.echo(to_json(row))
    else:
        click.echo(to_json(rows))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*map(str, row))
    Console(highlight=False).print(table)


def plain(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in data.items()}


def ago(moment: datetime) -> str:
    seconds = (datetime.now(UTC) - moment).total_seconds()
    size = abs(seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if size >= length:
            text = f"{size / length:.0f}{unit}"
            break
    else:
        text = f"{size:.0f}s"
    return f"{text} ago" if seconds >= 0 else f"in {text}"
