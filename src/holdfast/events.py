"""What happens, as events: `emit` tells, `subscribe` listens, and every log text stands here. Events are emitted per
batch, never per job on the worker's path: what is to be said of each job (`jobs`) is made only if somebody listens.

A worker whose handlers run in processes of their own passes its events to one of them (runners/event_forwarding.py)."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadSettings
from holdfast.harmless import harmless
from holdfast.redact import scrub

Listener = Callable[[str, dict[str, Any]], None]

log = logging.getLogger("holdfast")
log.addHandler(logging.NullHandler())


@dataclass(slots=True, eq=False)
class _Subscription:
    listener: Listener
    only: frozenset[str] | None  # the events it wants; None: all
    failed: bool = False


_subscribed: tuple[_Subscription, ...] = ()

# verb -> the event that tells of it (tests/events: every verb of the state machine has one).
VERBS: dict[str, str] = {
    "enqueue": "enqueued", "claim": "claimed", "renew": "renewed", "checkpoint": "checkpointed",
    "progress": "progressed", "step": "stepped", "succeed": "succeeded", "fail": "failed", "reschedule": "rescheduled",
    "release": "released", "park": "parked", "stop": "stopped", "rescue": "rescued", "expire": "expired",
    "pause": "paused", "resume": "resumed", "cancel": "cancelled", "retry": "retried", "change": "changed",
    "delete": "deleted", "purge": "purged", "add_pause": "held",
    "drop_pause": "let_go", "let_go": "freed",
}  # fmt: skip

# event -> level and text. Texts that other systems match word for word keep their wording.
TEXTS: dict[str, tuple[int, str]] = {
    "worker_started": (logging.INFO, "worker {worker} started: {tasks} on {queues}, {slots}"),
    "unserved": (
        logging.WARNING,
        "{many} due jobs of task {task} wait in queue {queue}: {because}",
    ),
    "worker_stopping": (logging.INFO, "worker {worker} stops: {running} still running, up to {grace:g} s to finish"),
    "worker_stopped": (logging.INFO, "worker {worker} stopped after {processed} jobs"),
    "polled": (logging.DEBUG, "polled: nothing due ({empty_polls} in a row), next look in {wait:.3g} s"),
    "enqueued": (logging.DEBUG, "enqueued {count} jobs of {task}"),
    "claimed": (logging.INFO, "claimed {count} jobs"),
    "recorded": (logging.DEBUG, "recorded {count} outcomes"),
    "renewed": (logging.DEBUG, "renewed {count} leases"),
    "checkpointed": (logging.DEBUG, "job {job} saved a checkpoint, {pending} pending"),
    "progressed": (logging.DEBUG, "job {job} has done {done}"),
    "stepped": (logging.DEBUG, "job {job} has done its step {step}"),
    "succeeded": (logging.DEBUG, "{count} jobs succeeded"),
    "rescheduled": (logging.DEBUG, "{count} jobs are to be tried again"),
    "released": (logging.DEBUG, "{count} jobs were given back, uncharged"),
    "parked": (logging.INFO, "{count} jobs stopped for a pause"),
    "stopped": (logging.INFO, "{count} jobs stopped: cancelled"),
    "paused": (logging.INFO, "job {job} was to pause: it is {state}"),
    "resumed": (logging.INFO, "job {job} was resumed: it is {state}"),
    "cancelled": (logging.INFO, "job {job} was to be cancelled: it is {state}"),
    "retried": (logging.INFO, "job {job} was given another life: it is {state}"),
    "changed": (logging.INFO, "job {job} was changed: it is {state}"),
    "deleted": (logging.INFO, "job {job} was deleted: it was {state}"),
    "held": (logging.INFO, "{kind} {name} was paused"),
    "let_go": (logging.INFO, "the pause of {kind} {name} was ended"),
    "freed": (logging.INFO, "{count} jobs go on: the pause that had set them aside is over"),
    "lease_lost": (
        logging.WARNING,
        "job {job} was taken over by someone else; its handler is told to stop, its result dropped",
    ),
    "lease_doubted": (
        logging.WARNING,
        "the handler of job {job} ({task}) heard that its lease is lost; if our database still holds it, another "
        "server said that, and the job is given back, uncharged",
    ),
    "rescued": (logging.INFO, "Recovering stale job {job} (Retry {attempt}/{max_attempts})"),
    "rescued_elsewhere": (logging.INFO, "job {job} of silent worker {worker} is {state} now"),
    "failed": (logging.WARNING, "Job {job} failed permanently"),
    "error_after_success": (logging.WARNING, "job {job} ({task}) had succeeded when its handler raised: {error}"),
    "errored": (logging.WARNING, "job {job} ({task}) attempt {attempt} of {max_attempts}: {verb} after {error}"),
    "neighbour_died": (logging.WARNING, "worker {worker} on this host is gone; its jobs are rescued"),
    "alone": (
        logging.WARNING,
        "worker {worker} and its neighbours on this host can't see each other's death ({why}): jobs of a killed worker "
        "wait until their lease ends",
    ),
    "expired": (logging.INFO, "cancelled {count} jobs that were not started before their expiry"),
    "purged": (logging.INFO, "forgot {count} old finished jobs"),
    "deaf": (logging.WARNING, "notifications are not heard: {error}"),
    "listening": (logging.DEBUG, "listening for notifications"),
    "not_understood": (
        logging.WARNING,
        "a notification was not understood and is ignored; others like it will be, too, without another line",
    ),
    "woken_in_vain": (
        logging.WARNING,
        "notifications ask again and again for jobs that are not there: before it looks for another of them, worker "
        "{worker} rests for up to {longest:g} s. Anyone who can connect to the database can send them",
    ),
    "unwatched": (
        logging.INFO,
        "writes to the file can't be watched ({error}): whether it has changed is looked up {times} times a second",
    ),
    "unavailable": (logging.WARNING, "{error}; trying again in {wait:g} s"),
    "second_primary": (
        logging.ERROR,
        "two servers take writes: {primary} ({ours}) and {refused} ({its}); {refused} is refused: stop it, what is "
        "written there is lost",
    ),
    "available": (logging.WARNING, "{where} answers again"),
    "unanswered": (logging.WARNING, "{where} has not answered for {seconds:.0f} s: {because}"),
    "answered": (logging.WARNING, "{where} has answered after {seconds:.0f} s"),
    "misfit": (logging.ERROR, "{error}; worker {worker} claims no more and stops"),
    "poll_failed": (logging.ERROR, "a poll failed ({consecutive_errors} in a row): {error}"),
    "outcomes_wait": (logging.WARNING, "{count} outcomes wait for the database: {error}"),
    "notify_failed": (logging.DEBUG, "a wake-up could not be sent: {error}"),
    "survey_failed": (logging.DEBUG, "the lanes could not be surveyed, so claims look everywhere: {error}"),
    "unstoppable": (
        logging.WARNING,
        "job {job} ({task}) did not stop within its grace time; it is released, its result will be dropped",
    ),
    "writers_waited": (
        logging.WARNING,
        "job {job} ({task}) had its transaction open for {seconds:.1f} s: on SQLite nobody else can write meanwhile",
    ),
    "runner_ended": (logging.ERROR, "runner process {pid} {how}, with {held} attempts in hand; another is started"),
    "runner_retired": (
        logging.WARNING,
        "job {job} did not stop within {grace:g} s: its runner process {pid} takes no more attempts and is ended; "
        "others that run there get {grace:g} s to finish",
    ),
    "neighbours_released": (
        logging.WARNING,
        "runner process {pid} is ended for a job that does not stop: {count} others that run there are given back",
    ),
    "runner_stuck": (logging.WARNING, "runner process {pid} did not end in time and is killed"),
    "runner_slow": (logging.WARNING, "runner process {pid} has been importing the application for {seconds:g} s"),
    "runner_unfit": (logging.ERROR, "a runner process can't start: {error}; trying again in {wait:g} s"),
    "reaper_ended": (
        logging.WARNING,
        "the reaper, which ends handlers' programs if this worker is killed, is gone; another is started",
    ),
    "reaper_missing": (
        logging.ERROR,
        "no reaper can be started ({error}): programs that handlers started would outlive a kill of this worker",
    ),
    "fired": (logging.INFO, "cron {cron}: job {job} for the tick of {tick}"),
    "ticks_missed": (
        logging.WARNING,
        "cron {cron}: ticks since {since} were missed and are not made up for (catch_up={catch_up})",
    ),
    "cron_unknown": (logging.WARNING, "cron {cron} can't be fired by this worker: {error}"),
    "resource_stuck": (logging.ERROR, "the resource {resource} was not closed in good order: {error}"),
    "hook_failed": (logging.ERROR, "the hook {hook} failed: {error}"),
    "events_dropped": (
        logging.WARNING,
        "{count} events did not reach the application's listeners: they are too slow, or their process died",
    ),
    "stumbled": (logging.ERROR, "{part} met an error nobody expected, and goes on: {error}"),
    "unknown_request": (logging.WARNING, "job {job} asks for task {task}, which is not declared here"),
}  # fmt: skip


def subscribe(listener: Listener, *, only: Iterable[str] | None = None) -> Callable[[], None]:
    """Call `listener(name, fields)` for every event from now on, or for those named by `only`. Returns a function that
    ends this."""
    global _subscribed
    names = None if only is None else frozenset([only] if isinstance(only, str) else only)
    if unknown := sorted((names or frozenset()) - TEXTS.keys()):
        raise BadSettings(f"events.subscribe: there is no event {', '.join(unknown)}")
    mine = _Subscription(listener, names)
    _subscribed = (*_subscribed, mine)

    def unsubscribe() -> None:
        global _subscribed
        _subscribed = tuple(one for one in _subscribed if one is not mine)

    return unsubscribe


def heard() -> list[str] | None:
    """The events that somebody here listens to; None: all."""
    names: set[str] = set()
    for one in _subscribed:
        if one.only is None:
            return None
        names |= one.only
    return sorted(names)


def wanted(name: str) -> bool:
    """Does anyone want to hear this? Worth asking where telling it takes work for each job."""
    return bool(_subscribed and _listening(name)) or log.isEnabledFor(TEXTS[name][0])


def emit(name: str, /, *, jobs: Callable[[], list[dict[str, Any]]] | None = None, **fields: Any) -> None:
    """Write it to the log, then tell everyone who listens. `jobs` is called, for what is to be said of each, only if
    somebody listens. A listener that raises is logged and costs nothing else: jobs go on."""
    write_log(name, fields)
    if _subscribed and (listening := _listening(name)):
        if jobs is not None:
            fields["jobs"] = jobs()
        _tell(listening, name, fields)


def deliver(name: str, fields: dict[str, Any]) -> None:
    """Tell everyone who listens here what happened, and was logged, in another process."""
    _tell(_listening(name), name, fields)


def _listening(name: str) -> list[_Subscription]:
    return [one for one in _subscribed if one.only is None or name in one.only]


def _tell(listening: list[_Subscription], name: str, fields: dict[str, Any]) -> None:
    for one in listening:
        try:
            one.listener(name, fields)
        except (Exception, SystemExit):
            if not one.failed:
                one.failed = True
                log.exception("a listener to events failed at %s; if it fails again, that is not logged", name)


def write_log(name: str, fields: dict[str, Any]) -> None:
    """For itself: of what listeners heard where it happened. Takes secrets out of the error; the text is one line,
    whoever formats it."""
    if "error" in fields:
        fields["error"] = scrub(fields["error"])
    level, text = TEXTS[name]
    if log.isEnabledFor(level):
        log.log(level, harmless(singular(text.format_map(fields))), extra={"holdfast": {"event": name, **fields}})


def singular(text: str) -> str:
    """ "1 jobs were given back" as it is said."""
    return re.sub(_ONE, lambda found: f"1 {found[1]}{_VERBS.get(found[2] or '', '')}", text)


_ONE = r"(?<![\w.,-])1 ((?:due |old finished )?(?:job|outcome|lease|event))s\b( were\b| are\b| wait\b| go\b)?"
_VERBS = {" were": " was", " are": " is", " wait": " waits", " go": " goes"}
