"""What goes wrong, by seed: two lines of faults at the same time, one of sudden ones, one of those that last."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from tests.chaos.fleet import LEASE, Fleet, Member, children_of
from tests.chaos.places import Fault

SUDDEN_EVERY, LASTING_EVERY = 3.0, 6.0  # seconds, on average
OFTEN = 3.0  # times as often come those that last and were asked for by name


class Faults:
    def __init__(self, fleet: Fleet, seed: int, only: Sequence[str] | None = None) -> None:
        self._fleet = fleet
        self._only = only
        self._seed = seed
        self._stopping = threading.Event()
        self._number = 0
        self._threads: list[threading.Thread] = []
        self.troubles: list[str] = []

    def start(self) -> None:
        sudden: list[Fault] = [
            ("kill worker", self.kill_worker), ("kill worker", self.kill_worker), ("kill runner", self.kill_runner),
            ("kill both", self.kill_both), ("kill isolated", self.kill_isolated), ("kill any child", self.kill_child),
            ("term worker", self.term_worker), ("kill producer", self.kill_producer),
            ("kill people", self.kill_people), *self._fleet.place.sudden(), *self._fleet.place.sudden(),
        ]  # fmt: skip
        lasting: list[Fault] = [
            ("freeze worker", self.freeze_worker),
            ("freeze runner", self.freeze_runner),
            *self._fleet.place.lasting(),
        ]
        if unknown := set(self._only or ()) - {name for name, _ in (*sudden, *lasting)}:
            raise ValueError(f"there are no faults {sorted(unknown)} on {self._fleet.place.engine}")
        for number, (faults, every) in enumerate(((sudden, SUDDEN_EVERY), (lasting, LASTING_EVERY))):
            dice = random.Random(self._seed * 10 + number)
            wanted = [fault for fault in faults if self._only is None or fault[0] in self._only]
            if not wanted:
                continue
            if self._only is not None and faults is lasting:
                every /= OFTEN
            thread = threading.Thread(target=self._go, args=(wanted, every, dice), name=f"faults-{number}")
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """No more from here on; what lasts is awaited."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _go(self, faults: list[Fault], every: float, dice: random.Random) -> None:
        while not self._stopping.wait(dice.expovariate(1 / every)):
            name, do = dice.choice(faults)
            self._number += 1
            number = self._number

            def tell(name: str = name, number: int = number, **more: object) -> None:
                self._fleet.log.write(what="fault", fault=name, number=number, **more)

            try:
                do(dice, tell)
            except Exception as error:  # noqa: BLE001 - told in the report, and the campaign goes on
                self.troubles.append(f"{name}: {error!r}")
            self._fleet.log.write(what="over", fault=name, number=number)

    def _one(self, role: str, dice: random.Random) -> Member | None:
        """A worker mostly when it is at work; else while it starts."""
        members = [m for m in self._fleet.of(role) if not m.asked and not m.frozen]
        if role == "worker" and dice.random() < 0.9:
            members = [m for m in members if m.at_work]
        return dice.choice(members) if members else None

    # -- sudden ---------------------------------------------------------------------------------------------------

    def kill_worker(self, dice: random.Random, tell: Callable[..., None]) -> None:
        if worker := self._one("worker", dice):
            tell(whom=worker.name)
            self._fleet.signal(worker, signal.SIGKILL, "kill")

    def kill_both(self, dice: random.Random, tell: Callable[..., None]) -> None:
        if worker := self._one("worker", dice):
            children = children_of(worker.process.pid)
            tell(whom=worker.name, pids=children)
            for child in children:
                _kill(child, signal.SIGKILL)
            self._fleet.signal(worker, signal.SIGKILL, "kill")

    def kill_runner(self, dice: random.Random, tell: Callable[..., None]) -> None:
        self._kill_one(self._fleet.alive(self._fleet.runners.pooled), dice, tell)

    def kill_isolated(self, dice: random.Random, tell: Callable[..., None]) -> None:
        self._kill_one(self._fleet.alive(self._fleet.runners.isolated), dice, tell)

    def kill_child(self, dice: random.Random, tell: Callable[..., None]) -> None:
        """Any process a worker has started, whatever it is there for."""
        if worker := self._one("worker", dice):
            self._kill_one(children_of(worker.process.pid), dice, tell, whom=worker.name)

    def _kill_one(self, pids: list[int], dice: random.Random, tell: Callable[..., None], **more: object) -> None:
        if pids:
            pid = dice.choice(sorted(pids))
            tell(pid=pid, **more)
            _kill(pid, signal.SIGKILL)

    def term_worker(self, dice: random.Random, tell: Callable[..., None]) -> None:
        if worker := self._one("worker", dice):
            tell(whom=worker.name)
            self._fleet.signal(worker, signal.SIGTERM, "term")
            if dice.random() < 0.3:
                time.sleep(dice.uniform(0.0, 1.0))
                tell(whom=worker.name, again=True)
                self._fleet.signal(worker, signal.SIGTERM, "term")

    def kill_producer(self, dice: random.Random, tell: Callable[..., None]) -> None:
        if producer := self._one("producer", dice):
            tell(whom=producer.name)
            self._fleet.signal(producer, signal.SIGKILL, "kill")

    def kill_people(self, dice: random.Random, tell: Callable[..., None]) -> None:
        if people := self._one("people", dice):
            tell(whom=people.name)
            self._fleet.signal(people, signal.SIGKILL, "kill")

    # -- lasting --------------------------------------------------------------------------------------------------

    def freeze_worker(self, dice: random.Random, tell: Callable[..., None]) -> None:
        """SIGSTOP past the lease, then SIGCONT. Not while it holds a lock that everybody needs: then it is let go on
        and stopped again a little later."""
        worker = self._one("worker", dice)
        if worker is None:
            return
        worker.frozen = True
        try:
            for _ in range(50):
                self._fleet.signal(worker, signal.SIGSTOP)
                if not self._fleet.place.at_a_stand():
                    break
                self._fleet.signal(worker, signal.SIGCONT)
                time.sleep(0.01)
            else:
                return
            tell(whom=worker.name)
            time.sleep(dice.uniform(0.5, LEASE * 3.5))
        finally:
            self._fleet.signal(worker, signal.SIGCONT)
            worker.frozen = False

    def freeze_runner(self, dice: random.Random, tell: Callable[..., None]) -> None:
        pids = self._fleet.alive(self._fleet.runners.pooled)
        if not pids:
            return
        pid = dice.choice(sorted(pids))
        try:
            for _ in range(50):
                _kill(pid, signal.SIGSTOP)
                if not self._fleet.place.at_a_stand():
                    break
                _kill(pid, signal.SIGCONT)
                time.sleep(0.01)
            else:
                return
            tell(pid=pid)
            time.sleep(dice.uniform(0.5, LEASE * 1.5))
        finally:
            _kill(pid, signal.SIGCONT)


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
