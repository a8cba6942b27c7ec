"""A producer, a process of its own: `python -m tests.chaos.producer NAME SEED`. It logs each enqueue before it asks for
it (invoke) and what came of it: ok; fail (nothing was kept); info (nobody knows, as when it is killed in between)."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from holdfast.errors import OutcomeUnknown, StoreError
from tests.chaos import app
from tests.chaos.kinds import KINDS
from tests.chaos.writing import Log

HOME = Path(os.environ["CHAOS_HOME"])
WANTED = set(os.environ.get("CHAOS_TASKS", "").split()) or set(KINDS)
NAMES = [name for name, kind in KINDS.items() if kind.weight and not kind.poison and name in WANTED]
WEIGHTS = [KINDS[name].weight for name in NAMES]
POISON = [name for name, kind in KINDS.items() if kind.poison and name in WANTED]
POISON_EVERY, STREAM_EVERY = 12.0, 30.0  # seconds, of each producer
STREAM = 8_000  # jobs that are sent in three parts
BULK = 25
KEYS = 12
HELD_UP = 0.25  # seconds between two looks whether there is room again


class Undone(Exception):
    """Raised in a transaction that is to be rolled back."""


class Producer:
    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.random = random.Random(seed)
        self.log = Log(HOME / f"producer-{name}.jsonl")
        self.count = 0
        self.poison_at = time.monotonic() + self.random.uniform(2, POISON_EVERY)
        self.stream_at = time.monotonic() + self.random.uniform(0, STREAM_EVERY)
        self.stopping = False

    def run(self) -> None:
        signal.signal(signal.SIGTERM, self._stop)
        while not self.stopping:
            if (HOME / "enough").exists():
                time.sleep(HELD_UP)
                continue
            if time.monotonic() > self.stream_at:
                self.stream_at = time.monotonic() + self.random.expovariate(1 / STREAM_EVERY)
                self.stream()
            self.random.choices([self.single, self.bulk, self.mine, self.by_sql], [12, 3, 3, 2])[0]()
            time.sleep(self.random.expovariate(1 / 0.08))

    def _stop(self, *_: object) -> None:
        self.stopping = True

    # -- what to enqueue ------------------------------------------------------------------------------------------

    def job(self) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """A task, its arguments, and options."""
        dice = self.random
        name = dice.choices(NAMES, WEIGHTS)[0]
        if POISON and time.monotonic() > self.poison_at:
            name, self.poison_at = dice.choice(POISON), time.monotonic() + dice.expovariate(1 / POISON_EVERY)
        self.count += 1
        arguments: dict[str, Any] = {"token": f"{self.name}-{self.count}"}
        options: dict[str, Any] = {}
        match name:
            case "nap":
                arguments["seconds"] = dice.choice([0.1, 0.5, 1.0])  # one of them is paused by a filter
            case "doze" | "keyed" | "lone" | "alone_async" | "lone_flaky":
                arguments["seconds"] = round(dice.uniform(0.05, 1.0), 3)
            case "spawner":
                arguments["seconds"] = round(dice.uniform(0.5, 3.0), 3)
            case "late" | "late_snooze" | "late_retry" | "late_fail" | "late_cancel":
                arguments["seconds"] = round(dice.uniform(0.5, 4.5), 3)
            case "late_ledger":
                arguments["seconds"] = round(dice.uniform(0.5, 6.0), 3)
            case "steps" | "asteps":
                arguments["seconds"] = dice.choice([0.05, 0.05, 1.5])
            case "aledger":
                arguments["seconds"] = round(dice.uniform(0.0, 0.05), 3)
            case "checkpoints" | "acheckpoints" | "lone_checkpoints":
                arguments["count"], arguments["seconds"] = dice.choice([(5, 0.05), (15, 0.05), (8, 1.0)])
            case "long" | "along":
                arguments["count"] = dice.choice([10, 30, 50, 80])
            case "flaky":
                arguments["failures"] = dice.randint(1, 2)
        if name == "keyed":
            options["key"] = f"key-{dice.randrange(KEYS)}"
        if name == "expiring":
            options["expires"] = round(dice.uniform(0.2, 3.0), 2)
            options["delay"] = dice.choice([0, 0, round(options["expires"] / 2, 2)])
        elif dice.random() < 0.15:
            options["delay"] = round(dice.uniform(0.1, 4.0), 2)
        if dice.random() < 0.2:
            options["priority"] = dice.randint(-5, 5)
        if dice.random() < 0.15:
            options["queue"] = "side"
        return name, arguments, options

    # -- how ------------------------------------------------------------------------------------------------------

    def single(self) -> None:
        name, arguments, options = self.job()
        self.ask([(name, arguments, options)], "single", lambda: [self._using(name, options).enqueue(**arguments)])

    def bulk(self) -> None:
        jobs = [self.job() for _ in range(self.random.randint(2, BULK))]
        bound = [self._using(name, options).bind(**arguments) for name, arguments, options in jobs]
        self.ask(jobs, "bulk", lambda: app.hf.enqueue_many(bound))

    def mine(self) -> None:
        """On a transaction of our own, which we commit or roll back."""
        jobs = [self.job() for _ in range(self.random.randint(1, 3))]
        keep = self.random.random() < 0.6
        committing = False

        def enqueue() -> list[Any]:
            nonlocal committing
            with closing(app.own_connection()) as conn:
                done = [self._using(name, {**o, "conn": conn}).enqueue(**a) for name, a, o in jobs]
                if not keep:
                    conn.rollback()
                    raise Undone
                committing = True
                conn.commit()
                return done

        self.ask(jobs, "transaction" if keep else "rollback", enqueue, lambda: committing)

    def stream(self) -> None:
        """A long one that breaks: none of it is kept."""
        self.count += 1
        token = f"{self.name}-{self.count}"

        def broken() -> Iterator[Any]:
            for _ in range(STREAM):
                yield app.quick.bind(token)
            raise Undone

        self.ask([("quick", {"token": token}, {})], "stream", lambda: app.hf.enqueue_many(broken()))

    def by_sql(self) -> None:
        """A row that is inserted is a job."""
        self.count += 1
        task = "unheard_of" if self.random.random() < 0.1 else "quick"  # no worker has the one
        arguments = {"token": f"{self.name}-{self.count}"}
        committing = False

        def insert() -> list[str]:
            nonlocal committing
            table = "holdfast_jobs" if app.SQLITE else "holdfast.jobs"
            values = ", ".join([app.MARK] * 3)
            with closing(app.own_connection()) as conn:
                row = ("default", task, json.dumps(arguments))
                statement = f"insert into {table} (queue, task, args) values ({values}) returning id"
                [(made,)] = conn.execute(statement, row).fetchall()
                committing = True
                conn.commit()
                return [str(made)]

        self.ask([(task, arguments, {})], "sql", insert, lambda: committing)

    def _using(self, name: str, options: dict[str, Any]) -> Any:
        return app.hf.tasks[name].using(**options)

    def ask(self, jobs: list[Any], how: str, enqueue: Any, committing: Any = lambda: False) -> None:
        number = self.count
        asked = [{"task": n, "token": a["token"], **{k: o[k] for k in ("key",) if k in o}} for n, a, o in jobs]
        self.log.write(what="invoke", op=number, how=how, jobs=asked)
        try:
            done = enqueue()
        except (Undone, StoreError, *app.DRIVER_ERRORS) as error:
            unknown = isinstance(error, OutcomeUnknown) or committing()
            self.log.write(what="info" if unknown else "fail", op=number, error=f"{type(error).__name__}: {error}")
            if not isinstance(error, Undone):
                time.sleep(0.2)
        else:
            self.log.write(what="ok", op=number, ids=[job if isinstance(job, str) else job.id for job in done])


if __name__ == "__main__":
    Producer(sys.argv[1], int(sys.argv[2])).run()
