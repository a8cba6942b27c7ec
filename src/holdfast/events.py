"""What happens, as events: `emit` tells, `subscribe` listens, and every log text stands here, as one listener.
Imports nothing of ours. Events are emitted per batch, never per job on the worker's path."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

Listener = Callable[[str, dict[str, Any]], None]

log = logging.getLogger("holdfast")
log.addHandler(logging.NullHandler())

_listeners: tuple[Listener, ...] = ()

# event -> level and text. Texts that other systems match word for word keep their wording (R6.3).
TEXTS: dict[str, tuple[int, str]] = {
    "worker_started": (logging.INFO, "worker {worker} started: {tasks} on {queues}, {slots}"),
    "worker_stopping": (logging.INFO, "worker {worker} stops: {running} still running, up to {grace:g} s to finish"),
    "worker_stopped": (logging.INFO, "worker {worker} stopped after {processed} jobs"),
    "polled": (logging.DEBUG, "polled: nothing due ({empty_polls} in a row), next look in {wait:.3g} s"),
    "claimed": (logging.INFO, "claimed {count} jobs"),
    "recorded": (logging.DEBUG, "recorded {count} outcomes"),
    "lease_lost": (
        logging.WARNING,
        "job {job} was taken over by someone else; its handler is told to stop, its result dropped",
    ),
    "rescued": (logging.INFO, "Recovering stale job {job} (Retry {attempt}/{max_attempts})"),
    "rescued_elsewhere": (logging.INFO, "job {job} of silent worker {worker} is {state} now"),
    "failed": (logging.WARNING, "Job {job} failed permanently"),
    "errored": (logging.WARNING, "job {job} ({task}) attempt {attempt} of {max_attempts}: {verb} after {error}"),
    "neighbour_died": (logging.WARNING, "worker {worker} on this host is gone; its jobs are rescued"),
    "expired": (logging.INFO, "cancelled {count} jobs that were not started before their expiry"),
    "purged": (logging.INFO, "forgot {count} old finished jobs"),
    "deaf": (logging.WARNING, "notifications are not heard: {error}"),
    "listening": (logging.DEBUG, "listening for notifications"),
    "unavailable": (logging.WARNING, "{error}; trying again in {wait:g} s"),
    "available": (logging.WARNING, "{where} answers again"),
    "schema_outdated": (logging.ERROR, "{error}; worker {worker} claims no more and stops"),
    "poll_failed": (logging.ERROR, "a poll failed ({consecutive_errors} in a row): {error}"),
    "outcomes_wait": (logging.WARNING, "{count} outcomes wait for the database: {error}"),
    "notify_failed": (logging.DEBUG, "a wake-up could not be sent: {error}"),
    "unstoppable": (
        logging.WARNING,
        "job {job} ({task}) did not stop within its grace time; it is released, its result will be dropped",
    ),
    "fired": (logging.INFO, "cron {cron}: job {job} for the tick of {tick}"),
    "ticks_missed": (
        logging.WARNING,
        "cron {cron}: ticks since {since} were missed and are not made up for (catch_up={catch_up})",
    ),
    "cron_unknown": (logging.WARNING, "cron {cron} can't be fired by this worker: {error}"),
    "resource_stuck": (logging.ERROR, "the resource {resource} was not closed in good order: {error}"),
    "hook_failed": (logging.ERROR, "the hook {hook} failed: {error}"),
    "stumbled": (logging.ERROR, "{part} met an error nobody expected, and goes on: {error}"),
    "unknown_request": (logging.WARNING, "job {job} asks for task {task}, which is not declared here"),
}  # fmt: skip


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call `listener(name, fields)` for every event from now on. Returns what ends that."""
    global _listeners
    _listeners = (*_listeners, listener)

    def unsubscribe() -> None:
        global _listeners
        _listeners = tuple(known for known in _listeners if known is not listener)

    return unsubscribe


def emit(name: str, **fields: Any) -> None:
    """Tell everyone who listens. A listener that raises is logged and costs nothing else: jobs go on."""
    for listener in _listeners:
        try:
            listener(name, fields)
        except Exception:
            log.exception("a listener to events failed at %s", name)


def write_log(name: str, fields: dict[str, Any]) -> None:
    level, text = TEXTS[name]
    if log.isEnabledFor(level):
        log.log(level, text.format_map(fields), extra={"holdfast": {"event": name, **fields}})


subscribe(write_log)
