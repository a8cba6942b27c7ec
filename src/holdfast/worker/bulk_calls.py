"""Carries on what operators do to many jobs when the process that did it has died."""

from __future__ import annotations

import threading

from holdfast import events
from holdfast.errors import HoldfastError, Refused, StoreError
from holdfast.model.filter import text
from holdfast.store.base import Store
from holdfast.store.bulk_calls import SILENT


class CarryOn:
    """On a thread that lives while there is something to do: it may take minutes, and the watchdog has no time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        if not self._stopping.is_set() and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(target=self._run, name="holdfast-bulk", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Leave the rest to another worker, after the chunk that is under way."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                call = self._store.operator.bulk_calls.take_silent()
                if call is None:
                    return
                plan = call.plan
                events.emit("carrying_on", verb=plan.verb, what=text(plan.filter), by=plan.by or "somebody")
                self._store.operator.bulk_calls.carry_on(call, self._stopping.is_set)
            except Refused:
                continue  # we were slow, and another worker has taken it
            except StoreError as error:
                events.emit("unavailable", error=str(error), wait=SILENT)  # then it is silent again
                return
            except HoldfastError as error:
                events.emit("stumbled", part="holdfast-bulk", error=str(error))
