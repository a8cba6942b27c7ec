"""The databases of the campaign, seen from outside: plain connections, an audit of every version of every row of `jobs`
(by triggers, in the same transaction), the ledger, and the faults that only one engine has."""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import psycopg

from bench.embedded import EmbeddedPostgres
from tests.chaos.evidence import Database

# What is kept of each version of a job.
AUDITED = (
    "state", "task", "queue", "priority", "attempt", "max_attempts", "life", "crashes", "fence", "worker", "key",
    "created_at", "run_at", "expires_at", "started_at", "finished_at", "pause_requested", "cancel_requested",
    "error_code", "correlation_id", "args", "result", "checkpoint", "done",
)  # fmt: skip
Fault = tuple[str, Callable[[random.Random, Callable[..., None]], None]]


class Place(Database, Protocol):
    url: str

    def install(self) -> None:
        """Audit and ledger; the schema is there."""

    def sudden(self) -> list[Fault]:
        """Faults that are over at once."""

    def lasting(self) -> list[Fault]:
        """Faults that take a while. Each is told of when it begins to hurt, and when it has ended."""

    def at_a_stand(self) -> bool:
        """Can nobody write just now? For whoever stops a process: is it the one that holds a lock?"""

    def close(self) -> None: ...


def unfinished(place: Place) -> int:
    unfinished = "state in ('queued', 'running', 'paused') and task <> 'unheard_of'"
    [(count,)] = place.rows(f"select count(*) from {place.table('jobs')} where {unfinished}")
    return int(count)


class Sqlite:
    engine = "sqlite"

    def __init__(self, home: Path) -> None:
        self._path = home / "jobs.db"
        self.url = f"sqlite:///{self._path}"

    def table(self, name: str) -> str:
        return f"holdfast_{name}"

    def install(self) -> None:
        kept = ", ".join(f"'{name}', new.{name}" for name in AUDITED)
        gone = kept.replace("new.", "old.")
        with closing(self._connect()) as db:
            db.executescript(f"""
                create table chaos_ledger (job text, fence text, attempt integer, token text);
                create table chaos_audit (seq integer primary key, at text, op text, job text, version text);
                create trigger chaos_insert after insert on holdfast_jobs begin
                    insert into chaos_audit (at, op, job, version)
                    values (strftime('%Y-%m-%d %H:%M:%f', 'now'), 'insert', new.id, json_object({kept}));
                end;
                create trigger chaos_update after update on holdfast_jobs begin
                    insert into chaos_audit (at, op, job, version)
                    values (strftime('%Y-%m-%d %H:%M:%f', 'now'), 'update', new.id, json_object({kept}));
                end;
                create trigger chaos_delete after delete on holdfast_jobs begin
                    insert into chaos_audit (at, op, job, version)
                    values (strftime('%Y-%m-%d %H:%M:%f', 'now'), 'delete', old.id, json_object({gone}));
                end;
            """)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self._connect()) as db:
            return db.execute(sql).fetchall()

    def _connect(self, timeout: float = 30) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=timeout, isolation_level=None)

    def sudden(self) -> list[Fault]:
        return []

    def lasting(self) -> list[Fault]:
        return [("foreign write lock", self._hold_lock), ("foreign reader", self._pin)]

    def _hold_lock(self, dice: random.Random, tell: Callable[..., None]) -> None:
        with closing(self._connect()) as db:
            with suppress(sqlite3.OperationalError):
                db.execute("begin immediate")
                tell(stops_all=True)
                time.sleep(dice.uniform(0.5, 4))
            with suppress(sqlite3.OperationalError):
                db.execute("rollback")

    def _pin(self, dice: random.Random, tell: Callable[..., None]) -> None:
        with closing(self._connect()) as db:
            db.execute("begin")
            db.execute("select count(*) from holdfast_jobs").fetchall()
            tell()
            time.sleep(dice.uniform(3, 10))
            db.execute("rollback")

    def at_a_stand(self) -> bool:
        with suppress(OSError):
            gate = os.open(f"{self._path}-gate", os.O_RDWR)
            try:
                fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(gate)
        with closing(self._connect(timeout=0.05)) as db:
            try:
                db.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            db.execute("rollback")
        return False

    def close(self) -> None:
        pass


class Postgres:
    engine = "postgres"

    def __init__(self, home: Path) -> None:
        # What is acknowledged survives an immediate stop of the server: it is with the kernel, if not on the disk.
        settings: dict[str, Any] = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
        self._server = EmbeddedPostgres(18, **settings)
        self.url = self._server.url

    def table(self, name: str) -> str:
        return f"holdfast.{name}"

    def install(self) -> None:
        kept = ", ".join(f"'{name}', new.{name}" for name in AUDITED)
        gone = kept.replace("new.", "old.")
        with self._connect() as connection:
            connection.execute(
                f"""
                create table chaos_ledger (job text, fence text, attempt integer, token text);
                create table chaos_audit (
                    seq bigint generated always as identity primary key, at timestamptz default clock_timestamp(),
                    op text, job text, version json);
                create function chaos_audit() returns trigger language plpgsql as $$
                begin
                    if tg_op = 'DELETE' then
                        insert into chaos_audit (op, job, version)
                        values ('delete', old.id, json_build_object({gone}));
                    else
                        insert into chaos_audit (op, job, version)
                        values (lower(tg_op), new.id, json_build_object({kept}));
                    end if;
                    return null;
                end $$;
                create trigger chaos after insert or update or delete on holdfast.jobs
                    for each row execute function chaos_audit();
            """.encode()
            )

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._connect() as connection:
            return connection.execute(sql.encode()).fetchall()

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, application_name="chaos", connect_timeout=10)

    def sudden(self) -> list[Fault]:
        return [("cut backends", self._cut)]

    def lasting(self) -> list[Fault]:
        return [
            ("server stopped", self._restart),
            ("foreign row locks", self._lock_rows),
            ("foreign snapshot", self._pin),
        ]

    def _cut(self, dice: random.Random, tell: Callable[..., None]) -> None:
        with suppress(psycopg.Error):
            others = "backend_type = 'client backend' and application_name <> 'chaos'"
            pids = [pid for (pid,) in self.rows(f"select pid from pg_stat_activity where {others}")]
            chosen = pids if dice.random() < 0.15 else dice.sample(pids, min(len(pids), dice.randint(1, 3)))
            tell(count=len(chosen), of=len(pids))
            for pid in chosen:
                self.rows(f"select pg_terminate_backend({pid})")

    def _restart(self, dice: random.Random, tell: Callable[..., None]) -> None:
        tell(stops_all=True)
        self._server.stop("immediate")
        time.sleep(dice.uniform(0.1, 4))
        self._server.start()

    def _lock_rows(self, dice: random.Random, tell: Callable[..., None]) -> None:
        with suppress(psycopg.Error), self._foreign() as connection:
            tell()
            chosen = "select id from holdfast.jobs where state in ('queued', 'running') order by random() limit 5"
            connection.execute(f"select 1 from ({chosen}) as few join holdfast.jobs using (id) for update".encode())
            time.sleep(dice.uniform(0.5, 3))

    def _pin(self, dice: random.Random, tell: Callable[..., None]) -> None:
        with suppress(psycopg.Error), self._foreign() as connection:
            connection.execute("set transaction isolation level repeatable read")
            connection.execute("select count(*) from holdfast.jobs")
            tell()
            time.sleep(dice.uniform(3, 10))

    @contextmanager
    def _foreign(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.url, application_name="chaos", connect_timeout=10) as connection:
            yield connection
            connection.rollback()

    def at_a_stand(self) -> bool:
        return False

    def close(self) -> None:
        self._server.destroy()
