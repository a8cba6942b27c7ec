"""Every event and every log text. `emit` publishes an event, `subscribe` receives them. On the worker's path there is
one event for a batch of jobs, never one for each job; the list of its jobs is only made if somebody listens.

A worker whose handlers run in other processes forwards its events to one of these (runners/event_forwarding.py)."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import BadSettings, Retry
from holdfast.harmless import block, harmless
from holdfast.redact import scrub

Listener = Callable[[str, dict[str, Any]], None]

log = logging.getLogger("holdfast")
log.addHandler(logging.NullHandler())
job_log = logging.getLogger("holdfast.jobs")  # one line for each attempt that ended without an error


@dataclass(slots=True, eq=False)
class _Subscription:
    listener: Listener
    only: frozenset[str] | None  # the events it wants; None: all
    failed: bool = False


_subscribed: tuple[_Subscription, ...] = ()

# verb -> its event. A test checks that every verb of the state machine has one.
VERBS: dict[str, str] = {
    "enqueue": "enqueued", "claim": "claimed", "renew": "renewed", "checkpoint": "checkpointed",
    "progress": "progressed", "step": "stepped", "succeed": "succeeded", "fail": "failed", "reschedule": "rescheduled",
    "release": "released", "park": "parked", "stop": "stopped", "rescue": "rescued", "expire": "expired",
    "pause": "paused", "resume": "resumed", "cancel": "cancelled", "retry": "retried", "change": "changed",
    "delete": "deleted", "purge": "purged", "add_pause": "held",
    "drop_pause": "let_go", "let_go": "freed",
}  # fmt: skip

# event -> level and text. Some systems match "Recovering stale job" and "failed permanently" word for word.
TEXTS: dict[str, tuple[int, str]] = {
    "worker_started": (logging.INFO, "worker {worker} started: {tasks} on {queues}, {slots} slots"),
    "unserved": (logging.WARNING, "{many} due jobs (task {task}, queue {queue}) can't run: {because}"),
    # A warning, as workers log no less by default: the log of one that has stopped must say why.
    "stop_requested": (logging.WARNING, "worker {worker} was asked to stop by {by}: {reason}"),
    "worker_stopping": (logging.INFO, "worker {worker} stops: {running} still running, up to {grace:g} s to finish"),
    "worker_stopped": (logging.INFO, "worker {worker} stopped after {processed} jobs"),
    "http_failed": (logging.ERROR, "a request over HTTP could not be answered: {error}"),
    "http_full": (
        logging.WARNING,
        "there is room for {connections} connections over HTTP, and more clients come: they are hung up on; raise the "
        "limit of open files (ulimit -n), or have a proxy in front limit the connections of a client",
    ),
    "polled": (logging.DEBUG, "polled: nothing due ({empty_polls} in a row), next look in {wait:.3g} s"),
    "enqueued": (logging.DEBUG, "enqueued {count} jobs of {task}"),
    "claimed": (logging.INFO, "claimed {count} jobs"),
    "recorded": (logging.DEBUG, "recorded {count} outcomes"),
    "renewed": (logging.DEBUG, "renewed {count} leases"),
    "checkpointed": (logging.DEBUG, "job {job} saved a checkpoint, {pending} pending"),
    "progressed": (logging.DEBUG, "job {job} reports progress: {done} done"),
    "stepped": (logging.DEBUG, "job {job} finished its step {step}"),
    "succeeded": (logging.DEBUG, "{count} jobs succeeded"),
    "rescheduled": (logging.DEBUG, "{count} jobs will be tried again"),
    "released": (logging.DEBUG, "{count} jobs were given back to the queue; the attempt is not counted"),
    "parked": (logging.INFO, "{count} jobs parked, as requested by a pause"),
    "stopped": (logging.INFO, "{count} jobs stopped, as requested by a cancel"),
    "paused": (logging.INFO, "pause requested for job {job}; its state is {state}"),
    "resumed": (logging.INFO, "job {job} was resumed; its state is {state}"),
    "cancelled": (logging.INFO, "cancel requested for job {job}; its state is {state}"),
    "retried": (logging.INFO, "job {job} will run again, attempts counted from 0; its state is {state}"),
    "changed": (logging.INFO, "job {job} was changed; its state is {state}"),
    "deleted": (logging.INFO, "job {job} was deleted; its state was {state}"),
    "held": (logging.INFO, "{kind} {name} was paused"),
    "let_go": (logging.INFO, "{kind} {name} was resumed"),
    "freed": (logging.INFO, "{count} jobs may run again: the pause that held them has ended"),
    "lease_lost": (
        logging.WARNING,
        "job {job} was taken over by another worker; its handler is asked to stop, and its result will be dropped",
    ),
    "lease_doubted": (
        logging.WARNING,
        "the handler of job {job} ({task}) learned that its lease is lost; if the lease still stands in our database, "
        "another server answered, and the job is given back without counting the attempt",
    ),
    "rescued": (logging.INFO, "Recovering stale job {job} (Retry {attempt}/{max_attempts})"),
    "carrying_on": (logging.INFO, "carrying on with {verb} of {what}, which {by} began in a process that fell silent"),
    "rescued_elsewhere": (logging.INFO, "job {job} was taken back from silent worker {worker}; its state is {state}"),
    "failed": (logging.WARNING, "Job {job} failed permanently"),
    "error_after_success": (logging.WARNING, "job {job} ({task}) had succeeded when its handler raised: {error}"),
    "errored": (logging.WARNING, "job {job} ({task}) attempt {attempt} of {max_attempts} {ended}: {reason}; {next}"),
    "neighbour_died": (logging.WARNING, "worker {worker} on this host has died; its jobs are taken back now"),
    "alone": (
        logging.WARNING,
        "worker {worker} and its neighbours on this host can't notice each other's death ({why}): jobs of a killed "
        "worker wait until their lease expires",
    ),
    "expired": (logging.INFO, "cancelled {count} jobs that had not started before they expired"),
    "purged": (logging.INFO, "deleted {count} old finished jobs"),
    "deaf": (logging.WARNING, "not listening for notifications: {error}; polling instead"),
    "listening": (logging.DEBUG, "listening for notifications"),
    "not_understood": (
        logging.WARNING,
        "ignored a notification that can't be parsed; further ones are ignored without a log line",
    ),
    "woken_in_vain": (
        logging.WARNING,
        "notifications keep announcing jobs that don't exist, so worker {worker} waits up to {longest:g} s before it "
        "acts on another. Anyone who can connect to the database can send them",
    ),
    "unwatched": (
        logging.INFO,
        "can't watch the file for writes ({error}); checking {times} times a second whether it has changed",
    ),
    "unavailable": (logging.WARNING, "{error}; trying again in {wait:g} s"),
    "second_primary": (
        logging.ERROR,
        "two servers take writes: {primary} ({ours}) and {refused} ({its}). We don't use {refused}: stop it, because "
        "what is written there will be lost",
    ),
    "available": (logging.WARNING, "{where} answers again"),
    "unanswered": (logging.WARNING, "{where} has not answered for {seconds:.0f} s: {because}"),
    "answered": (logging.WARNING, "{where} has answered after {seconds:.0f} s"),
    "misfit": (logging.ERROR, "{error}; worker {worker} claims no more jobs and stops"),
    "poll_failed": (logging.ERROR, "a poll failed ({consecutive_errors} in a row): {error}"),
    "outcomes_wait": (logging.WARNING, "{count} outcomes wait for the database: {error}"),
    "notify_failed": (logging.DEBUG, "a wake-up could not be sent: {error}"),
    "survey_failed": (logging.DEBUG, "the survey of lanes failed, so claims search all of them: {error}"),
    "unstoppable": (
        logging.WARNING,
        "job {job} ({task}) did not stop within its grace time; it is given back, and its result will be dropped",
    ),
    "writers_waited": (
        logging.WARNING,
        "job {job} ({task}) kept a transaction open for {seconds:.1f} s; on SQLite nobody else can write meanwhile",
    ),
    "runner_ended": (logging.ERROR, "runner process {pid} {how} with {held} attempts in flight; starting another"),
    "runner_retired": (
        logging.WARNING,
        "job {job} did not stop within {grace:g} s: its runner process {pid} takes no more attempts and will be ended; "
        "the other attempts there get {grace:g} s to finish",
    ),
    "neighbours_released": (
        logging.WARNING,
        "ending runner process {pid} because of a job that does not stop: {count} others that run there are given back",
    ),
    "runner_stuck": (logging.WARNING, "runner process {pid} did not exit in time; killing it"),
    "runner_slow": (logging.WARNING, "runner process {pid} has been importing the application for {seconds:g} s"),
    "runner_unfit": (logging.ERROR, "a runner process can't start: {error}; trying again in {wait:g} s"),
    "reaper_ended": (
        logging.WARNING,
        "the reaper, which ends the programs of handlers if this worker is killed, has died; starting another",
    ),
    "reaper_missing": (
        logging.ERROR,
        "can't start a reaper ({error}): programs that handlers started would survive if this worker is killed",
    ),
    "fired": (logging.INFO, "cron {cron}: enqueued job {job} for the tick of {tick}"),
    "ticks_missed": (
        logging.WARNING,
        "cron {cron}: ticks since {since} were missed and will not be made up for (catch_up={catch_up})",
    ),
    "cron_unknown": (logging.WARNING, "this worker can't fire cron {cron}: {error}"),
    "table_refused": (logging.ERROR, "the adopted table {source} is not worked here until it is mended: {error}"),
    "table_doubtful": (logging.WARNING, "the adopted table {source} is worked, but: {error}"),
    "table_served": (logging.WARNING, "the adopted table {source} is worked again"),
    "resource_stuck": (logging.ERROR, "the resource {resource} was not closed properly: {error}"),
    "hook_failed": (logging.ERROR, "the hook {hook} failed: {error}"),
    "events_dropped": (
        logging.WARNING,
        "{count} events did not reach the application's listeners: they are too slow, or their process died",
    ),
    "alert_began": (logging.WARNING, "alert: {text}; {advice}"),
    "alert_ended": (logging.WARNING, "alert over: {text}"),
    "stumbled": (logging.ERROR, "unexpected error in {part}, which continues: {error}"),
    "unknown_request": (logging.WARNING, "job {job} asks for task {task}, which is not declared here"),
}  # fmt: skip


def subscribe(listener: Listener, *, only: Iterable[str] | None = None) -> Callable[[], None]:
    """Call `listener(name, fields)` for every event from now on, or only for those named by `only`. Returns a function
    that ends the subscription."""
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
    """The events that listeners in this process want; None: all."""
    names: set[str] = set()
    for one in _subscribed:
        if one.only is None:
            return None
        names |= one.only
    return sorted(names)


def wanted(name: str) -> bool:
    """Does a listener or the log want this event? Ask first where its fields cost work for each job."""
    return bool(_subscribed and _listening(name)) or log.isEnabledFor(TEXTS[name][0])


def emit(
    name: str, /, *, jobs: Callable[[], list[dict[str, Any]]] | None = None, logged: bool = True, **fields: Any
) -> None:
    """Write the event to the log unless another line has said it (`logged`), then call its listeners. `jobs` makes the
    list of its jobs, and is only called if somebody listens. A listener that raises is logged; jobs are not
    affected."""
    if logged:
        write_log(name, fields)
    listed = jobs is not None and name in JOB_TEXTS and _job_lines.room(fields["count"])
    listening = _listening(name) if _subscribed else []
    if not listed and not listening:
        return
    made = None if jobs is None else jobs()
    if listed and made is not None:
        _job_lines.write(name, made)
    if listening:
        _call(listening, name, fields if made is None else {**fields, "jobs": made})


def deliver(name: str, fields: dict[str, Any]) -> None:
    """Call the listeners of this process for an event that another process has logged already."""
    _call(_listening(name), name, fields)


def _listening(name: str) -> list[_Subscription]:
    return [one for one in _subscribed if one.only is None or name in one.only]


def _call(listening: list[_Subscription], name: str, fields: dict[str, Any]) -> None:
    for one in listening:
        try:
            one.listener(name, fields)
        except (Exception, SystemExit):
            if not one.failed:
                one.failed = True
                log.exception("a listener failed at event %s; further failures of it are not logged", name)


def write_log(name: str, fields: dict[str, Any]) -> None:
    """Only log the event: its listeners were called elsewhere. Removes secrets from the error. The text is one line,
    whatever formats it."""
    if "error" in fields:
        fields["error"] = scrub(fields["error"])
    level, text = TEXTS[name]
    if name == "worker_stopped":
        _job_lines.tell_unlisted()
    if log.isEnabledFor(level):
        said = singular(text.format_map(fields | _how_it_ended(fields) if name == "errored" else fields))
        extra = {"holdfast": {"event": name, **fields}}
        record = log.makeRecord(log.name, level, __file__, 0, harmless(said), (), None, extra=extra)
        if traceback := fields.get("traceback"):
            record.exc_text = block(traceback)  # which formatters write below the line
        log.handle(record)


def _how_it_ended(fields: dict[str, Any]) -> dict[str, str]:
    """What the line of an errored attempt says beyond its fields."""
    asked = fields["error_code"] == Retry.code
    ended = "asked for another attempt" if asked else "failed"
    if "seconds" in fields:
        ended += f" after {fields['seconds']:.3f} s"
    match fields["verb"], fields.get("delay"):
        case "reschedule", float(delay) if delay > 0:
            follows = f"runs again in {delay:.{1 if delay < 10 else 0}f} s"
        case "reschedule", _:
            follows = "runs again at once"
        case "fail", _:
            follows = "no attempts are left" if fields["attempt"] >= fields["max_attempts"] else "it is not tried again"
        case _:
            follows = "its job is taken back"
    reason = str(fields["error"])
    return {"ended": ended, "reason": reason.removeprefix(f"{Retry.code}: ") if asked else reason, "next": follows}


# event -> what the line of each of its jobs says. (An attempt that errored has its line already.)
JOB_TEXTS = {
    "succeeded": "succeeded", "released": "was given back, and is not charged with this attempt",
    "parked": "was parked, as requested", "stopped": "was stopped",
}  # fmt: skip
MOST_LINES = 100  # a second: more are not read, and would take longer than the jobs


class _JobLines:
    """Writes a line for each job, as long as there are few: beyond that, their number once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._left = MOST_LINES
        self._unlisted = 0

    def room(self, count: int) -> bool:
        """Are lines wanted, and so many possible now?"""
        if not job_log.isEnabledFor(logging.INFO):
            return False
        if (second := int(time.monotonic())) != self._second:
            self._second, self._left = second, MOST_LINES
            self.tell_unlisted()
        if count > self._left:
            self._unlisted += count
            return False
        self._left -= count
        return True

    def tell_unlisted(self) -> None:
        many, self._unlisted = self._unlisted, 0
        if many:
            job_log.info("%d more jobs ended: too many for a line each", many)

    def write(self, name: str, jobs: list[dict[str, Any]]) -> None:
        for job in jobs:
            again = f", attempt {job['attempt']} of {job['max_attempts']}" if job.get("attempt", 1) > 1 else ""
            took = f" ({job['seconds']:.3f} s)" if "seconds" in job else ""
            text = f"job {job['job']} ({job.get('task', '?')}) {JOB_TEXTS[name]}{again}{took}"
            job_log.info("%s", harmless(text), extra={"holdfast": {"event": name, **job}})


_job_lines = _JobLines()


def singular(text: str) -> str:
    """Correct "1 jobs were" to "1 job was"."""
    return re.sub(_ONE, lambda found: f"1 {found[1]}{_VERBS.get(found[2] or '', '')}", text)


_ONE = r"(?<![\w.,-])1 ((?:due |old finished )?(?:job|outcome|lease|event|slot))s\b( were\b| are\b| wait\b)?"
_VERBS = {" were": " was", " are": " is", " wait": " waits"}
