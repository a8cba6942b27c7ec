"""`dev`: a worker that restarts whenever a Python file changes, with its log on the same screen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click

from holdfast.app_loader import applications
from holdfast.cli.base import app_argument, cli, queues_option, talk
from holdfast.cli.serve import the_server
from holdfast.errors import BadSettings
from holdfast.runners.linux import PDEATHSIG, prctl
from holdfast.settings import load_settings
from holdfast.signals import stop_signals

PORT = 8000
LOOK = 0.5  # seconds between two looks at the files
PATIENCE = 5.0  # seconds that running jobs get to finish before they are given back
SKIPPED = frozenset(["__pycache__", "node_modules", "site-packages", "build", "dist"])


@cli.command()
@app_argument
@queues_option
@click.option("--port", type=click.IntRange(1, 65535), help="Of the dashboard. Default: 8000, or any that is free.")
def dev(app: str | None, queues: str | None, port: int | None) -> None:
    """Run a worker for APP that restarts when a Python file changes, with a dashboard. Ctrl-C ends it.

    Jobs are kept where `holdfast worker APP` keeps them: it says where. The dashboard needs the extra `web`.

    \b
    Examples:
      holdfast dev app.py
      holdfast dev app.py --queues mail
    """
    app = app or load_settings().app or "app.py"
    path = Path(app.partition(":")[0])
    if path.suffix == ".py" and not path.is_file():
        raise BadSettings(f"there is no file {path}; {applications(str(path))}", number="HF1107")
    home = path.parent.absolute() if path.suffix == ".py" else Path.cwd()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    options = [app, "-v", *(["--queues", queues] if queues else [])]
    try:
        the_server()
    except BadSettings as missing:
        if port is not None:
            raise
        talk(f"without a dashboard: {missing.message}")
        Reloader(["worker", *options], environment, {home, Path.cwd()}).run()
    else:
        # It listens as long as we live, so a browser that asks while the worker starts again has to wait, no more.
        with listening_at(port) as place:
            descriptor = place.fileno()
            Reloader(
                ["serve", "--socket", str(descriptor), *options], environment, {home, Path.cwd()}, descriptor
            ).run()


def listening_at(port: int | None) -> socket.socket:
    """At this port; else at the usual one, if nobody listens there."""
    from holdfast.http.server import listening

    if port is not None:
        return listening("127.0.0.1", port)
    try:
        return listening("127.0.0.1", PORT)
    except BadSettings:
        return listening("127.0.0.1", 0)


class Reloader:
    """Keeps one process running, and restarts it when files change."""

    def __init__(self, command: list[str], environment: dict[str, str], places: set[Path], *inherited: int) -> None:
        self._command = [sys.executable, "-m", "holdfast", *command]
        self._inherited = inherited
        self._environment = environment
        self._places = places
        self._stopping = threading.Event()

    def run(self) -> None:
        before = {number: signal.signal(number, self._stop) for number in stop_signals()}
        try:
            while not self._stopping.is_set():
                seen = self._files()
                # In a process group of its own: Ctrl-C then reaches only us, and the worker once. If we are killed, it
                # stops too.
                with subprocess.Popen(  # noqa: S603 - our own
                    self._command, env=self._environment, process_group=0, pass_fds=self._inherited,
                    preexec_fn=lambda: prctl(PDEATHSIG, signal.SIGTERM),
                ) as process:  # fmt: skip
                    changed = self._watch(process, seen)
                    end(process)
                if changed:
                    talk(f"{changed} changed: starting again")
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, signum: int, frame: object) -> None:
        self._stopping.set()

    def _watch(self, process: subprocess.Popen[bytes], seen: dict[Path, int]) -> Path | None:
        """Wait until a file changes, or until we are asked to stop."""
        ended = False
        while not self._stopping.wait(LOOK):
            now = self._files()
            for path in now.keys() | seen.keys():
                if now.get(path) != seen.get(path):
                    return path
            if process.poll() is not None and not ended:
                ended = True
                talk(f"it ended with status {process.returncode}: it starts again when a file changes")
        return None

    def _files(self) -> dict[Path, int]:
        return {path: changed for place in self._places for path, changed in python_files(place)}


def python_files(place: Path) -> Iterator[tuple[Path, int]]:
    """The Python files of a project and when they last changed, without hidden folders and environments."""
    for root, folders, files in os.walk(place):
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED and not name.startswith(".") and not (Path(root) / name / "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py"):
                path = Path(root) / name
                try:
                    yield path, path.stat().st_mtime_ns
                except FileNotFoundError:
                    continue  # an editor is replacing it


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to finish, then to give back its jobs, then kill it."""
    for number, patience in ((signal.SIGTERM, PATIENCE), (signal.SIGTERM, PATIENCE), (signal.SIGKILL, None)):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
