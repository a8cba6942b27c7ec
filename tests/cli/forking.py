"""Runs `holdfast …` in a process of its own without starting Python anew each time: one process imports what every
command imports and forks itself for each. From there on it is what `python -m holdfast …` is: its own directory,
environment and standard streams, its own module `__main__`, its own end."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

# Between it and a command stands a process that awaits the command's end and tells it: commands may run side by side.
SERVER = """
import gc, json, os, runpy, signal, socket, sys, time
import holdfast.cli

orders = socket.socket(fileno=int(sys.argv[1]))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
gc.freeze()
while True:
    order, given, _, _ = socket.recv_fds(orders, 1 << 20, 4)
    if not order:
        sys.exit()
    if os.fork() == 0:
        break
    for descriptor in given:
        os.close(descriptor)
orders.close()
*streams, answer = given
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
command = os.fork()
if command:
    os.write(answer, b"%d" % command)
    _, status = os.waitpid(command, 0)
    os.write(answer, b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)
os.close(answer)
for number, stream in enumerate(streams):
    os.dup2(stream, number)
    os.close(stream)
arguments, directory, environment = json.loads(order)
os.chdir(directory)
os.environ.clear()
os.environ.update(environment)
time.tzset()
sys.argv = ["holdfast", *arguments]
sys.path[0] = directory
runpy.run_module("holdfast", run_name="__main__", alter_sys=True)
"""


def run_holdfast(
    arguments: Sequence[str], *, cwd: Path, env: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    order = json.dumps([arguments, str(cwd), env]).encode()
    ours, theirs = _pair()
    with ours, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with theirs, open(os.devnull) as nothing:
            socket.send_fds(_server(), [order], [file.fileno() for file in (nothing, out, err, theirs)])
        command = int(ours.recv(20))
        ours.settimeout(timeout)
        try:
            code = int(ours.recv(20))
        except TimeoutError:
            os.kill(command, signal.SIGKILL)
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read().decode(), err.read().decode())


@cache
def _server() -> socket.socket:
    """Where orders go. One per test process; it ends when that one does."""
    ours, theirs = _pair()
    with theirs:
        server = subprocess.Popen([sys.executable, "-c", SERVER, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    atexit.register(server.wait)
    atexit.register(server.kill)
    return ours


def _pair() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
