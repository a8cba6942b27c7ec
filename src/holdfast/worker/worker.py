"""The worker: builds its parts, starts them and stops them. It holds the leases of what its runners run."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from holdfast import events
from holdfast.errors import HoldfastError, StoreError
from holdfast.model.job import Processed, StopRequest
from holdfast.model.text import checked_name
from holdfast.model.why import Unserved, unserved
from holdfast.runners.base import RunnerGroup, WorkerLink
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.worker.cron import Crons
from holdfast.worker.desk import Desk
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.mandate import BREATH
from holdfast.worker.neighbours import meet
from holdfast.worker.rescuer import Rescuer, Trust
from holdfast.worker.settler import Settler
from holdfast.worker.wakeups import Listener
from holdfast.worker.watchdog import SPREAD, Presence, Watchdog

if TYPE_CHECKING:
    from holdfast.worker.probes import Pages

# Warns at the start of a worker of due jobs that no worker can run, itself included. It costs one short read; without
# it nobody would notice a misspelt queue or a forgotten deployment.

MOST = 10  # kinds of jobs that are named


def warn_of_unserved(store: Store) -> None:
    try:
        found = list(islice(unserved(store.reads.waiting(), store.workers.all(), store.reads.now()), MOST))
    except StoreError as error:
        events.emit("unavailable", error=str(error), wait=0.0)
        return
    for one in found:
        waiting = one.waiting
        events.emit(
            "unserved", queue=waiting.queue, task=waiting.task, many=f"{waiting.due}{'+' * waiting.more}",
            because=_because(one),
        )  # fmt: skip


def _because(one: Unserved) -> str:
    if not one.served:
        return "no worker that is up serves that queue"
    nearest = f" (nearest: {', '.join(one.nearest)})" if one.nearest else ""
    return f"no worker that serves it has that task{nearest}"


# How a worker stops: in good order, and in time.

AFTER_GRACE = 1.0  # seconds for all that is left to do when the grace is over (signals.py ends the process soon after)
TIDYING = 2.0  # seconds at most for a drain to delete old jobs
LAST_OUTCOMES = 3.0  # seconds at most, within that, to record the last outcomes


class Shutdown:
    """Claim no more, let what runs finish within its grace, give back the rest. Everything is over by `end_by`."""

    def __init__(self, worker: str, desk: Desk, runners: RunnerGroup, grace: float) -> None:
        self._worker = worker
        self._desk = desk
        self._runners = runners
        self._grace = grace
        self._end_by = math.inf  # monotonic
        self.asked = 0  # how often

    def ask(self) -> int:
        """Asked twice, the grace is over at once. Safe from a signal handler. Returns how often it was asked."""
        now = time.monotonic()
        self._end_by = min(self._end_by, now + AFTER_GRACE + (0.0 if self.asked else self._grace))
        self._desk.mandate.end_by = self._end_by
        self.asked += 1
        self._desk.mandate.claiming = False
        self._desk.wakeups.wake()
        return self.asked

    @property
    def end_by(self) -> float:
        """When all of it must be over (monotonic). A drain, or a worker that failed, ends without being asked."""
        return min(self._end_by, time.monotonic() + self._grace + AFTER_GRACE)

    def finish(self) -> None:
        """Let what runs finish, and give back what does not in time."""
        self._end_by = self.end_by
        self._desk.mandate.claiming = False
        self._desk.intake.withdraw()
        running = self._desk.undecided()
        if running:
            events.emit("worker_stopping", worker=self._worker, running=len(running), grace=self._grace)
        for attempt in running:
            attempt.ask("shutdown")
        # The grace is for what runs, and for outcomes of what ran. With nothing in flight the worker ends at once.
        while self._desk.in_flight and self._left() > AFTER_GRACE:
            if not self._desk.turn():
                self._desk.wait(min(0.2, max(0.01, self._left() - AFTER_GRACE)))
        self._release_rest()

    def _left(self) -> float:
        """Seconds until it must be over. A second `ask` makes them few."""
        return self._end_by - time.monotonic()

    def _release_rest(self) -> None:
        """The grace is over. Coroutines are cancelled and processes ended. A thread can't be stopped, so its job is
        given back, and the fence keeps out whatever the handler still does."""
        undecided = self._desk.undecided
        for attempt in undecided():
            attempt.force()
        self._turn_until(lambda: not any(a.interrupt or a.remote for a in undecided()), self._left() / 3)
        if any(attempt.remote for attempt in undecided()):
            self._runners.abandon(self._left() / 3)
            self._turn_until(lambda: not any(attempt.remote for attempt in undecided()), self._left() / 4)
        for attempt in undecided():
            if attempt.ask("lost"):
                events.emit("unstoppable", job=str(attempt.held.id), task=attempt.held.task)
                self._desk.outbox.give_back(attempt)
            else:  # its lease was lost before: whatever its handler still does, there is nothing to wait for
                self._desk.outbox.forget(attempt.held)
        self._turn_until(self._desk.idle, min(LAST_OUTCOMES, self._left() * 3 / 4))

    def _turn_until(self, done: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            if not self._desk.turn():
                self._desk.wait(0.05)


class Worker:
    """Runs jobs of an application until `stop()`."""

    def __init__(
        self, store: Store, settings: Settings, runners: RunnerGroup, *, queues: Iterable[str] | None = None
    ) -> None:
        host = settings.host or socket.gethostname()
        name = settings.worker_name or os.environ.get("WORKER_ID") or f"{host}-{os.getpid()}"
        self.name = checked_name("the name of a worker", name)
        # Several processes may share one name, so the id that owns leases has a random part.
        self.id = f"{self.name[:100]}/{uuid.uuid4().hex[:12]}".replace("/", "~")
        self.where = store.shown_url
        self.grace = settings.grace
        self._store = store
        self._queues = None if queues is None else tuple(queues)
        self._runners = runners
        self._misfit: HoldfastError | None = None
        self._ended = threading.Event()
        self._trust = trust = Trust(settings.lease)
        served = self._queues or {task.queue for task in runners.tasks}
        self.desk = Desk(self.id, store, settings.serving(served), self._queues, connection_broke=trust.revoke)
        for runner in runners.runners:
            self.desk.add(runner)
        if runners.suspect_runner is not None:
            self.desk.add_isolated(runners.suspect_runner)
        timeouts = {name: task.progress_timeout for task in runners.tasks for name in task.names}
        self._heartbeat = Heartbeat(
            store, self.desk.in_flight.attempts, every=settings.heartbeat, lease=settings.lease, worker=self.id,
            progress_timeouts={task: timeout for task, timeout in timeouts.items() if timeout},
            ask_for_stack=runners.stack, connection_broke=trust.revoke,
        )  # fmt: skip
        self._neighbours = meet(store, host, self.id)
        self.crons = Crons(store, runners.tasks, self.desk.wakeups.due_in)
        self._presence = Presence(
            store, self.id, name=self.name, host=host, queues=self._queues, tasks=self.tasks, crons=self.crons.names,
            lease=settings.lease, slots=lambda: self.slots, is_open=lambda: self.desk.open, grace=settings.grace,
            timeouts={name: task.timeout for task in runners.tasks for name in task.names if task.timeout is not None},
            runners=lambda: [(slots.runner.slots, slots.tasks) for slots in self.desk.slots],
            meters=self.desk.meters,
        )  # fmt: skip
        rescuer = Rescuer(
            self.id, store, quarantine_after=settings.quarantine_after, job_due_in=self.desk.wakeups.due_in
        )
        self._settler = Settler(store, settings, runners.tasks, self.desk)
        self.watchdog = Watchdog(
            store, settings, self._presence, rescuer, self._neighbours, self.crons, trust, self.desk.wakeups,
            misfit=self._stop_for, stop_requested=self._stop_as_requested, adopted=self._settler.noticed,
        )  # fmt: skip
        self._listener = Listener(
            store, self.desk.wakeups, queues=self._queues, requested=self._requested,
            peers_changed=lambda: self.watchdog.look_soon(SPREAD), listening=self._listening,
            table_written=self._settler.written,
        )  # fmt: skip
        self._shutdown = Shutdown(self.id, self.desk, runners, settings.grace)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(name for slots in self.desk.slots for name in slots.tasks)

    def pages(self) -> Pages:
        """What it tells monitors of itself, over HTTP."""
        from holdfast.worker.probes import Pages  # only those that are asked to listen need it

        return Pages(self._store, self.desk.meters)

    @property
    def slots(self) -> int:
        return sum(slots.runner.slots for slots in self.desk.slots)

    def run(self) -> Processed:
        """Work until `stop()`; returns how many jobs finished."""
        if not self._begin():
            return self._processed()
        try:
            warn_of_unserved(self._store)
            self._listener.start()
            while not self._shutdown.asked:
                if not self.desk.turn():
                    self.desk.wait(BREATH)
            self._shutdown.finish()
        finally:
            self._end()
        return self._processed()

    def drain(self, *, seconds: float | None = None, jobs: int | None = None) -> Processed:
        """Work until nothing is due or the budget is used up; returns how many jobs finished. `jobs`: claim no more
        than so many; one that is tried again counts again. Jobs of workers that went silent count as due: where only
        drains run, each takes back the jobs of the ones before it."""
        deadline = None if seconds is None else time.monotonic() + seconds
        self.desk.mandate.budget = jobs
        self.desk.mandate.exhaustive = True
        if not self._begin():
            return self._processed()
        try:
            while not self._shutdown.asked and (deadline is None or time.monotonic() < deadline):
                if self.desk.idle() and (self.desk.mandate.budget == 0 or self._found_all()):
                    break
                if not self.desk.turn():
                    longest = 0.5 if self.watchdog.looked else 0.01
                    self.desk.wait(longest if deadline is None else max(0.0, min(longest, deadline - time.monotonic())))
            asked = self._shutdown.asked
            self._shutdown.finish()
            if not asked:
                self.watchdog.tidy(min(time.monotonic() + TIDYING, math.inf if deadline is None else deadline))
        finally:
            self._end()
        return self._processed()

    def _found_all(self) -> bool:
        """Is nothing due, also after settling what others wrote to adopted tables? Asked of the desk before and after:
        the settler's own thread may have been at it, too."""
        if not self.desk.found_all or self.watchdog.owes_look:
            return False
        return not self._settler.catch_up() and self.desk.found_all

    def stop(self) -> int:
        """End in good order: claim no more, let what runs finish within its grace, give back the rest. Called twice,
        the grace is over at once. Safe from a signal handler. Returns how often it was called."""
        self._presence.leaving = True
        return self._shutdown.ask()

    def _requested(self) -> None:
        """People may have asked for something: of a job, or of this worker."""
        self._heartbeat.requested()
        self.watchdog.requested()

    def _stop_as_requested(self, request: StopRequest) -> None:
        """Once: a second `stop` would end the grace."""
        if not self._shutdown.asked:
            by, reason = request.by or "someone", request.reason or "no reason was given"
            events.emit("stop_requested", worker=self.id, by=by, reason=reason)
            self.stop()

    def _stop_for(self, misfit: HoldfastError) -> None:
        """Database or application no longer fit this worker: end in good order, and say why."""
        if self._misfit is None:
            self._misfit = misfit
            events.emit("misfit", error=str(misfit), worker=self.id)
            self.stop()

    def _processed(self) -> Processed:
        if self._misfit is not None:
            raise self._misfit
        meters = self.desk.meters
        return Processed.count(meters.jobs, meters.attempts, meters.failed)

    # -- the parts -----------------------------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """False: the worker was asked to stop meanwhile."""
        try:
            if not self._shutdown.asked:
                self._store.schema.check()
            if not self._shutdown.asked:
                self._runners.open(self._link())
            if self._shutdown.asked:
                self._runners.close(self._shutdown.end_by)
                self._neighbours.leave()
                return False
            self._presence.register()
        except BaseException:
            self._runners.close(time.monotonic() + AFTER_GRACE)
            self._neighbours.leave()
            raise
        self._heartbeat.start()
        self.watchdog.start()
        self._settler.start()
        events.emit(
            "worker_started", worker=self.id, tasks=", ".join(sorted(self.tasks)),
            queues=", ".join(self._queues) if self._queues else "all queues", slots=self.slots,
        )  # fmt: skip
        return True

    def _link(self) -> WorkerLink:
        return WorkerLink(
            worker=self.id, outcomes=self.desk.ended, stack_taken=self._heartbeat.answer, give_up=self._stop_for,
            slots_changed=self.desk.wakeups.wake, stopping=lambda: bool(self._shutdown.asked),
            lock=self._neighbours.descriptor,
        )  # fmt: skip

    def _listening(self, listening: bool) -> None:
        """Wake-ups arrive from now on, or no longer."""
        if not listening and self.desk.poller.listening:
            # Our connection broke, so everyone's may have. (One that never worked says nothing of others.)
            self._trust.revoke()
        self.desk.poller.listening = listening
        self.desk.wakeups.wake()
        self.watchdog.look_soon()

    def _end(self) -> None:
        end_by = self._shutdown.end_by
        self._listener.stop()
        self.watchdog.stop(0.0)
        self._heartbeat.stop(0.0)
        self._settler.stop()
        events.emit("worker_stopped", worker=self.id, processed=self.desk.meters.jobs)
        self._runners.close(end_by)
        try:
            self._presence.unregister()
        except StoreError as error:
            events.emit("unavailable", error=str(error), wait=0.0)
        for part in (self.watchdog, self._heartbeat, self._settler, self._listener):
            part.join(end_by - time.monotonic())
        if self.desk.idle():
            self._neighbours.leave()
        self._ended.set()

    def __repr__(self) -> str:
        return f"<Worker {self.id}: {len(self.desk.in_flight)} of {self.slots} busy>"
