"""An old system at work: its poller, watchdog, user interface and a reader, each on a thread and connection of its own,
beside whatever Holdfast does to the same table."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, cycle

from tests.adopt.systems.crawl_jobs import CrawlJobs
from tests.adopt.systems.ledger import Ledger, Line
from tests.adopt.systems.system import System

PAUSE = 0.02  # seconds between two turns of a loop
BACKLOG = 4  # rows that wait for somebody, kept up by the interface
KINDS = ("plain", "flaky", "plain", "doomed", "plain")
OLD, MORTAL, SOMEBODY = "old-worker", "old-mortal", "somebody"  # who writes in the ledger, besides our workers


class World:
    def __init__(self, system: System, ledger: Ledger) -> None:
        self.system = system
        self.ledger = ledger
        self._asking = threading.Lock()  # held while people ask for something
        self._people = True
        self.snapshots = 0
        self._left = sum(system.status_counts().values())  # rows that are there already
        self._stop = threading.Event()
        self._failed: list[BaseException] = []
        self._numbers = count()
        for row in system.db.rows(f"select id from {system.table} where status = '{system.running}'"):
            ledger.note("died", row["id"], "old-dead")
        if isinstance(system, CrawlJobs):
            for row in system.db.rows("select crawl_id, total_pending from crawl_states"):
                ledger.note("saved", row["crawl_id"], "old-dead", row["total_pending"])

    @contextmanager
    def going_on(self) -> Iterator[None]:
        loops = [self._poller, self._watchdog, self._interface, self._reader]
        threads = [threading.Thread(target=self._run, args=(loop,), name=loop.__name__) for loop in loops]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()
        self.check()

    def check(self) -> bool:
        """Raises what went wrong on one of the threads."""
        for error in self._failed:
            raise error
        return True

    def _run(self, loop: Callable[[System], Callable[[], object]]) -> None:
        system = self.system.another()
        turn = loop(system)
        try:
            while not self._stop.wait(PAUSE):
                turn()
        except BaseException as error:  # noqa: BLE001 - the test raises it
            self._failed.append(error)
        finally:
            system.db.close()

    # -- old workers ---------------------------------------------------------------------------------------------------

    def _poller(self, system: System) -> Callable[[], object]:
        def turn() -> None:
            taken = system.claim(OLD)
            if taken is None:
                return
            self.ledger.note("start", taken.id, OLD)
            system.heartbeat(taken.id, OLD)
            self._stop.wait(PAUSE)  # it works
            fails = "doomed" in taken.subject
            self.ledger.note("fail" if fails else "end", taken.id, OLD)
            if not (system.fail if fails else system.finish)(taken.id, OLD):
                self.ledger.note("too late", taken.id, OLD)
                system.let_go(taken.id, OLD)

        return turn

    def claim_and_die(self) -> str | None:
        """An old worker takes a row, and is never heard of again."""
        taken = self.system.claim(MORTAL)
        if taken is None:
            return None
        self.ledger.note("start", taken.id, MORTAL)
        self.ledger.note("died", taken.id, MORTAL)
        return taken.id

    def _watchdog(self, system: System) -> Callable[[], object]:
        return system.watchdog

    # -- people --------------------------------------------------------------------------------------------------------

    def _interface(self, system: System) -> Callable[[], object]:
        kinds = cycle((*KINDS, "cancelled", "paused") if isinstance(system, CrawlJobs) else KINDS)
        touched: set[str] = set()  # each row once

        def turn() -> None:
            with self._asking:
                if self._people:
                    ask()
                if isinstance(system, CrawlJobs):
                    resume(system)

        def ask() -> None:
            if system.status_counts().get(system.waiting, 0) < BACKLOG:
                self.submit(next(kinds), system)
            for row in system.db.rows(f"select id, {system.attempts} as n from {system.table} where status = 'failed'"):
                if row["id"] not in touched:
                    touched.add(row["id"])
                    self.ledger.note("reset", row["id"], SOMEBODY, row["n"] if system.keeps_attempts else 0)
                    system.reset(row["id"])
            if isinstance(system, CrawlJobs):
                steer(system, touched)

        return turn

    def people_leave(self) -> None:
        """From now on nobody asks for anything, except that paused crawls go on."""
        with self._asking:
            self._people = False

    def submit(self, kind: str, system: System | None = None) -> str:
        system = system or self.system
        id = system.submit(f"https://{kind}-{next(self._numbers)}.example")
        self.ledger.note("submit", id, SOMEBODY)
        return id

    # -- a reader ------------------------------------------------------------------------------------------------------

    def _reader(self, system: System) -> Callable[[], object]:
        def turn() -> None:
            before = self.ledger.lines()
            with system.db.snapshot():
                counts, stale, wrong = system.status_counts(), system.stale(), system.wrong()
                pending = system.pending() if isinstance(system, CrawlJobs) else {}
                summed = system.total_pending() if isinstance(system, CrawlJobs) else 0
            after = self.ledger.lines()
            self.snapshots += 1
            assert not wrong, wrong
            assert set(counts) <= system.words, counts
            submitted = [sum(line.what == "submit" for line in lines) for lines in (before, after)]
            assert submitted[0] <= sum(counts.values()) - self._left <= submitted[1] + 1, (counts, submitted)
            assert set(stale) <= dead(before) | dead(after), (set(stale) - dead(after), after[-20:])
            assert summed == sum(pending.values())
            for id, number in pending.items():
                assert number in saved(id, before, after), (id, number, [line for line in after if line.id == id])

        return turn


def steer(system: CrawlJobs, touched: set[str]) -> None:
    """Somebody pauses and cancels crawls that run, by their words alone."""
    for row in system.db.rows("select id, start_url from crawl_jobs where status = 'processing'"):
        id, url = row["id"], row["start_url"]
        if id not in touched and ("cancelled" in url or "paused" in url):
            touched.add(id)
            (system.cancel if "cancelled" in url else system.pause)(id)


def resume(system: CrawlJobs) -> None:
    """Once its worker has let go of it: what waits may be claimed by others at once."""
    paused = "select id from crawl_jobs where status = 'paused' and (worker_id is null or worker_id = :dead)"
    for row in system.db.rows(paused, dead=MORTAL):
        system.resume(row["id"])


def dead(lines: list[Line]) -> set[str]:
    """Rows whose newest holder is dead."""
    newest = {line.id: line.what for line in lines if line.what in ("start", "died")}
    return {id for id, what in newest.items() if what == "died"}


def saved(id: str, before: list[Line], after: list[Line]) -> set[int]:
    """The counts that may stand there between these two moments: what was saved last by the first one, and whatever was
    being saved since."""
    known = [line for line in before if line.id == id and line.what == "saved"]
    since = after[after.index(known[-1]) :] if known else after
    return {known[-1].number if known else 0} | {
        line.number for line in since if line.id == id and line.what == "saving"
    }
