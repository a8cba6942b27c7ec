"""`python -m holdfast.isolated_main`: the program of a process that runs one attempt, started by a worker. Its
arguments are the descriptor of its connection to the worker, and its set-up as JSON."""

from __future__ import annotations

import socket
import sys
import traceback

from holdfast.runners.child_setup import forks_are_no_runners, leave, set_up


def main(descriptor: str, setup: str) -> int:
    set_up(setup)
    for stream in (sys.stdout, sys.stderr):  # its lines can be read while it runs, and outlive a crash
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    from holdfast.app_loader import load_app
    from holdfast.errors import HoldfastError
    from holdfast.runners.isolated_child import IsolatedChild, MainThreadRunner
    from holdfast.runners.store_proxy import NoStore
    from holdfast.runners.wire import send, start_failed

    connection = socket.socket(fileno=int(descriptor))
    connection.set_inheritable(False)
    child = IsolatedChild(connection)
    run = child.first_message()
    if run is None:
        return 1  # the worker is gone
    forks_are_no_runners(connection.fileno())
    sys.path[:] = [*run.path, *(entry for entry in sys.path if entry not in run.path)]
    try:
        app = load_app(run.app)
        app.reconfigure(**run.settings)  # the worker has decided about the database
        if not run.database:
            app._withhold(NoStore())
        store = child.store((lambda: app.store) if run.database else None)
        child.serve(app._isolated_runner_group(run.held.task, store, MainThreadRunner))
    except HoldfastError as error:
        send(connection, start_failed(error))
        return 1
    except Exception as error:  # noqa: BLE001 - a resource or hook of the user's may raise anything
        traceback.print_exc()
        send(connection, start_failed(error))
        return 1
    return 0


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
