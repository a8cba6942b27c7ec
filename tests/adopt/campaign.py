"""Both sides of an adopted table at once, under everything that can happen to it: `python -m tests.adopt.campaign`.

Real workers are killed and started again. Beside them other programs insert, claim (in three styles), take over from
the dead, die, ask, reset, delete, update in bulk, keep rows and the whole table locked, alter it, and use transactions
that are serializable, have one snapshot, or are prepared.

None of their statements may fail. All the while somebody looks whether rows and jobs agree."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from holdfast import Holdfast
from holdfast.settings import Settings
from tests.adopt.systems.database import Database
from tests.adopt.systems.ledger import Ledger
from tests.adopt.systems.proof import assert_never_two_at_once
from tests.crash.commands import Command, Commands
from tests.servers import own_postgres
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
LEASE = 6.0  # seconds, of workers and of the table's own rule
STAND = 1.2  # seconds at most that one of the others keeps a lock
LONGEST = 8.0  # seconds at most that a statement of others waits: for one another, and not for us
WORKERS = 3
PATIENCE = 90.0
FINISHED = "('completed', 'failed', 'cancelled')"
ENOUGH = 40  # rows that wait for somebody, kept up
MAPPING: dict[str, Any] = {
    "states": {
        "queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed",
        "paused": "paused", "cancelled": "cancelled",
    },
    "created_at": "created_at", "run_at": "run_after", "priority": "urgency", "attempts": "retries",
    "worker": "worker_id", "fence": "claim", "heartbeat_at": "last_heartbeat", "lease": LEASE, "version": "version",
    "updated_at": "updated_at", "error_message": "error", "results": {"score": "score"},
    "notify": False,  # or nobody could prepare a transaction
}  # fmt: skip
DDL = """
    create table audits (
        id {uuid} primary key default {new_uuid}, url text not null,
        status text not null default 'pending' check (status in (
            'pending', 'processing', 'completed', 'failed', 'paused', 'cancelled', 'draft')),
        created_at {instant} not null default ({now}), run_after {instant}, urgency integer not null default 0,
        retries integer not null default 0, worker_id text, claim {uuid}, last_heartbeat {instant},
        version integer not null default 1, updated_at {instant} not null default ({now}), error text, score integer,
        note integer not null default 0
    );

    create table claims (claim {uuid}, id {uuid}, url text)
"""
# A trigger of the user's own: what the row said as it was claimed. (Under the same claim it is written as taken again
# when somebody wrote another word meanwhile.)
OWN_TRIGGER = {
    "sqlite": """
        create trigger own after update of status on audits
        when new.status = 'processing' and new.claim is not null and new.claim is not old.claim
        begin insert into claims values (new.claim, new.id, new.url); end
    """,
    "postgres": """
        create function own() returns trigger language plpgsql as $$
        begin insert into claims values (new.claim, new.id, new.url); return null; end $$;

        create trigger own after update of status on audits for each row
        when (new.status = 'processing' and new.claim is not null and new.claim is distinct from old.claim)
        execute function own()
    """,
}
APP = """
import random, sys, time
sys.path.insert(0, {root!r})
from holdfast import Holdfast, JobContext
from tests.adopt.systems.ledger import Ledger

hf = Holdfast()
ledger = Ledger({ledger!r})
read = Ledger({read!r})
audits = hf.adopt("audits", **{mapping!r})


@audits.task(retry=0.2)
def analyse(ctx: JobContext, row: dict) -> dict:
    who = hf.settings.worker_name
    ledger.note("start", row["id"], who)
    read.note(row["url"], row["id"], ctx.fence)
    try:
        for _ in range(random.choice([1, 2, 2, 40])):
            time.sleep(0.02)
            if ctx.should_stop():
                ctx.checkpoint(None)
        if random.random() < 0.1:
            raise ValueError("no such page")
    except BaseException:
        ledger.note("stopped", row["id"], who)
        raise
    ledger.note("end", row["id"], who)
    return {{"score": 1}}


@hf.task
def native() -> None: ...
"""
# Rows and jobs that differ, and nothing tells of it.
UNKNOWN = """
    with words (state, word) as (values {words})
    select cast(u.id as text) as id, u.status, j.state, j.worker from audits u
      left join {jobs} j on j.source = 'audits' and j.source_id = cast(u.id as text)
      left join words w on w.state = cast(j.state as text)
     where (j.id is null and u.status in ('pending', 'processing', 'paused')
            or u.status <> w.word and (u.status <> 'draft' or j.state in ('queued', 'running', 'paused')))
       and not coalesce(j.owed, {no})
       and not coalesce(j.state = 'running' and (j.cancel_requested or j.pause_requested), {no})
       and {untold}
    union all
    select j.source_id, null, j.state, j.worker from {jobs} j
     where j.source = 'audits' and j.state in ('queued', 'running', 'paused')
       and not exists (select 1 from audits u where cast(u.id as text) = j.source_id)
       and not coalesce(j.owed, {no})
       and not (j.state = 'running' and j.cancel_requested)
       and {untold}
"""


class Place(NamedTuple):
    engine: str
    url: str

    def connect(self) -> Database:
        return Database(self.engine, self.url)

    @property
    def patience(self) -> str:
        limit = int(LONGEST * 1000)
        return f"pragma busy_timeout = {limit}" if self.engine == "sqlite" else f"set lock_timeout = {limit}"

    @property
    def jobs(self) -> str:
        return "holdfast_jobs" if self.engine == "sqlite" else "holdfast.jobs"

    @property
    def unknown(self) -> str:
        """SQLite settles in the triggers, and has no inbox."""
        told = "not exists (select 1 from holdfast.inbox i where i.source_id in ('*', {}))"
        words = ", ".join(f"('{state}', '{word}')" for state, word in MAPPING["states"].items())
        no = "0" if self.engine == "sqlite" else "false"
        first, second = UNKNOWN.split("union all")
        return "union all".join(
            part.replace("{words}", words).replace("{jobs}", self.jobs).replace("{no}", no)
            .replace("{untold}", "true" if self.engine == "sqlite" else told.format(id))
            for part, id in ((first, "cast(u.id as text)"), (second, "j.source_id"))
        )  # fmt: skip


@contextmanager
def a_place(engine: str, home: Path) -> Iterator[Place]:
    """With the user's table in it."""
    with ExitStack() as stack:
        url = f"sqlite:///{home}/app.db"
        if engine == "postgres":
            url = stack.enter_context(own_postgres(max_prepared_transactions=20)).url
        place = Place(engine, url)
        with closing(place.connect()) as db:
            db.script(DDL)
            db.script(OWN_TRIGGER[engine]) if engine == "postgres" else db.changed(OWN_TRIGGER[engine])
        yield place


class Campaign:
    def __init__(self, place: Place, home: Path, seed: int) -> None:
        self.place = place
        self.home = home
        self.chance = random.Random(seed)
        self.ledger, self.read = Ledger(home / "ledger"), Ledger(home / "read")
        self.done: Counter[str] = Counter()
        self.unknown: list[dict[str, Any]] = []
        self.failed: list[BaseException] = []
        self._ended = threading.Event()
        self._left: deque[dict[str, Any]] = deque()  # rows that workers of ours held as they were killed

    def run(self, seconds: float, needed: Iterable[str] = ()) -> None:
        """For so long, or longer: until everything `needed` was done at least once."""
        settings = Settings(url=self.place.url, synchronous="off")
        commands = Commands(self.home, settings)
        files = {"ledger": str(self.ledger.path), "read": str(self.read.path)}
        commands.app(APP.format(root=str(ROOT), mapping=MAPPING, **files))
        try:
            with Holdfast(self.place.url, synchronous="off") as hf:
                hf.adopt("audits", **MAPPING).install()
                natives = hf.task(name="native")(lambda: None)
                workers = [self._worker(commands, n) for n in range(WORKERS)]
                loops = [self._insert, self._poll, self._take_over, self._ask, self._look, self._trouble]
                loops += (
                    [self._serializable, self._repeatable, self._prepare] if self.place.engine == "postgres" else []
                )
                threads = [threading.Thread(target=self._loop, args=(loop, n)) for n, loop in enumerate(loops)]
                for thread in threads:
                    thread.start()
                until = time.monotonic() + seconds
                jobs = []
                while not self.failed and (
                    time.monotonic() < until
                    or (time.monotonic() < until + PATIENCE and any(not self.done[name] for name in needed))
                ):
                    for _, worker in workers:
                        assert worker.poll() is None, worker.log
                    jobs.append(natives.enqueue())
                    if self.chance.random() < 0.3:
                        self._kill(commands, workers)
                    self._ended.wait(0.5)
                self._ended.set()
                for thread in threads:
                    thread.join()
                self._raise()
                self._converge()
                wait_until(lambda: all(job.refresh().finished for job in jobs), "native jobs", timeout=PATIENCE)
                self.done["native jobs"] = len(jobs)
        finally:
            self._ended.set()
            commands.close()
        self.check()

    def _raise(self) -> None:
        for error in self.failed:
            raise error

    def _loop(self, loop: Callable[[Database, random.Random], None], seed: int) -> None:
        chance = random.Random(f"{self.chance.random()}-{seed}")
        with closing(self.place.connect()) as db:
            db.changed(self.place.patience)
            try:
                while not self._ended.wait(0.01):
                    loop(db, chance)
            except BaseException as error:  # noqa: BLE001 - raised by `run`
                error.add_note(loop.__name__)
                self.failed.append(error)

    # -- our workers ---------------------------------------------------------------------------------------------------

    def _worker(self, commands: Commands, n: int) -> tuple[str, Command]:
        name = f"ours-{n}"
        limits = {"lease": LEASE, "heartbeat": 1, "concurrency": 4, "threads": 4, "processes": 0}
        polling = {"poll_base": 0.1, "poll_max": 0.2}
        return name, commands.start(worker_name=name, **limits, **polling)

    def _kill(self, commands: Commands, workers: list[tuple[str, Command]]) -> None:
        n = self.chance.randrange(WORKERS)
        name, worker = workers[n]
        # First it is stopped: what it held is written down before others find it dead.
        worker.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.pid, os.WSTOPPED)
        newest = {line.id: line for line in self.ledger.lines(who=name)}
        for line in newest.values():
            if line.what == "start":
                self.ledger.note("died", line.id, name)
        with closing(self.place.connect()) as db:
            text = "select id, worker_id from audits where status = 'processing' and worker_id like :who limit 2"
            held = db.rows(text, who=f"{name}~%")
        worker.kill()
        worker.wait()
        self._left.extend(held)
        self.done["kills"] += 1
        workers[n] = self._worker(commands, n)

    # -- other programs ------------------------------------------------------------------------------------------------

    def _insert(self, db: Database, chance: random.Random) -> None:
        if db.value("select count(*) from audits where status = 'pending'") >= ENOUGH:
            return
        series = "generate_series(1, :n) x" if db.engine == "postgres" else "(select 1 x union select 2 union select 3)"
        if chance.random() < 0.1:
            self.done["rows"] += db.changed(f"insert into audits (url) select 'bulk' from {series}", n=3)
        else:
            self.done["rows"] += db.changed(
                "insert into audits (url, urgency) values ('one', :n)", n=chance.randrange(3)
            )

    def _poll(self, db: Database, chance: random.Random) -> None:
        """An old worker: it reads what waits, then takes it, if it still is as it was read."""
        found = db.row(
            "select id, version, updated_at from audits where status = 'pending' order by created_at limit 1"
        )
        if found is None:
            return
        style = chance.choice(["status = 'pending'", "version = :version", "updated_at = :updated_at"])
        who = f"old-{chance.randrange(10**9)}"
        taken = db.changed(
            "update audits set status = 'processing', worker_id = :who, last_heartbeat = {now}, version = version + 1, "
            f"updated_at = {{now}}, retries = retries + 1 where id = :id and {style}", who=who, **found,
        )  # fmt: skip
        if not taken:
            self.done["lost races"] += 1
            return
        self.done["foreign claims"] += 1
        self.ledger.note("start", found["id"], who)
        if chance.random() < 0.05:
            self.ledger.note("died", found["id"], who)
            return
        time.sleep(0.02 * chance.random())
        self.ledger.note("end", found["id"], who)
        word = chance.choice(["completed", "completed", "failed"])
        db.changed(
            "update audits set status = :word, worker_id = null, version = version + 1, updated_at = {now} "
            "where id = :id and status = 'processing' and worker_id = :who", id=found["id"], who=who, word=word,
        )  # fmt: skip

    def _take_over(self, db: Database, chance: random.Random) -> None:
        """An impatient one takes a row from a dead worker of ours, and works it for longer than that one's lease."""
        if not self._left:
            return
        left, who = self._left.popleft(), f"old-{chance.randrange(10**9)}"
        if not db.changed(
            "update audits set status = 'processing', worker_id = :who, claim = {new_uuid}, last_heartbeat = {now}, "
            "version = version + 1, updated_at = {now} "
            "where id = :id and status = 'processing' and worker_id = :worker_id", who=who, **left,
        ):  # fmt: skip
            return
        self.done["taken over"] += 1
        self.ledger.note("start", left["id"], who)
        until = time.monotonic() + LEASE + 2
        while time.monotonic() < until and not self._ended.wait(0.5):
            text = (
                "update audits set last_heartbeat = {now} where id = :id and status = 'processing' and worker_id = :who"
            )
            assert db.changed(text, id=left["id"], who=who), left
        self.ledger.note("end", left["id"], who)
        text = "update audits set status = 'completed', worker_id = null where id = :id and worker_id = :who"
        assert db.changed(text, id=left["id"], who=who), left

    def _ask(self, db: Database, chance: random.Random) -> None:
        """People, on a page that knows words only. Each resets a row once nobody holds it any more."""
        act, text = chance.choice(
            [
                ("reset", f"status = 'pending' where worker_id is null and status in {FINISHED}"),
                ("resume", "status = 'pending' where worker_id is null and status = 'paused'"),
                ("pause", "status = 'paused' where status = 'pending'"),
                ("withdraw", "status = 'draft' where status = 'pending'"),
                ("ask for a stop", "status = 'cancelled' where status = 'processing' and worker_id like 'ours-%'"),
                ("ask for a pause", "status = 'paused' where status = 'processing' and worker_id like 'ours-%'"),
                ("hurry", "urgency = urgency + 1 where status = 'pending'"),
                ("edit", "url = url || '!' where status in ('pending', 'processing')"),
            ]
        )  # fmt: skip
        change, condition = text.split(" where ")
        condition = condition.replace("%", "%%") if db.engine == "postgres" else condition
        found = db.row(f"select id from audits where {condition} order by random() limit 1", unused=0)
        if found is None:
            return
        more = "version = version + 1, updated_at = {now}"
        # `unused`: so that both drivers read "%%" alike.
        self.done[act] += db.changed(
            f"update audits set {change}, {more} where id = :id and {condition}", id=found["id"], unused=0
        )
        if chance.random() < 0.05:
            self.done["deleted"] += db.changed(
                "delete from audits where id = :id and status = 'pending'", id=found["id"]
            )

    def _trouble(self, db: Database, chance: random.Random) -> None:
        acts = ["bulk update", "new column", "renamed column", "locked rows"]
        act = chance.choice(acts + (["locked table"] if db.engine == "postgres" else []))
        match act:
            case "bulk update":
                db.changed("update audits set note = note + 1, updated_at = {now}")
            case "new column":
                db.changed("alter table audits add column extra text")
                time.sleep(0.1)
                db.changed("alter table audits drop column extra")
            case "renamed column":  # one that only Holdfast writes
                db.changed("alter table audits rename column error to oops")
                time.sleep(STAND * chance.random())
                db.changed("alter table audits rename column oops to error")
            case "locked rows":
                unfinished = "status in ('pending', 'processing')"
                self._locked(db, chance, f"select id from audits where {unfinished} limit 5 {{skip_locked}}")
            case _:
                self._locked(db, chance, "lock table audits in access exclusive mode")
        self.done[act] += 1
        self._ended.wait(0.2)

    def _locked(self, db: Database, chance: random.Random, text: str) -> None:
        with db.transaction():
            db.rows(text)
            time.sleep(STAND * chance.random())

    def _serializable(self, db: Database, chance: random.Random) -> None:
        """Rows of its own, until it commits."""
        with db.transaction():
            db.changed("set transaction isolation level serializable")
            id = db.value("insert into audits (url, status) values ('serial', 'draft') returning id")
            time.sleep(0.05 * chance.random())
            db.changed("update audits set status = 'pending' where id = :id", id=id)
        self.done["serializable"] += 1
        self._ended.wait(0.1)

    def _repeatable(self, db: Database, chance: random.Random) -> None:
        """It does not see what became of jobs since it began."""
        found = db.row("select id from audits where status in ('pending', 'paused') order by random() limit 1")
        try:
            with db.transaction():
                db.changed("set transaction isolation level repeatable read")
                word = db.row("select status from audits where id = :id", id=found and found["id"])
                self._ended.wait(0.1 * chance.random())
                if word is not None and word["status"] in ("pending", "paused"):
                    other = "paused" if word["status"] == "pending" else "pending"
                    db.changed(
                        "update audits set status = :other where id = :id", other=other, id=found and found["id"]
                    )
        except psycopg.errors.SerializationFailure:  # somebody has written the row since
            self.done["conflicts"] += 1
        self.done["repeatable"] += 1

    def _prepare(self, db: Database, chance: random.Random) -> None:
        self.done["prepared"] += 1
        name = f"p{self.done['prepared']}"
        db.changed("begin")
        db.changed("insert into audits (url) values ('prepared')")
        db.changed(f"prepare transaction '{name}'")
        time.sleep(STAND * chance.random())
        db.changed(f"{chance.choice(['commit', 'rollback'])} prepared '{name}'")

    def _look(self, db: Database, chance: random.Random) -> None:
        self.unknown += db.rows(self.place.unknown)
        self.done["snapshots"] += 1

    # -- the end -------------------------------------------------------------------------------------------------------

    def _converge(self) -> None:
        """Nobody else writes any more: all that waits is done, and all that was owed or told is settled."""
        with closing(self.place.connect()) as db:
            # What people paused goes on, as they do it.
            def left() -> list[dict[str, Any]]:
                db.changed("update audits set status = 'pending' where status = 'paused' and worker_id is null")
                found = db.rows("select * from audits where status in ('pending', 'processing', 'paused')")
                found += db.rows(f"select id from {self.place.jobs} where source = 'audits' and owed")
                return found + (db.rows("select id from holdfast.inbox") if db.engine == "postgres" else [])

            try:
                wait_until(lambda: not left(), timeout=PATIENCE)
            except AssertionError as error:
                raise AssertionError(f"still unsettled: {left()[:5]}") from error
            self.unknown += db.rows(self.place.unknown)

    def check(self) -> None:
        assert self.unknown == [], self.unknown[:5]
        assert_never_two_at_once(self.ledger)
        with closing(self.place.connect()) as db:
            claimed = {(row["claim"], row["id"]): row["url"] for row in db.rows("select claim, id, url from claims")}
        check_arguments(claimed, self.read)


def check_arguments(claimed: dict[tuple[str, str], str], read: Ledger) -> None:
    """What each handler got is what its row said as it was claimed. `claimed`: by fence and row."""
    lines = read.lines()
    assert lines
    for line in lines:
        assert claimed[line.who, line.id] == line.what, line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="under load, on each engine (default: 60)")
    parser.add_argument("--engine", choices=["sqlite", "postgres", "both"], default="both")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    for engine in ("sqlite", "postgres") if options.engine == "both" else (options.engine,):
        home = Path(tempfile.mkdtemp(prefix="holdfast-adopt-"))
        with a_place(engine, home) as place:
            campaign = Campaign(place, home, options.seed)
            print(f"{engine}, seed {options.seed}, {home}", flush=True)
            try:
                campaign.run(options.seconds)
            finally:
                print(
                    "  " + ", ".join(f"{name} {count:,}" for name, count in sorted(campaign.done.items())), flush=True
                )
        shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
