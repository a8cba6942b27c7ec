"""Jobs in a SQLite file: one host, many processes, nothing to install."""

from __future__ import annotations

import heapq
import json
import re
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, cast

import msgspec

from holdfast.errors import LeaseLost, StoreError
from holdfast.model.job import Claimed, Held, Look, Request, Thing, Wants
from holdfast.model.outcome import Outcome
from holdfast.settings import Settings
from holdfast.store.base import (
    Exchanged,
    HandOut,
    JobId,
    Ref,
    Row,
    Transaction,
    by_fence,
    by_verb,
    may_be_lost,
    with_output,
)
from holdfast.store.migrate import OLDEST_CODE, check_version, misfit, pending
from holdfast.store.pool import Pool
from holdfast.store.sqlite.catalogue import fresh, parts, things
from holdfast.store.sqlite.connect import Connection, path_of, prepare_file, translated
from holdfast.store.sqlite.enqueue import SqliteEnqueue, stored
from holdfast.store.statements import Statements
from holdfast.store.steering import forget

DOCUMENT = 200  # jobs read in one document: their arguments may be long
CHANGE_CHECK = 0.015  # seconds between looks at the file's change counter while a worker waits

Found = tuple[int, str, int, int]  # a due job: -priority, due time, id; whether it may be claimed ahead of a free slot


class SqliteStore(SqliteEnqueue):
    def __init__(self, settings: Settings, *, clock: Callable[[], datetime] | None = None) -> None:
        self.settings = settings
        self.shown_url = settings.shown_url
        self.path = path_of(settings)
        self.can_listen = settings.listen
        self._oldest: int | None = None
        self._clock = clock or (lambda: datetime.now(UTC))
        self.statements = Statements(
            "sqlite",
            table=lambda name: f'"{settings.prefix}{name}"',
            now=":now",
            clock=":now",
            after=lambda name: f":{name}_at",
            any_of=lambda name: f"in (select value from json_each(:{name}))",  # noqa: S608 - our own names
        )
        self._after: dict[str, list[str]] = {}
        self._pool: Pool[Connection] = Pool(
            self._connect, lambda connection: not connection.db.in_transaction, survives_fork=False
        )
        prepare_file(self.path)

    def _connect(self) -> Connection:
        return Connection(self.path, self.settings)

    # -- set-up ------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        with self._use() as connection:
            # Switching to the write-ahead log wants the file to itself; the gate makes the first ones take turns.
            with connection.gate.held():
                connection.db.execute("pragma journal_mode = wal")
            with connection.writing() as db:
                applied = pending("sqlite", self._version(db) or 0)
                for migration in applied:
                    for statement in parts(self.statements.fill(migration.sql)):
                        db.execute(statement)
                if applied:
                    db.execute(
                        self.statements.fill(
                            "insert into @meta values (1, :store_id, :version, :oldest_code) on conflict (only_row) "
                            "do update set version = excluded.version, oldest_code = excluded.oldest_code"
                        ),
                        {"store_id": str(uuid.uuid4()), "version": applied[-1].version, "oldest_code": OLDEST_CODE},
                    )
        self.check()
        return [m.name for m in applied]

    def pending(self) -> list[str]:
        with self._use() as connection:
            return [m.name for m in pending("sqlite", self._version(connection.db) or 0)]

    def _version(self, db: sqlite3.Connection) -> int | None:
        name = f"{self.settings.prefix}meta"
        if not db.execute("select 1 from sqlite_master where type = 'table' and name = ?", (name,)).fetchone():
            return None
        row = db.execute(self.statements["meta"]).fetchone()
        if row is None:
            raise StoreError(
                f"the table {name} in {self.path} is empty: it is not one of ours, or was damaged", number="HF2104"
            )
        self.store_id, self._oldest = row[0], row[2]
        return cast(int, row[1])

    def check(self) -> None:
        self._oldest = None
        with self._use() as connection:
            found = self._version(connection.db)
        check_version("sqlite", self.shown_url, found, self._oldest)

    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        expected = fresh(self.statements)
        tables = [thing.name for thing in expected if thing.kind == "table"]
        with self._use() as connection:
            return things(connection.db, self.statements, tables), expected

    def close(self) -> None:
        self._pool.close()

    # -- primitives --------------------------------------------------------------------------------------------

    @contextmanager
    def _use(self) -> Iterator[Connection]:
        with self._pool.use() as connection, translated(str(self.path)):
            yield connection

    def _parameters(self, text: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Fill in the clock, and the instants a statement reckons from it. SQLite has no clock but the host's."""
        now = self._clock()
        parameters["now"] = stored(now)
        after = self._after.get(text)
        if after is None:
            after = self._after[text] = sorted({m[1] for m in re.finditer(r":(\w+)_at\b", text)})
        for name in after:
            if name in parameters:
                seconds = parameters[name]
                parameters[f"{name}_at"] = None if seconds is None else stored(now + timedelta(seconds=seconds))
        for name, value in parameters.items():
            if isinstance(value, list):
                parameters[name] = json.dumps(value)
        return parameters

    def rows(self, db: sqlite3.Connection, text: str, parameters: dict[str, Any]) -> list[Row]:
        cursor = db.execute(text, self._parameters(text, parameters))
        rows = cursor.fetchall()
        if not rows:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in rows]

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self._use() as connection, connection.writing() as db:
            yield _Transaction(self, db)

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        with self._use() as connection:
            return self.rows(connection.db, self.statements[name], parameters)

    # -- the worker's trip ---------------------------------------------------------------------------------------

    def exchange(
        self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str] = (),
        hand_out: HandOut | None = None,
    ) -> Exchanged:  # fmt: skip
        done = self._exchange(finished, wants, drained)
        if hand_out is not None and wants is not None:
            hand_out(done.claimed)
        return done

    def _exchange(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> Exchanged:
        done = Exchanged()
        with self._use() as connection:
            if wants is not None and wants.limit + wants.ahead <= 0:
                wants = None
            if wants is not None and not finished and not drained:
                # An empty poll takes no write lock.
                ids, done.claimed = self._choose(connection.db, _one(wants))
                if not ids:
                    return done
            if finished or drained or wants is not None:
                with connection.writing() as db:
                    self._record_outcomes(db, finished, done)
                    if drained:
                        self.rows(db, self.statements["drop_leases"], {"fences": list(drained)})
                    if wants is not None:
                        done.claimed = self._claim(db, wants)
        return done

    def _record_outcomes(self, db: sqlite3.Connection, finished: Sequence[Outcome], done: Exchanged) -> None:
        doubtful: list[Outcome] = []
        for verb, outcomes in by_verb(finished).items():
            if verb == "succeed":
                for fence, plain, results in by_fence(outcomes):
                    if plain and self._changed(db, "succeed", ids=[o.id for o in plain], fence=fence) != len(plain):
                        doubtful += plain
                    ended = [[o.id, _json(o.result)] for o in results]
                    if ended and self._changed(db, "succeed_with", ended=ended, fence=fence) != len(ended):
                        doubtful += results
                for outcome in with_output(outcomes):
                    told = {"id": outcome.id, "fence": outcome.fence, "output": outcome.output}
                    self.rows(db, self.statements["output"], told)
                continue
            for outcome in outcomes:
                rows = self._end_one(db, verb, outcome)
                if not rows:
                    doubtful.append(outcome)
                elif rows[0]["state"] == "queued":
                    done.requeued.add(rows[0]["queue"])
        for outcome in filter(may_be_lost, doubtful):
            recorded = self.rows(db, self.statements["recorded"], {"id": outcome.id, "fence": outcome.fence})
            (done.already if recorded else done.lost).append(outcome)

    def _changed(self, db: sqlite3.Connection, name: str, /, **parameters: Any) -> int:
        """Run a statement; returns how many rows it changed."""
        before = db.total_changes
        self.rows(db, self.statements[name], parameters)
        return db.total_changes - before

    def _end_one(self, db: sqlite3.Connection, verb: str, outcome: Outcome) -> list[Row]:
        error = outcome.error
        told = {"error_code": error and error.code, "error_message": error and error.message}
        rows = self.rows(
            db, self.statements[verb], {"id": outcome.id, "fence": outcome.fence, "delay": outcome.delay, **told}
        )
        if rows and outcome.attempt is not None:
            row = rows[0]
            history = {
                "id": outcome.id, "fence": outcome.fence, "life": row["life"], "number": row["number"],
                "worker": row["worker"], "outcome": outcome.attempt, "started_at": row["started_at"],
                "traceback": error and error.traceback, "output": outcome.output,
                "error_code": row["error_code"], "error_message": row["error_message"],
            }  # fmt: skip
            self.rows(db, self.statements["attempt"], history)
        return rows

    def _claim(self, db: sqlite3.Connection, wants: Wants) -> Claimed:
        ids, chosen = self._choose(db, wants)
        if chosen.switched and ids:
            barred = {row["id"] for row in self.rows(db, self.statements["bar"], {"ids": ids})}
            ids = [id for id in ids if id not in barred]
            chosen = msgspec.structs.replace(chosen, passed=chosen.passed or bool(barred))
        if not ids:
            return chosen
        self.rows(db, self.statements["claim"], {"ids": ids, "fence": wants.fence, "worker": wants.worker})
        taken: dict[int, Held] = {}
        for part in batched(ids, DOCUMENT):
            [document] = self.rows(db, self.statements["claimed"], {"ids": part, "fence": wants.fence})
            taken |= {row[0]: _held(wants.fence, row) for row in _TAKEN.decode(_only(document))}
        lease = {
            "fence": wants.fence, "worker": wants.worker, "lease": wants.lease, "held": wants.held + len(taken),
            "ids": sorted(taken),
        }  # fmt: skip
        self.rows(db, self.statements["lease"], lease)
        return msgspec.structs.replace(chosen, jobs=[taken[id] for id in ids])

    def _choose(self, db: sqlite3.Connection, wants: Wants) -> tuple[list[int], Claimed]:
        """Which jobs this worker would take now, the most urgent first: priority, then due time, then id. Pauses
        by filter, of which it tells, may mean some of them."""
        statements, clock = self.statements, self._clock()
        now = stored(clock)
        scope = {"tasks": list(wants.tasks), "queues": None if wants.queues is None else list(wants.queues)}
        lanes = self.rows(db, statements["lanes"], dict(scope))
        suspects = self.rows(db, statements["suspects"], dict(scope))
        due = [lane for lane in lanes if lane["ready_at"] <= now]
        waiting = [s for s in suspects if s["suspect_at"] <= now]
        upcoming = [lane["ready_at"] for lane in lanes if lane["ready_at"] > now]
        upcoming += [s["suspect_at"] for s in suspects if s["suspect_at"] > now]
        if wants.held:
            upcoming += [s["suspect_until"] for s in waiting if s["suspect_until"] and s["suspect_until"] > now]
        if due:
            names = [[lane["queue"], lane["task"], lane["priority"]] for lane in due]
            [later] = self.rows(db, statements["next_due"], {"lanes": names})
            upcoming += [moment for moment in later.values() if moment]
        [pauses] = self.rows(db, statements["pause_ends"], {})
        upcoming += [pauses["ends"]] if pauses["ends"] else []
        switched = bool(pauses["switched"])
        next_due = _seconds(min(upcoming), clock) if upcoming else None
        lapsed = [s for s in waiting if s["suspect_until"] and s["suspect_until"] <= now]
        alone = [s["id"] for s in waiting if not s["suspect_until"] or s["suspect_until"] > now]
        if alone and not wants.held:
            # A worker with nothing in hand runs a suspect before anything else, and runs it alone: until its time of
            # waiting for that is over, then it is a job like any other.
            return alone[:1], Claimed(next_due=next_due, alone=True, switched=switched)
        n = wants.limit + wants.ahead
        picked = self._first(db, due, lapsed, n)
        # The first may be any; those ahead of a free slot only what may wait for one (as in claim.sql of PostgreSQL).
        ids = [id for rank, (_, _, id, fresh) in enumerate(picked) if rank < wants.limit or fresh]
        hold_back = any(s["suspect_until"] is None for s in waiting)
        passed = len(ids) < len(picked)
        return ids, Claimed(next_due=next_due, passed=passed, hold_back=hold_back, switched=switched)

    def _first(self, db: sqlite3.Connection, due: list[Row], lapsed: list[Row], n: int) -> list[Found]:
        """The first n of all lanes together. Those of a lower priority are read only if the others are not enough."""
        found: list[Found] = []
        for priority in sorted({row["priority"] for row in (*due, *lapsed)}, reverse=True):
            lanes = [lane for lane in due if lane["priority"] == priority]
            waited = sorted((-priority, s["suspect_at"], s["id"], 0) for s in lapsed if s["priority"] == priority)
            found += islice(heapq.merge(waited, *self._in_turn(db, lanes, n - len(found))), n - len(found))
            if len(found) == n:
                break
        return found

    def _in_turn(self, db: sqlite3.Connection, lanes: list[Row], n: int) -> list[Iterator[Found]]:
        """The jobs of each lane. All begin with a few, read at once; whoever wants more of one reads on there."""
        if not lanes:
            return []
        few = min(n, n // len(lanes) + 4)
        starts = [[lane["queue"], lane["task"], lane["priority"], "", 0] for lane in lanes]

        def read(places: list[list[Any]], many: int) -> list[list[Found]]:
            [document] = self.rows(db, self.statements["lane_jobs"], {"lanes": places, "n": many})
            return _FOUND.decode(_only(document))

        def jobs(start: list[Any], found: list[Found]) -> Iterator[Found]:
            many = few
            while found:
                yield from found
                if len(found) < many:
                    return
                many = min(n, many * 4)
                _, after_at, after_id, _ = found[-1]
                [found] = read([[*start[:3], after_at, after_id]], many)

        return [jobs(start, found) for start, found in zip(starts, read(starts, few), strict=True)]

    def claim_of(self, fence: str) -> list[Held]:
        with self._use() as connection:
            rows = connection.db.execute(self.statements["claim_of"], {"fence": fence}).fetchall()
        return [_held(fence, row) for row in rows]

    def renew(self, fences: Sequence[str], held: Sequence[Ref], lease: float) -> tuple[set[str], list[Request]]:
        with self._use() as connection, connection.writing() as db:
            renewed = self.rows(
                db, self.statements["renew"], {"fences": list(fences), "held": len(held), "lease": lease}
            )
            concerns = self.rows(db, self.statements["requests"], {"held": [list(ref) for ref in held]})
        requests = [
            Request(row["id"], row["fence"], bool(row["lost"]), bool(row["cancel"]), bool(row["pause"]))
            for row in concerns
        ]
        return {row["fence"] for row in renewed}, requests

    def look(self, worker: str, tasks: Sequence[str], queues: Sequence[str] | None, crons: Sequence[str] = ()) -> Look:
        scope = {"tasks": list(tasks), "queues": None if queues is None else list(queues)}
        with self._use() as connection:
            with connection.writing() as db:
                self.rows(db, self.statements["seen"], {"worker": worker})
            now = self._clock()
            [seen] = self.rows(connection.db, self.statements["look"], {"crons": list(crons)})
            lanes = self.rows(connection.db, self.statements["lanes"], dict(scope))
            suspects = self.rows(connection.db, self.statements["suspects"], dict(scope))
            [pauses] = self.rows(connection.db, self.statements["pause_ends"], {})
            freed = seen["barred"] and not all(
                row["stands"] for row in self.rows(connection.db, self.statements["barred_by"], {})
            )
        upcoming = [lane["ready_at"] for lane in lanes] + [suspect["suspect_at"] for suspect in suspects]
        upcoming += [pauses["ends"]] if pauses["ends"] else []
        lease_end, tick = seen["next_lease_end"], seen["next_tick"]
        return Look(
            next_lease_end=lease_end and _seconds(lease_end, now),
            next_due=_seconds(min(upcoming), now) if upcoming else None,
            expired_leases=bool(seen["expired_leases"]),
            expired_jobs=bool(seen["expired_jobs"]),
            next_tick=tick and _seconds(tick, now),
            next_pause_end=pauses["filter_ends"] and _seconds(pauses["filter_ends"], now),
            switched=bool(pauses["switched"]),
            freed=bool(freed),
            misfit=misfit("sqlite", self.shown_url, seen["version"], seen["oldest_code"]),
        )

    def ahead(
        self, *, tasks: Sequence[str], queues: Sequence[str] | None, priority: int, due_at: Any, id: JobId, most: int
    ) -> tuple[int, JobId | None]:
        scope = {"tasks": list(tasks), "queues": None if queues is None else list(queues)}
        mine = (-priority, due_at, id)
        with self._use() as connection:
            now = stored(self._clock())
            suspects = [
                (-s["priority"], s["suspect_at"], s["id"])
                for s in self.rows(connection.db, self.statements["suspects"], dict(scope))
                if s["suspect_at"] <= now
                and s["id"] != id
                # One that waits to be run alone goes before all others.
                and (
                    not s["suspect_until"]
                    or s["suspect_until"] > now
                    or (-s["priority"], s["suspect_at"], s["id"]) < mine
                )
            ]
            jobs, first = len(suspects), [suspect[2] for suspect in suspects]
            for lane in self.rows(connection.db, self.statements["lanes"], dict(scope)):
                if lane["ready_at"] > now or lane["priority"] < priority or jobs >= most:
                    continue
                place = {"queue": lane["queue"], "task": lane["task"], "lane": lane["priority"], "id": id}
                [found] = self.rows(
                    connection.db, self.statements["ahead"],
                    {**place, "priority": priority, "due_at": due_at, "most": most - jobs},
                )  # fmt: skip
                jobs += found["jobs"]
                first += [found["first"]] if found["first"] is not None else []
        return min(jobs, most), min(first, default=None)

    def purge(self, after_id: int, *, finished: float, failed: float, limit: int = 1000) -> tuple[int, int | None]:
        # Look first: only if there may be something to forget is the writers' lock taken.
        [step] = self.read("purge_step", after_id=after_id, limit=limit, minus_youngest=-min(finished, failed))
        if step["reached"] is None:
            return 0, None
        with self.transaction() as tx:
            gone = tx.rows(
                "purge", after_id=after_id, reached=step["reached"], minus_finished=-finished, minus_failed=-failed
            )
            forget(tx, [row["id"] for row in gone])
        return len(gone), None if step["young"] else step["reached"]

    # -- under the lease: where PostgreSQL has one statement, these are several in a transaction -----------------------

    def checkpoint(self, ref: Ref, state: bytes | None, pending: int = 0, done: int | None = None) -> tuple[bool, bool]:
        with self.transaction() as tx:
            rows = tx.rows(
                "checkpoint", id=ref.id, fence=ref.fence, checkpoint=_json(state), pending=pending, done=done
            )
            if rows and pending:
                tx.rows("list_pending", ids=[ref.id])
        return self._told(ref, "checkpoint", rows)

    def keep_step(self, ref: Ref, name: str, result: bytes) -> tuple[bool, bool]:
        with self.transaction() as tx:
            rows = tx.rows("step", id=ref.id, fence=ref.fence, name=name)
            if rows:
                tx.rows("keep_step", id=ref.id, fence=ref.fence, name=name, result=_json(result))
        return self._told(ref, "step", rows)

    def ids_of(self, stored_ids: Any) -> list[JobId]:
        return cast(list[JobId], json.loads(stored_ids))

    # -- a handler's own transaction -------------------------------------------------------------------------------

    def succeed_on(self, connection: Any, ref: Ref, result: bytes | None) -> None:
        rows = self._execute_on(connection)(
            self.statements["succeed_on"], {"id": ref.id, "fence": ref.fence, "result": _json(result)}
        )
        if not rows:
            raise LeaseLost(f"job {ref.id} was taken over by someone else; roll this transaction back")

    async def asucceed_on(self, connection: Any, ref: Ref, result: bytes | None) -> None:
        self.succeed_on(connection, ref, result)

    @contextmanager
    def user_transaction(self) -> Iterator[Any]:
        # A connection of its own: whatever the handler sets on it ends with it. What goes wrong is the handler's own
        # affair, too: its errors stay as they are.
        with self._pool.fresh() as connection, connection.writing() as db:
            yield db

    # -- wake-ups ----------------------------------------------------------------------------------------------------

    def listen(self, heard: Callable[[str, str], None], stop: Callable[[], bool], *, finished: bool = False) -> None:
        """SQLite can't notify, but tells cheaply whether anyone has committed: the change counter is read some times
        a second, without touching the data."""
        with translated(str(self.path)), self._pool.fresh() as connection:
            seen = _change_counter(connection.db)
            heard("listening", "")
            while not stop():
                time.sleep(CHANGE_CHECK)
                now = _change_counter(connection.db)
                if now != seen:
                    seen = now
                    heard("changed", "")

    # -- how values are stored -----------------------------------------------------------------------------------------

    def moment(self, stored: Any) -> datetime | None:
        return None if stored is None else datetime.fromisoformat(stored).replace(tzinfo=UTC)

    def instant(self, moment: datetime | None) -> Any:
        return None if moment is None else stored(moment)

    def words(self, stored: Any) -> tuple[str, ...]:
        return tuple(json.loads(stored)) if stored else ()

    def json(self, stored: Any) -> bytes | None:
        return None if stored is None else str(stored).encode()


class _Transaction:
    def __init__(self, store: SqliteStore, db: sqlite3.Connection) -> None:
        self._store = store
        self._db = db

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        return self._store.rows(self._db, self._store.statements[name], parameters)


# The documents of lane_jobs.sql and claimed.sql.
_FOUND = msgspec.json.Decoder(list[list[Found]])
_TAKEN = msgspec.json.Decoder(list[tuple[int, str, str, str, int, int, int, str | None, str | None]])


def _one(wants: Wants) -> Wants:
    """Enough to know whether there is anything to take. (Ahead of free slots that depends on what stands in front.)"""
    return msgspec.structs.replace(wants, limit=1, ahead=0) if wants.limit else wants


def _only(row: Row) -> str:
    """The one value of a row."""
    [value] = row.values()
    return cast(str, value)


def batched(ids: list[int], size: int) -> Iterator[list[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _seconds(stored_moment: str, now: datetime) -> float:
    return (datetime.fromisoformat(stored_moment).replace(tzinfo=UTC) - now).total_seconds()


def _change_counter(db: sqlite3.Connection) -> int:
    return cast(int, db.execute("pragma data_version").fetchone()[0])


def _held(fence: str, row: tuple[Any, ...]) -> Held:
    id, task, queue, args, attempt, max_attempts, priority, checkpoint, correlation_id = row
    checkpoint = None if checkpoint is None else checkpoint.encode()
    return Held(id, fence, task, queue, args.encode(), attempt, max_attempts, priority, checkpoint, correlation_id)


def _json(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
