"""Serves an application's page, with a worker in the same process or without."""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import Any

import click

from holdfast import Holdfast, HoldfastError


def serve(web: Any, hf: Holdfast, host: str, port: int, *, worker: bool) -> int:
    """Until told to stop. Returns the exit status: 0, unless the worker ended by itself or in disorder."""
    import uvicorn

    listening = socket.create_server((host, port), backlog=2048)
    server = uvicorn.Server(uvicorn.Config(web, lifespan="off", log_level="warning"))
    click.echo(f"http://{host}:{listening.getsockname()[1]}")
    if not worker:
        server.run(sockets=[listening])
        return 0
    working = hf.worker()
    ended: list[int] = []

    def work() -> None:
        try:
            ended.append(working.run())
        except HoldfastError as error:  # it could not start
            click.echo(f"error: {error}", err=True)
        finally:
            server.should_exit = True  # whoever started us sees it, and starts us again

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    try:
        server.run(sockets=[listening])
    finally:
        working.stop()
        thread.join()
        hf.close()
    return 0 if ended == [0] else 1


def become_worker(hf: Holdfast, app: str) -> None:
    """`holdfast worker APP`, in place of this process."""
    hf.close()
    os.execv(sys.executable, [sys.executable, "-m", "holdfast", "worker", app])  # noqa: S606
