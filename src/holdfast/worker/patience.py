"""Patience with a database that is away."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast import events
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.backoff import POLL_TRIES, error_delay, outcome_delay
from holdfast.worker.claims import Claims
from holdfast.worker.mandate import Mandate, Meters
from holdfast.worker.outbox import Outbox
from holdfast.worker.periodic import Bell
from holdfast.worker.poller import Poller

RECONNECT = 0.1  # seconds before a broken connection is replaced; if that fails, growing waits follow


class Patience:
    """Makes one attempt at talking to the database. Transient errors are retried, after growing waits; any other is one
    failed poll. No error ends the worker."""

    def __init__(
        self, worker: str, database: str, outbox: Outbox, claims: Claims, poller: Poller, mandate: Mandate,
        meters: Meters, bell: Bell, *, connection_broke: Callable[[], None],
    ) -> None:  # fmt: skip
        """`connection_broke` is called if a connection ended under a request."""
        self._worker = worker
        self._database = database
        self._outbox = outbox
        self._claims = claims
        self._poller = poller
        self._mandate = mandate
        self._meters = meters
        self._bell = bell
        self._connection_broke = connection_broke
        self._broke = False  # so did the last one
        self.failures = 0  # in a row

    def attempt(self, act: Callable[[], None], *, poll: bool = True) -> None:
        """`poll`: success proves that polling works again."""
        try:
            act()
        except StoreUnavailable as error:
            self._wait_out(error)
        except Exception as error:  # noqa: BLE001 - no error in polling ever ends the worker
            self._failed_poll(error)
            if self._outbox.is_waiting or self._claims.unknown:
                self._pause(outcome_delay(POLL_TRIES))
        else:
            if self.failures or (poll and self._meters.consecutive_errors):
                events.emit("available", where=self._database)
            self._broke = False
            self.failures = 0
            if poll:
                self._meters.consecutive_errors = 0

    def _wait_out(self, error: StoreUnavailable) -> None:
        if isinstance(error, OutcomeUnknown):
            self._connection_broke()
            if not self._broke:
                self._broke = True
                events.emit("unavailable", error=str(error), wait=RECONNECT)
                self._pause(RECONNECT)
                return
        self.failures += 1
        waiting = len(self._outbox.outcomes)
        if not waiting and self.failures >= POLL_TRIES:
            self._failed_poll(error)
            return
        delay = outcome_delay(self.failures) if waiting else error_delay(self.failures)
        if waiting:
            events.emit("outcomes_wait", count=waiting, error=str(error))
        events.emit("unavailable", error=str(error), wait=delay)
        self._pause(delay)

    def _failed_poll(self, error: Exception) -> None:
        self.failures = 0
        self._meters.consecutive_errors += 1
        events.emit(
            "poll_failed", consecutive_errors=self._meters.consecutive_errors, error=str(error),
            error_class=type(error).__name__, worker=self._worker,
        )  # fmt: skip
        self._poller.failed(time.monotonic())

    def _pause(self, seconds: float) -> None:
        """Wait. Only an order to stop claiming, or the end of a shutdown, ends it early."""
        until = time.monotonic() + seconds
        claiming = self._mandate.claiming
        while (left := min(until, self._mandate.end_by) - time.monotonic()) > 0 and self._mandate.claiming == claiming:
            self._bell.wait(min(left, 0.2))
