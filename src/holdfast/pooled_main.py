"""`python -m holdfast.pooled_main`: the program of a pooled process, started by a worker. It is given the descriptor
of its line to the worker, and the terms it is to hold to, as JSON."""

from __future__ import annotations

import socket
import sys

from holdfast import logs
from holdfast.app_loader import find_app
from holdfast.errors import HoldfastError
from holdfast.runners.child_setup import leave, leave_signals_to_the_worker, settle
from holdfast.runners.pooled_child import Child
from holdfast.runners.wire import Orders, hear_one, say, unfit


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
