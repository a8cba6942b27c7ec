"""`serve`: jobs over HTTP, with a worker beside the server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from holdfast import logs
from holdfast.app_loader import named_app
from holdfast.cli.base import app_argument, cli, find_app, queues_option, talk, url_option
from holdfast.errors import BadSettings, HoldfastError
from holdfast.model.access import ROLES
from holdfast.runners.linux import PDEATHSIG, prctl
from holdfast.signals import stop_signals

if TYPE_CHECKING:
    from holdfast.http.server import Open, Server


@cli.command()
@app_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any that is free.")
@click.option("--no-worker", is_flag=True, help="Only serve: workers run elsewhere.")
@click.option(
    "--open", "role", type=click.Choice([*ROLES, "nobody"]), help="The role of requests without a key. nobody: none."
)
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="Also answer to this Host. May be repeated.")
@queues_option
@click.option("-v", "--verbose", count=True, help="-v: each attempt of the worker; -vv: all events.")
@click.option("--socket", "descriptor", type=int, hidden=True, help="A socket that listens, by its descriptor.")
@url_option
def serve(
    app: str | None,
    host: str,
    port: int,
    no_worker: bool,
    role: Open | None,
    hosts: tuple[str, ...],
    queues: str | None,
    verbose: int,
    descriptor: int | None,
    url: str | None,
) -> None:
    """Serve the jobs of APP over HTTP, with a dashboard, and run them in a worker beside the server.

    On a loopback address, whoever is on this machine may do everything, unless --open says otherwise: say it if a
    proxy passes requests on to here. On any other address requests need an API key (`holdfast keys`) or a job token,
    unless --open gives them a role.

    \b
    Examples:
      holdfast serve app:hf
      holdfast serve app:hf --port 8001 --no-worker
    """
    application = find_app(app, url=url)
    logs.to_stderr(0, application.settings.log_format)
    place = port if descriptor is None else socket.socket(fileno=descriptor)
    server = the_server()(application, host, place, open=role, hosts=hosts, runs_jobs=not no_worker)
    options = ["-v"] * verbose + (["--queues", queues] if queues else [])
    worker = None if no_worker else _Worker(named_app(app), options, url, server)
    with stopped_by_signals(server, worker):
        talk(f"serving {application.settings.shown_url} on {server.url}/v1; Ctrl-C stops it")
        talk(f"dashboard: {server.url}/")
        server.run_until_stopped()
        status = 0 if worker is None else worker.ended()
    application.close()
    if status:
        raise HoldfastError(f"the worker beside the server ended with status {status}; its log says why")


def the_server() -> type[Server]:
    try:
        from holdfast.http.server import Server
    except ImportError as missing:
        raise BadSettings(
            f"this needs a package that is missing ({missing.name}): pip install 'holdfast[web]'", number="HF1105"
        ) from None
    return Server


@contextmanager
def stopped_by_signals(server: Server, worker: _Worker | None = None) -> Iterator[None]:
    """A signal stops both. The worker gets each one: the second makes it give back what it runs."""

    def stop(number: int, frame: object) -> None:
        server.stop()
        if worker is not None:
            worker.stop()

    before = {number: signal.signal(number, stop) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Worker:
    """A worker process. If it ends by itself, so does the server: whoever started it sees that, and starts it again."""

    def __init__(self, app: str, options: list[str], url: str | None, server: Server) -> None:
        # The URL may have a password, and everyone sees the arguments of a process.
        environment = {**os.environ, **({"HOLDFAST_URL": url} if url else {})}
        self._process = subprocess.Popen(  # noqa: S603 - our own
            [sys.executable, "-m", "holdfast", "worker", app, *options], env=environment, process_group=0,
            preexec_fn=lambda: prctl(PDEATHSIG, signal.SIGTERM),  # if we are killed, it stops, too
        )  # fmt: skip
        self._asked = False
        threading.Thread(target=self._watch, args=(server,), name="holdfast-serve", daemon=True).start()

    def stop(self) -> None:
        self._asked = True
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Its exit status, once it has ended; 0 if it was asked to."""
        if not self._asked and self._process.poll() is None:
            self.stop()
        status = self._process.wait()
        # The signal kills a worker that has only just been started: it had nothing to finish.
        return 0 if self._asked and status in (0, -signal.SIGTERM) else status or 1

    def _watch(self, server: Server) -> None:
        self._process.wait()
        server.stop()
