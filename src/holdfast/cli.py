"""The command line: parse, call, print. Data goes to stdout, talk to stderr; exit codes are those of `EXIT_CODES`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
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
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.settings import load_settings
from holdfast.store.sqlite.connect import path_of
from holdfast.work.worker import Worker

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
            click.echo(f"holdfast: {error}", err=True)
            ctx.exit(next(code for kind, code in EXIT_CODES if isinstance(error, kind)))


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="holdfast")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(debug: bool) -> None:
    """Durable background jobs in the database you already have."""


def main() -> None:
    cli(prog_name="holdfast")


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


# -- work ------------------------------------------------------------------------------------------------------------


@cli.command()
@app_argument
@queues_option
@click.option("-c", "--concurrency", type=click.IntRange(1), help="Coroutines at once; threads too, if given.")
@click.option("-v", "--verbose", count=True, help="Say more: -v claims and rescues, -vv every poll.")
@url_option
def worker(app: str | None, queues: str | None, concurrency: int | None, verbose: int, url: str | None) -> None:
    """Run the jobs of APP (module:name or file.py) until stopped.

    The first SIGTERM or Ctrl-C lets running jobs finish; a second one gives them back at once.

    \b
    Examples:
      holdfast worker app:hf
      holdfast worker app.py --queues mail,default --concurrency 8
    """
    log_to_stderr(verbose)
    running = find_app(app, url=url, **slots(concurrency)).worker(split(queues))
    served = f"queues {', '.join(split(queues) or [])}" if queues else "all queues"
    click.echo(
        f"worker {running.id} on {running.where}: {', '.join(running.tasks)}; {served}; Ctrl-C stops it", err=True
    )
    with stopped_by_signals(running):
        processed = running.run()
    click.echo(f"stopped; {processed} jobs processed", err=True)


@cli.command()
@app_argument
@queues_option
@click.option("-c", "--concurrency", type=click.IntRange(1), help="Coroutines at once; threads too, if given.")
@click.option("--seconds", type=click.FloatRange(0), help="Stop claiming after so many seconds.")
@click.option("--jobs", type=click.IntRange(1), help="Stop after so many jobs.")
@output_option
@url_option
def drain(
    app: str | None, queues: str | None, concurrency: int | None, seconds: float | None, jobs: int | None, output: str,
    url: str | None,
) -> None:  # fmt: skip
    """Run what is due, then exit: for cron and short-lived hosts. Prints how many jobs were processed.

    \b
    Examples:
      holdfast drain app:hf
      holdfast drain app:hf --seconds 50
    """
    log_to_stderr(0)
    running = find_app(app, url=url, **slots(concurrency)).worker(split(queues))
    with stopped_by_signals(running):
        processed = running.drain(seconds=seconds, jobs=jobs)
    click.echo(processed if output == "table" else to_json({"processed": processed}))


def slots(concurrency: int | None) -> dict[str, int]:
    return {} if concurrency is None else {"concurrency": concurrency, "threads": concurrency}


@contextlib.contextmanager
def stopped_by_signals(running: Worker) -> Iterator[None]:
    def stop(signum: int, frame: object) -> None:
        if running.stop() == 1:
            # Not by way of a stream: the signal may have come in the middle of a write to it.
            os.write(
                2,
                f"stopping: running jobs get up to {running.grace:g} s; once more, and they are given back\n".encode(),
            )

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def log_to_stderr(verbose: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("psycopg").setLevel(logging.ERROR)  # what it notices of a broken connection, we tell ourselves
    log = logging.getLogger("holdfast")
    log.addHandler(handler)
    log.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)])


# -- jobs ------------------------------------------------------------------------------------------------------------


@cli.group()
def jobs() -> None:
    """Look at jobs."""


@jobs.command("list")
@click.option("--state", type=click.Choice([state.value for state in State]), help="Only jobs in this state.")
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--task", help="Only jobs of this task.")
@click.option("--before", metavar="ID", help="Only jobs older than this one: the next page.")
@click.option("-n", "--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@output_option
@url_option
def list_jobs(
    state: str | None, queue: str | None, task: str | None, before: str | None, limit: int, output: str, url: str | None
) -> None:
    """List jobs, newest first.

    \b
    Examples:
      holdfast jobs list --state failed
      holdfast jobs list --queue mail -n 5 -o json
    """
    found = open_app(url).jobs(state=state, queue=queue, task=task, before=before, limit=limit)
    if output == "table":
        print_table(
            ("id", "state", "task", "queue", "attempt", "due", "error"),
            [
                (
                    job.id, shown_state(job), job.task, job.queue, f"{job.attempt}/{job.max_attempts}", ago(job.run_at),
                    "" if job.state is State.SUCCEEDED else job.error_code or "",
                )
                for job in found
            ],
        )  # fmt: skip
        return
    print_data([job_data(job) for job in found], output)


@jobs.command("show")
@click.argument("id")
@output_option
@url_option
def show_job(id: str, output: str, url: str | None) -> None:
    """Show one job with its history.

    \b
    Examples:
      holdfast jobs show 42
      holdfast jobs show 42 -o json
    """
    app = open_app(url)
    record = app.store.get(id)
    attempts = app.store.attempts(id)
    if output != "table":
        data = job_data(record) | {"attempts": [plain(asdict(attempt)) for attempt in attempts]}
        print_data([data], output, one=True)
        return
    for name, value in job_data(record).items():
        if value not in (None, [], False, ""):
            shown = value if isinstance(value, str) else to_json(value)
            click.echo(f"{name:<16} {shown}")
    for attempt in attempts:
        why = f": {attempt.error_code}: {attempt.error_message}" if attempt.error_code else ""
        click.echo(f"attempt {attempt.number:<8} {attempt.outcome} by {attempt.worker} {ago(attempt.ended_at)}{why}")
    if attempts and attempts[-1].traceback:
        click.echo(attempts[-1].traceback)


def shown_state(job: JobRecord) -> str:
    """The state, in the words people use for a queued job that lies ahead."""
    if job.state is State.QUEUED and job.run_at > datetime.now(UTC):
        return "retrying" if job.attempt else "scheduled"
    if job.state is State.RUNNING and job.cancel_requested:
        return "running (cancel asked)"
    if job.state is State.RUNNING and job.pause_requested:
        return "running (pause asked)"
    return job.state.value


def job_data(job: JobRecord) -> dict[str, Any]:
    data = plain(asdict(job))
    for name in ("args", "result", "checkpoint"):
        value = getattr(job, name)
        data[name] = None if value is None else msgspec.json.decode(value)
    return data


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


# -- set-up and show -------------------------------------------------------------------------------------------------


@cli.command()
@app_argument
@url_option
@output_option
def migrate(app: str | None, url: str | None, output: str) -> None:
    """Bring the schema of APP's database, or of the one at --url, up to date. Safe from many places at once.

    \b
    Examples:
      holdfast migrate app:hf
      holdfast migrate --url sqlite:///jobs.db
    """
    configured = find_app(app) if app or (load_settings().app and url is None) else Holdfast(url)
    applied = configured.migrate()
    click.echo(f"{configured.settings.shown_url} is up to date", err=True)
    if output == "table":
        for name in applied:
            click.echo(name)
    else:
        print_data(applied, output)


@cli.command()
@click.option("--jobs", type=click.IntRange(100), default=3000, show_default=True, help="How many jobs, about.")
@click.option("--keep", type=click.Path(path_type=Path), help="Keep the database at this path, to look around in.")
def demo(jobs: int, keep: Path | None) -> None:
    """Watch a few thousand jobs survive a killed worker. Exit status 1 if anything was lost.

    \b
    Examples:
      holdfast demo
      holdfast demo --jobs 500 --keep demo.db
    """
    from holdfast.demo.show import run

    raise SystemExit(run(jobs, keep))


@cli.command()
@click.option("--jobs", type=click.IntRange(100), default=20_000, show_default=True, help="Jobs in a drain.")
@click.option("--engine", type=click.Choice(["sqlite", "postgres", "both"]), default="both", show_default=True)
@click.option("--url", help="A PostgreSQL to measure, in a schema of its own. Default: a private one.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Readings of each figure.")
@click.option("--steady", type=click.FloatRange(1), default=10.0, show_default=True, help="Seconds of steady load.")
@click.option(
    "--idle", type=click.FloatRange(1), default=30.0, show_default=True, help="Seconds an idle worker is watched."
)
@click.option("--long", is_flag=True, help="Also what takes long: million-row tables, memory, a pinned snapshot.")
@click.option("--crowd", type=click.IntRange(1000), default=1_000_000, show_default=True, help="Rows for --long.")
@click.option(
    "--pinned-seconds", type=click.FloatRange(2), default=600.0, show_default=True,
    help="How long a snapshot is pinned, for --long.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document instead of a table.")
def bench(
    jobs: int, engine: str, url: str | None, rounds: int, steady: float, idle: float, long: bool, crowd: int,
    pinned_seconds: float, as_json: bool,
) -> None:  # fmt: skip
    """Measure this machine: the raw limits of the database, Holdfast, and the ratios between them.

    \b
    Examples:
      holdfast bench --engine sqlite --jobs 2000
      holdfast bench --json
    """
    from holdfast.bench.report import report
    from holdfast.bench.run import measure
    from holdfast.bench.sizes import Sizes

    sizes = Sizes(
        jobs=jobs, rounds=rounds, steady_seconds=steady, idle_seconds=idle, long=long, crowd=crowd,
        pinned_seconds=pinned_seconds,
    )  # fmt: skip
    figures = measure(("sqlite", "postgres") if engine == "both" else (engine,), url=url, sizes=sizes)
    click.echo(to_json(figures) if as_json else report(figures))


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
