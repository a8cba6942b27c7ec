"""The worker's side of the store proxy: what isolated processes want stored, each for its own attempt."""

from __future__ import annotations

import time
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.runners.arrivals import Arrivals
from holdfast.runners.isolated_process import IsolatedProcess
from holdfast.runners.messages import Ask, FindStep, KeepStep, RecordsSuccess, Reply, SaveCheckpoint, StoreRequest
from holdfast.runners.wire import Garbled
from holdfast.store.base import Ref, Store


class StoreRequests:
    def __init__(self, store: Store, arrivals: Arrivals, helpers: Executor) -> None:
        """`helpers`: threads that wait for the database, so that the watcher's thread does not."""
        self._store = store
        self._arrivals = arrivals
        self._helpers = helpers

    def received(self, process: IsolatedProcess, ask: Ask) -> None:
        process.check_room()
        if isinstance(ask.request, RecordsSuccess):
            # At once: the handler has a transaction open, and on SQLite all helpers may be waiting for its end.
            process.attempt.recorded = True
            process.send(Reply(ask.number, None, None))
            return
        if not process.requests.acquire(blocking=False):
            raise Garbled("asked for more than it may at once")
        with suppress(RuntimeError):  # we are closed: nobody is left to wait for a reply
            self._helpers.submit(self._serve, process, ask)

    def _serve(self, process: IsolatedProcess, ask: Ask) -> None:
        """On a helper's thread: store it under the attempt's own lease, whatever the request says."""
        held = process.attempt.held
        try:
            value = self._perform(Ref(held.id, held.fence), ask.request)
        except HoldfastError as error:
            reply = Reply(ask.number, None, (type(error).__name__, error.message, error.number))
        except Exception as error:  # noqa: BLE001 - the process waits for a reply, whatever it is
            reply = Reply(ask.number, None, ("HoldfastError", f"{type(error).__name__}: {error}", HoldfastError.number))
        else:
            process.attempt.moved = time.monotonic()
            reply = Reply(ask.number, value, None)
        process.requests.release()  # before it gets the reply, and sends the next request
        process.send(reply)

    def _perform(self, ref: Ref, request: StoreRequest) -> Any:
        match request:
            case SaveCheckpoint(state, pending, done):
                return self._store.attempts.checkpoint(
                    ref, None if state is None else self._arrivals.kept(state), pending, done
                )
            case FindStep(name):
                return self._store.attempts.step(ref, name)
            case KeepStep(name, result):
                return self._store.attempts.keep_step(ref, name, self._arrivals.kept(result))
            case RecordsSuccess():
                return None
