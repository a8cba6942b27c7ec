"""`worker` and `drain`: run jobs until stopped, or until nothing is due."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator

import click

from holdfast.cli.base import app_argument, cli, find_app, output_option, queues_option, split, to_json, url_option
from holdfast.work.worker import Worker


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
    click.echo(f"stopped; {processed} {'job' if processed == 1 else 'jobs'} processed", err=True)


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
