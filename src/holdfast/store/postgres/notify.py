"""Sends wake-ups after the commit, on a connection of its own, coalesced: however many jobs are enqueued while one
NOTIFY is in flight, the next carries each queue once. (Inside the transaction, NOTIFY makes commits queue for one
database-wide lock.) The enqueuing thread sends it at once, without waiting for an answer; a background thread opens the
connection and sends what has piled up. The wake-up of a single job is sent right behind it (enqueue.py). If
many processes enqueue, both pause between two wake-ups (`WakeupRate`). A wake-up is a hint: one that can't be sent
is dropped, and polling finds the job."""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import lru_cache

import psycopg
from psycopg import pq

from holdfast import events
from holdfast.errors import StoreError
from holdfast.model.peers import CHANNELS
from holdfast.store.postgres.codec import array
from holdfast.store.postgres.connect import Connection, ready

# If many processes enqueue at once, one wake-up serves several jobs: each NOTIFY takes the same lock, and would wake
# workers that are already awake. A process estimates the load from its own jobs: the ids between two of them are jobs
# of others, and others wait about as long for their commits.

WINDOW = 0.05  # seconds of one measurement
MANY = 4.5  # commits in flight at the same time, on average
WAKEUPS = 250  # per second, from all processes together, are enough under load
LONGEST_REST = 0.1  # seconds


class WakeupRate:
    """`rest`: seconds to pause between two wake-ups of this process. `commit`: seconds that a commit takes."""

    def __init__(self) -> None:
        self.rest = self.commit = 0.0
        self._began: float | None = None

    def enqueued(self, id: int, seconds: float, now: float) -> None:
        """This process has enqueued a job, which took so many seconds."""
        if self._began is None:
            self._begin(now, id)
            return
        self._jobs += 1
        self._seconds += seconds
        span = now - self._began
        if span < WINDOW:
            return
        all_jobs = max(1, id - self._id)
        self.commit = self._seconds / self._jobs
        processes = all_jobs / self._jobs
        # Little's law: the rate times the time each takes.
        under_way = all_jobs / span * self.commit
        self.rest = min(processes / WAKEUPS, LONGEST_REST) if under_way > MANY else 0.0
        self._begin(now, id)

    def _begin(self, now: float, id: int) -> None:
        self._began, self._id = now, id
        self._jobs, self._seconds = 0, 0.0


SEND = b"select pg_notify(c, p) from unnest($1::text[], $2::text[]) as w (c, p)"
IDLE = 10.0  # seconds without a wake-up after which thread and connection end
FLUSH = 1.0  # seconds that an exiting process waits for its last wake-ups
ALONG = 0.005  # seconds at most that wake-ups are left for a job to take along, after the pause
MOST = 16  # jobs of this process in a row without a wake-up
LONGEST = 2000  # characters of a wake-up; the server takes 8,000 bytes
ANSWER = 5.0  # seconds the server has to answer one


@lru_cache(maxsize=1000)  # an application has few lanes, and making this text costs more than sending it
def lane_wakeup(queue: str, task: str, priority: int) -> str:
    """Announces a due job by its lane; if the names are too long for a wake-up, by its queue alone."""
    text = json.dumps([queue, task, priority])
    return "l" + text if len(text) < LONGEST else "q" + queue


def few(channel: str, number: int | str = "") -> str:
    """The channel of this number, for wake-ups that concern a few workers (model/peers.py). Without a number: any of
    them, chosen when the wake-up is sent."""
    return f"{channel}:{number}"


def aimed(channel: str) -> str:
    # (Not by `random`: the application may have seeded it and rely on its values.)
    return channel + str(os.urandom(1)[0] % CHANNELS) if channel.endswith(":") else channel


_left_behind: list[Connection | None] = []
_notifiers: weakref.WeakSet[Notifier] = weakref.WeakSet()


class Notifier:
    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self.reset()
        _notifiers.add(self)
        atexit.register(_flush, weakref.ref(self))

    def reset(self) -> None:
        """Start over. In a forked child the thread is gone, and may have held the lock."""
        self._waiting: dict[tuple[str, str], None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._connection: Connection | None = None
        self._under_way = False
        self._rest_until = 0.0
        self._send_at = 0.0  # when to send what waits, unless a job takes it along before
        self._without = 0  # jobs since the last wake-up
        self._crowd = WakeupRate()
        self._finalized = False  # this process will flush at its end

    def send(self, wakeups: Iterable[tuple[str, str]]) -> None:
        with self._changed:
            ready = self._connection is not None and not self._under_way and not self._waiting
            if ready and time.monotonic() >= self._rest_until:
                self._post(list(wakeups))
            else:
                known = bool(self._waiting)
                self._waiting.update(dict.fromkeys(wakeups))
                if not known:
                    self._send_at = self._rest_until + min(2 * self._crowd.commit, ALONG)
                elif self._thread is not None and self._thread.is_alive():
                    return  # it knows already: each switch to it costs as much as a wake-up
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._run, name="holdfast-notify", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # the system has no more threads
                    self._waiting = {}
                    self._give_up(error)
                    return
                self._thread = thread
                if not self._finalized:
                    self._finalized = True
                    _flush_where_atexit_is_not_run(self)
            self._changed.notify_all()

    def turn(self, wakeup: tuple[str, str]) -> bool:
        """May this wake-up be sent behind its job now? Then it counts as sent, also for equal ones that waited."""
        with self._changed:
            now = time.monotonic()
            self._without += 1
            if now < self._rest_until and self._without < MOST:
                return False
            self._without = 0
            self._waiting.pop(wakeup, None)
            self._rest_until = now + self._crowd.rest
            return True

    def enqueued(self, id: int, seconds: float) -> None:
        """A job of this process was committed, which took so many seconds."""
        with self._changed:
            self._crowd.enqueued(id, seconds, time.monotonic())

    def flush(self, timeout: float = FLUSH) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._under_way, timeout)

    def close(self) -> None:
        self.flush()
        with self._changed:
            self._disconnect()

    # -- with the lock held --------------------------------------------------------------------------------------------

    def _take_answer(self) -> None:
        """Check whether the wake-up in flight was answered."""
        assert self._connection is not None
        pgconn = self._connection.pgconn
        try:
            pgconn.flush()
            pgconn.consume_input()
            while not pgconn.is_busy():
                answer = pgconn.get_result()
                if answer is None:
                    self._rest_until = time.monotonic() + self._crowd.rest
                    self._under_way = False
                    return
                if answer.status == pq.ExecStatus.FATAL_ERROR:
                    raise psycopg.OperationalError(answer.get_error_message())
        except psycopg.Error as error:
            self._give_up(error)

    def _post(self, wakeups: list[tuple[str, str]]) -> None:
        assert self._connection is not None
        pgconn = self._connection.pgconn
        self._under_way = True
        try:
            pgconn.send_query_params(
                SEND, [array(aimed(c) for c, _ in wakeups).encode(), array(p for _, p in wakeups).encode()]
            )
            pgconn.flush()
        except psycopg.Error as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        events.emit("notify_failed", error=str(error).strip())
        self._disconnect()

    def _disconnect(self) -> None:
        self._under_way = False
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wait_for_work():
            self._open()
            self._await_answer()
            with self._changed:
                # A little after the pause ends: a job that comes just then takes the wake-ups along.
                while self._waiting and (rest := self._send_at - time.monotonic()) > 0:
                    self._changed.wait(rest)
                if self._under_way:  # another thread has sent one meanwhile: read its answer first
                    continue
                if self._waiting and self._connection is not None:
                    self._post(list(self._waiting))
                self._waiting = {}
                self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        with self._changed:
            if self._changed.wait_for(lambda: bool(self._waiting or self._under_way), IDLE):
                return True
            self._thread = None
            self._disconnect()
            return False

    def _open(self) -> None:
        if self._connection is None:
            try:
                opened = self._connect()
            except StoreError as error:
                events.emit("notify_failed", error=str(error))
                return
            try:
                opened.pgconn.nonblocking = 1
            except psycopg.Error as error:  # the connection has just ended
                events.emit("notify_failed", error=str(error).strip())
                opened.close()
                return
            with self._changed:
                self._connection = opened

    def _await_answer(self) -> None:
        """Wait until nothing is in flight. Only this thread reads answers; otherwise one thread could wait for an
        answer that another has taken."""
        while True:
            with self._changed:
                if not self._under_way or self._connection is None:
                    return
                self._take_answer()
                if not self._under_way:
                    return
                descriptor = self._connection.pgconn.socket if self._connection is not None else -1
            if descriptor >= 0 and not ready(descriptor, timeout=ANSWER):
                with self._changed:
                    self._give_up(TimeoutError(f"no answer within {ANSWER:g} s"))


def _flush(notifier: weakref.ref[Notifier]) -> None:
    alive = notifier()
    if alive is not None:
        alive.flush()


def _flush_where_atexit_is_not_run(notifier: Notifier) -> None:
    """Forked processes of multiprocessing end without atexit, but run the finalizers of multiprocessing."""
    if util := sys.modules.get("multiprocessing.util"):
        util.Finalize(notifier, _flush, args=(weakref.ref(notifier),), exitpriority=0)


def _reset_all() -> None:
    for notifier in list(_notifiers):
        # Closing it here would end the parent's session, so it is kept aside for as long as the process lives.
        _left_behind.append(notifier._connection)
        notifier.reset()


os.register_at_fork(after_in_child=_reset_all)
