"""`python -m holdfast.runner`: the program of a runner process, started by a worker. Its arguments are the descriptor
of its line to the worker, and the terms it is to hold to, as JSON."""

from __future__ import annotations

import socket
import sys

from holdfast import logs
from holdfast.errors import HoldfastError
from holdfast.finding import find_app
from holdfast.work.runners.child import Child
from holdfast.work.runners.settle import leave, leave_signals_to_the_worker, settle
from holdfast.work.runners.wire import Orders, hear_one, say, unfit


def main(descriptor: str, terms: str) -> int:
    settle(terms)
    leave_signals_to_the_worker()
    line = socket.socket(fileno=int(descriptor))
    line.set_inheritable(False)
    told = hear_one(line)
    if not isinstance(told, Orders):
        return 1  # the worker is gone
    try:
        app = find_app(told.app, **told.settings)
        logs.to_stderr(told.verbose, app.settings.log_format)
        Child(line, app.settings, app.crew()).serve()
    except HoldfastError as error:
        say(line, unfit(error))
        return 1
    return 0


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
