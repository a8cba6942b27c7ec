"""`python -m holdfast.isolated_main`: the program of a process that runs one attempt, started by a worker. It is given
the descriptor of its line to the worker, and the terms it must keep."""

from __future__ import annotations

import socket
import sys
import traceback

from holdfast.runners.child_setup import forks_are_no_runners, leave, settle


def main(descriptor: str, terms: str) -> int:
    settle(terms)
    from holdfast.app_loader import find_app
    from holdfast.errors import HoldfastError
    from holdfast.runners.isolated_child import IsolatedChild, MainThreadRunner
    from holdfast.runners.store_proxy import Withheld
    from holdfast.runners.wire import say, unfit

    line = socket.socket(fileno=int(descriptor))
    line.set_inheritable(False)
    lone = IsolatedChild(line)
    run = lone.hear()
    if run is None:
        return 1
    forks_are_no_runners(line.fileno())
    sys.path[:] = [*run.path, *(entry for entry in sys.path if entry not in run.path)]
    try:
        app = find_app(run.app, **run.settings)
        if not run.database:
            app.withhold(Withheld())
        store = lone.store((lambda: app.store) if run.database else None)
        lone.serve(app.crew_for(run.held.task, store, MainThreadRunner))
    except HoldfastError as error:
        say(line, unfit(error))
        return 1
    except Exception as error:  # noqa: BLE001 - a resource or hook of the user's may raise anything
        traceback.print_exc()
        say(line, unfit(error))
        return 1
    return 0


if __name__ == "__main__":
    leave(main(*sys.argv[1:]))
