"""`worker` and `drain`: run jobs until stopped, or until nothing is due."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast import logs
from holdfast.cli.base import app_argument, cli, find_app, output_option, queues_option, split, to_json, url_option
from holdfast.client import Holdfast
from holdfast.finding import named_app
from holdfast.settings import load_settings
from holdfast.work.options import names_of
from holdfast.work.runners.settle import stop_signals

if TYPE_CHECKING:
    from holdfast.work.worker import Worker

log_format_option = click.option(
    "--log-format", type=click.Choice(["text", "json"]),
    help="How to write the log: text, or one JSON object a line. [env: HOLDFAST_LOG_FORMAT]",
)  # fmt: skip
processes_option = click.option(
    "-p", "--processes", type=click.IntRange(0),
    help="Run handlers in so many processes of their own; 0: in the worker's. [env: HOLDFAST_PROCESSES]",
)  # fmt: skip
concurrency_option = click.option(
    "-c", "--concurrency", type=click.IntRange(1), help="Coroutines at once in each process; threads too, if given."
)


@cli.command()
@app_argument
@queues_option
@processes_option
@concurrency_option
@click.option("-v", "--verbose", count=True, help="Say more: -v claims and rescues, -vv every poll.")
@log_format_option
@url_option
def worker(
    app: str | None, queues: str | None, processes: int | None, concurrency: int | None, verbose: int,
    log_format: str | None, url: str | None,
) -> None:  # fmt: skip
    """Run the jobs of APP (module:name or file.py) until stopped.

    The first SIGTERM or Ctrl-C lets running jobs finish; a second one gives them back at once.

    \b
    Examples:
      holdfast worker app:hf
      holdfast worker app.py --queues mail,default --processes 2 --concurrency 8
    """
    running = start(app, queues, processes, verbose, url=url, log_format=log_format, **slots(concurrency))
    served = f"queues {', '.join(split(queues) or [])}" if queues else "all queues"
    with stopped_by_signals(running):
        click.echo(
            f"worker {running.id} on {running.where}: {', '.join(running.tasks)}; {served}; Ctrl-C stops it", err=True
        )
        processed = running.run()
    click.echo(f"stopped; {processed} {'job' if processed == 1 else 'jobs'} processed", err=True)


@cli.command()
@app_argument
@queues_option
@processes_option
@concurrency_option
@click.option("--seconds", type=click.FloatRange(0), help="Stop claiming after so many seconds.")
@click.option("--jobs", type=click.IntRange(1), help="Stop after so many jobs.")
@output_option
@log_format_option
@url_option
def drain(
    app: str | None, queues: str | None, processes: int | None, concurrency: int | None, seconds: float | None,
    jobs: int | None, output: str, log_format: str | None, url: str | None,
) -> None:  # fmt: skip
    """Run what is due, then exit: for cron and short-lived hosts. Prints how many jobs were processed.

    \b
    Examples:
      holdfast drain app:hf
      holdfast drain app:hf --seconds 50
    """
    running = start(app, queues, processes, 0, url=url, log_format=log_format, **slots(concurrency))
    with stopped_by_signals(running):
        processed = running.drain(seconds=seconds, jobs=jobs)
    click.echo(processed if output == "table" else to_json({"processed": processed}))


def start(app: str | None, queues: str | None, processes: int | None, verbose: int, **settings: Any) -> Worker:
    """The worker a command line means. With processes of its own for handlers it imports no application."""
    from holdfast.work.isolating import isolating  # other commands need no worker
    from holdfast.work.runners.pool import Pool
    from holdfast.work.worker import Worker

    settings["processes"] = processes
    if load_settings(processes=processes).processes:
        pool = Pool(named_app(app), verbose=verbose, **settings)
        if pool.settings.processes:
            logs.to_stderr(verbose, pool.settings.log_format)
            store = Holdfast(**asdict(pool.settings)).store
            served = None if queues is None else names_of("worker: queues", split(queues))
            crew = isolating(pool, lambda: named_app(app), store, pool.settings, suspects=True)
            return Worker(store, pool.settings, crew, queues=served)
        pool.close()  # the application itself says so
    found = find_app(app, **settings)
    logs.to_stderr(verbose, found.settings.log_format)
    return found.worker(split(queues))


def slots(concurrency: int | None) -> dict[str, int]:
    return {} if concurrency is None else {"concurrency": concurrency, "threads": concurrency}


@contextlib.contextmanager
def stopped_by_signals(running: Worker) -> Iterator[None]:
    told = f"stopping: running jobs get up to {running.grace:g} s; once more, and they are given back\n".encode()
    stopping = hung_up = False

    def stop(signum: int, frame: object) -> None:
        nonlocal stopping, hung_up
        if stopping and (hung_up or signum == signal.SIGHUP):
            # A service manager may send a hang-up with the other, and we hear them in any order: nobody asked twice.
            hung_up = hung_up and signum == signal.SIGHUP
            return
        stopping, hung_up = True, signum == signal.SIGHUP
        if running.stop() == 1:
            # Not by way of a stream: the signal may have come in the middle of a write to it.
            with contextlib.suppress(OSError):  # the terminal is gone
                os.write(2, told)

    before = {number: signal.signal(number, stop) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
