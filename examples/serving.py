"""Serves an application's page, with a worker in the same process or without."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any

import click
import uvicorn

from holdfast import BadSettings, Holdfast, HoldfastError, Worker


def serve(web: Any, hf: Holdfast, host: str, port: int, *, worker: bool) -> int:
    """Until told to stop. Returns the exit status: 1 if the worker ended before that. Whoever started us sees it, and
    starts us again."""
    try:
        listening = socket.create_server((host, port), backlog=2048)
    except OSError as error:
        raise BadSettings(
            f"can't listen on {host}, port {port}: {error.strerror}; choose another with --host or --port"
        ) from None
    working = hf.worker() if worker else None
    server = _Server(web, working)
    click.echo(f"http://{host}:{listening.getsockname()[1]}")
    with nullcontext() if working is None else _beside(server, working):
        server.run(sockets=[listening])
    hf.close()
    return 0 if server.told else 1


class _Server(uvicorn.Server):
    """A signal stops it, and the worker beside it. uvicorn by itself raises the signal again when it has ended: that
    would kill the process before the worker has given back its jobs."""

    def __init__(self, web: Any, worker: Worker | None) -> None:
        super().__init__(uvicorn.Config(web, lifespan="off", log_level="warning"))
        self._worker = worker
        self.told = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.handle_exit)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.told = True
        super().handle_exit(sig, frame)
        if self._worker is not None:
            self._worker.stop()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def _beside(server: _Server, worker: Worker) -> Iterator[None]:
    """The worker runs in a thread. If it ends, so does the server."""

    def work() -> None:
        try:
            worker.run()
        except HoldfastError as error:
            click.echo(f"error: {error}", err=True)
        finally:
            server.should_exit = True

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    try:
        yield
    finally:
        if not server.told:
            worker.stop()
        thread.join()
