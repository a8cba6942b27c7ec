"""`worker` and `drain`: run jobs until stopped, or until none is due."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from holdfast import logs
from holdfast.app import Holdfast
from holdfast.app_loader import named_app
from holdfast.cli.base import (
    DURATION,
    app_argument,
    cli,
    find_app,
    output_option,
    queues_option,
    split,
    talk,
    to_json,
    url_option,
)
from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.job import Processed
from holdfast.model.text import did_you_mean, plural
from holdfast.redact import scrub
from holdfast.settings import Settings, load_settings
from holdfast.signals import Signals, Stopped, signals
from holdfast.store.base import Store
from holdfast.tasks.options import names_of

if TYPE_CHECKING:
    from holdfast.worker.probes import Probes
    from holdfast.worker.worker import Worker

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
http_option = click.option(
    "--http", "address", metavar="HOST:PORT", help="Answer /health, /livez, /readyz and /metrics there: 127.0.0.1:8081."
)


@cli.command()
@app_argument
@queues_option
@processes_option
@concurrency_option
@http_option
@click.option("--http-open", is_flag=True, help="With --http: also where others can reach it.")
@click.option("-v", "--verbose", count=True, help="Say more: -v claims and rescues, -vv every poll.")
@log_format_option
@url_option
def worker(
    app: str | None, queues: str | None, processes: int | None, concurrency: int | None, address: str | None,
    http_open: bool, verbose: int, log_format: str | None, url: str | None,
) -> None:  # fmt: skip
    """Run the jobs of APP (module:name or file.py) until stopped.

    The first SIGTERM or Ctrl-C lets running jobs finish; a second one gives them back at once.

    \b
    Examples:
      holdfast worker app:hf
      holdfast worker app.py --queues mail,default --processes 2 --concurrency 8
    """
    served = f"queues {', '.join(split(queues) or [])}" if queues else "all queues"
    processed = Processed.count(0, 0, 0)
    probes = _probes(address, http_open)
    with stoppable() as heard, contextlib.ExitStack() as stack:
        running = start(app, queues, processes, verbose, heard, url=url, log_format=log_format, **slots(concurrency))
        if probes is not None:
            stack.enter_context(probes.answering(running.pages()))
            served += f"; {probes.url}/health"
        talk(f"worker {running.id} on {running.where}: {', '.join(running.tasks)}; {served}; Ctrl-C stops it")
        processed = running.run()
    talk(f"stopped; {described(processed)}")


def _probes(address: str | None, http_open: bool) -> Probes | None:
    if address is None:
        if http_open:
            raise BadSettings("--http-open is about --http: say where to listen")
        return None
    from holdfast.worker.probes import Probes

    return Probes(address, open=http_open)


@cli.command()
@app_argument
@queues_option
@processes_option
@concurrency_option
@click.option("--seconds", type=DURATION, help="Stop claiming after this time: 50, 10m.")
@click.option("--jobs", type=click.IntRange(1), help="Claim no more than so many jobs; a retry counts again.")
@output_option
@log_format_option
@url_option
def drain(
    app: str | None, queues: str | None, processes: int | None, concurrency: int | None, seconds: float | None,
    jobs: int | None, output: str, log_format: str | None, url: str | None,
) -> None:  # fmt: skip
    """Run the jobs that are due, then exit: for cron and short-lived hosts. Prints how many jobs finished: succeeded,
    failed for good or cancelled.

    \b
    Examples:
      holdfast drain app:hf
      holdfast drain app:hf --seconds 50
    """
    processed = Processed.count(0, 0, 0)
    with stoppable() as heard:
        running = start(app, queues, processes, 0, heard, url=url, log_format=log_format, **slots(concurrency))
        processed = running.drain(seconds=seconds, jobs=jobs)
    numbers = {"jobs": int(processed), "failed": processed.failed, "attempts": processed.attempts}
    click.echo(described(processed) if output == "table" else to_json(numbers))


def start(
    app: str | None, queues: str | None, processes: int | None, verbose: int, heard: Signals, **settings: Any
) -> Worker:  # fmt: skip
    """The worker for a command line, which signals stop. If handlers run in other processes, it does not import the
    application."""
    from holdfast.runners.isolated import with_isolation  # only these commands need a worker
    from holdfast.runners.process_pool import ProcessPool
    from holdfast.worker.worker import Worker

    settings["processes"] = processes
    known = load_settings(processes=processes, log_format=settings["log_format"])
    if known.processes:
        logs.to_stderr(verbose, known.log_format)  # the application's own settings may change it later
        pool = ProcessPool(named_app(app), verbose=verbose, stopping=lambda: bool(heard.asked), **settings)
        if pool.settings.processes:
            logs.to_stderr(verbose, pool.settings.log_format)
            store = Holdfast(**asdict(pool.settings), pinned=True).store
            served = None if queues is None else names_of("worker: queues", split(queues))
            hint_at_queues(store, [task.queue for task in pool.tasks], served, pool.settings)
            group = with_isolation(pool, lambda: named_app(app), store, pool.settings, suspects=True)
            return stopped_by(heard, Worker(store, pool.settings, group, queues=served))
        pool.close(0.0)  # the application's own settings say so
    found = find_app(app, **settings)
    logs.to_stderr(verbose, found.settings.log_format)
    hint_at_queues(found.store, [task._defaults.queue for task in found.tasks.values()], split(queues), found.settings)
    return stopped_by(heard, found.worker(split(queues)))


def hint_at_queues(store: Store, declared: list[str], served: Iterable[str] | None, settings: Settings) -> None:
    """A queue that nobody knows may have its first job yet to come, or it is misspelled: warn, and serve it."""
    if served is None and not settings.queues:
        return
    known = {*declared, *(depth.queue for depth in store.reads.depths())}
    known.update(*(worker.queues or () for worker in store.workers.all()))
    for queue in served or ():
        if queue not in known:
            talk(f"no task, job or other worker uses queue {queue!r}{did_you_mean(queue, known)}")
    for queue in settings.queues.keys() - known:
        talk(f"no task, job or other worker uses queue {queue!r}, which the settings name{did_you_mean(queue, known)}")
    for overruled in settings.overruled(served or declared):
        talk(overruled)


def stopped_by(heard: Signals, worker: Worker) -> Worker:
    heard.serve(worker)
    return worker


def described(processed: Processed) -> str:
    failed = f", {processed.failed} of them failed" if processed.failed else ""
    attempts = f"{processed.attempts} {plural('attempt', processed.attempts)}"
    return f"{int(processed)} {plural('job', processed)} done{failed} ({attempts})"


def slots(concurrency: int | None) -> dict[str, int]:
    return {} if concurrency is None else {"concurrency": concurrency, "threads": concurrency}


@contextlib.contextmanager
def stoppable() -> Iterator[Signals]:
    """A stop signal at any moment leads to exit status 0."""
    heard = signals()
    heard.begin()
    try:
        yield heard
    except Stopped:
        pass
    except HoldfastError as error:
        if not heard.asked:
            raise
        talk(scrub(str(error)))
    finally:
        heard.over()
