"""`python -m holdfast.pooled_main`: the program of a pooled process, started by a worker. Its arguments are the
descriptor of its connection to the worker, and its set-up as JSON."""

from __future__ import annotations

import socket
import sys

from holdfast import logs
from holdfast.app_loader import find_app
from holdfast.errors import HoldfastError
from holdfast.runners.child_setup import leave, leave_signals_to_the_worker, set_up
from holdfast.runners.pooled_child import PooledChild
from holdfast.runners.wire import Configure, receive_one, send, start_failed


def main(descriptor: str, setup: str) -> int:
    set_up(setup)
    leave_signals_to_the_worker()
    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    configure = receive_one(connection)
    if not isinstance(configure, Configure):
        return 1  # the worker is gone
    try:
        app = find_app(configure.app, **configure.settings)
        logs.to_stderr(configure.verbose, app.settings.log_format)
        PooledChild(connection, app.settings, app._runner_group()).serve()
    except HoldfastError as error:
        send(connection, start_failed(error))
        return 1
    return 0


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
