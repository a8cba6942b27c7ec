"""A worker's exchange with SQLite: outcomes are recorded and jobs chosen and claimed, in one transaction."""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any, cast

import msgspec

from holdfast.errors import OutcomeUnknown
from holdfast.model.job import Claimed, ClaimedJob, Wants
from holdfast.model.outcome import Outcome
from holdfast.store.columns import CLAIMED, Row
from holdfast.store.exchange import Exchanged, by_fence, by_verb, goes_on, may_be_lost, with_output, with_progress
from holdfast.store.sqlite.adopted_step import InStep
from holdfast.store.sqlite.codec import seconds_until, stored
from holdfast.store.sqlite.connect import reading_text_as
from holdfast.store.sqlite.counting import count_successes
from holdfast.store.sqlite.database import SqliteDatabase

PUT_OFF = 1.0  # seconds for which a job waits whose row can't be taken
DOCUMENT = 200  # jobs read in one document: their arguments may be long

# A due job: -priority, due time, id; whether it may be claimed ahead of a slot; whether it is an adopted row.
Found = tuple[int, str, int, int, int]


class SqliteTrips:
    """An exchange is one transaction, made when its answer is asked for."""

    overlaps = False

    def __init__(self, exchange: Callable[[Sequence[Outcome], Wants | None, Sequence[str]], Exchanged]) -> None:
        self._exchange = exchange

    def depart(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> None:
        self._errand = (finished, wants, drained)

    def claimed(self) -> Claimed:
        self._done = self._exchange(*self._errand)
        return self._done.claimed

    def recorded(self) -> Exchanged:
        return self._done


class SqliteExchange:
    def __init__(self, db: SqliteDatabase, in_step: InStep) -> None:
        self._db = db
        self._in_step = in_step

    @contextmanager
    def trips(self) -> Iterator[SqliteTrips]:
        yield SqliteTrips(self._exchange)

    def _exchange(self, finished: Sequence[Outcome], wants: Wants | None, drained: Sequence[str]) -> Exchanged:
        done = Exchanged()
        ids: list[int] = []
        with self._db.use() as connection:
            if wants is not None and wants.limit + wants.ahead <= 0:
                wants = None
            if wants is not None and not finished and not drained:
                # An empty poll takes no write lock, unless adopted tables have to be looked at.
                found, done.claimed = self._choose(connection.db, _one(wants))
                if not found and not connection.schema_was_changed():
                    return done
            if finished or drained or wants is not None:
                with connection.writing() as db:
                    self._record_outcomes(db, finished, done)
                    if drained:
                        self._db.rows(db, self._db.statements["drop_leases"], {"fences": list(drained)})
                    if wants is not None:
                        ids, done.claimed = self._claim(db, wants)
            if wants is not None and ids:
                # They are ours now, so others may write while we read them.
                jobs = self._taken(connection.db, wants.fence, ids)
                done.claimed = msgspec.structs.replace(done.claimed, jobs=jobs, more=len(jobs) < len(ids))
        return done

    def _record_outcomes(self, db: sqlite3.Connection, finished: Sequence[Outcome], done: Exchanged) -> None:
        doubtful: list[Outcome] = []
        for reached in with_progress(finished):
            self._db.rows(db, self._db.statements["progress"], reached)
        for verb, outcomes in by_verb(finished).items():
            if verb == "succeed":
                for fence, plain, results in by_fence(outcomes):
                    count_successes(self._db, db, fence, [outcome.id for outcome in (*plain, *results)])
                    if plain and self._changed(db, "succeed", ids=[o.id for o in plain], fence=fence) != len(plain):
                        doubtful += plain
                    ended = [[o.id, as_text(o.result)] for o in results]
                    if ended and self._changed(db, "succeed_with", ended=ended, fence=fence) != len(ended):
                        doubtful += results
                for outcome in with_output(outcomes):
                    told = {"id": outcome.id, "fence": outcome.fence, "output": outcome.output}
                    self._db.rows(db, self._db.statements["output"], told)
                continue
            for outcome in outcomes:
                rows = self._end_one(db, verb, outcome)
                if not rows:
                    doubtful.append(outcome)
                elif rows[0]["state"] == "queued":
                    if rows[0]["queue"] is not None:  # otherwise it is held
                        done.requeued.add(rows[0]["queue"])
                elif rows[0]["state"] == "cancelled":
                    done.cancelled += goes_on(outcome)
        for outcome in filter(may_be_lost, doubtful):
            recorded = self._db.rows(db, self._db.statements["recorded"], {"id": outcome.id, "fence": outcome.fence})
            (done.already if recorded else done.lost).append(outcome)

    def _changed(self, db: sqlite3.Connection, name: str, /, **parameters: Any) -> int:
        """Run a statement; returns how many rows it changed."""
        # By the cursor: the connection's count has what triggers changed in it.
        text = self._db.statements[name]
        return db.execute(text, self._db.parameters(text, parameters)).rowcount

    def _end_one(self, db: sqlite3.Connection, verb: str, outcome: Outcome) -> list[Row]:
        error = outcome.error
        told: dict[str, Any] = {"error_code": error and error.code, "error_message": error and error.message}
        told |= {"id": outcome.id, "fence": outcome.fence, "delay": outcome.delay, "outcome": outcome.attempt}
        told |= {"held_by": outcome.held_by, "error_fingerprint": error and error.fingerprint}
        rows = self._db.rows(db, self._db.statements[verb], told)
        if rows and outcome.attempt is not None:
            row = rows[0]
            history = {
                "id": outcome.id, "fence": outcome.fence, "life": row["life"], "number": row["number"],
                "worker": row["worker"], "outcome": outcome.attempt, "started_at": row["started_at"],
                "traceback": error and error.traceback, "output": outcome.output,
                "error_code": row["error_code"], "error_message": row["error_message"],
            }  # fmt: skip
            self._db.rows(db, self._db.statements["attempt"], history)
        return rows

    def _claim(self, db: sqlite3.Connection, wants: Wants) -> tuple[list[int], Claimed]:
        """Take the jobs chosen, under one lease; returns their ids, and what else there is to report."""
        found, chosen = self._choose(db, wants)
        ids = [id for _, _, id, _, _ in found]
        if ids:
            unready = self._in_step.unready(db, [id for _, _, id, _, adopted in found if adopted])
            ready = [id for id in ids if id not in unready] if unready else ids
            ready = self._take(db, ready, {"fence": wants.fence, "worker": wants.worker})
            lease = {
                "fence": wants.fence, "worker": wants.worker, "lease": wants.lease, "held": wants.held + len(ready),
                "ids": sorted(ready),
            }  # fmt: skip
            if ready:
                self._db.rows(db, self._db.statements["lease"], lease)
        return ids, chosen

    def _take(self, db: sqlite3.Connection, ids: list[int], claim: dict[str, Any]) -> list[int]:
        """Claim these jobs; returns those that were. A table of the user's may have constraints and triggers that don't
        let us take one of its rows: that keeps no other job."""
        text = self._db.statements["claim"]
        try:
            if ids:
                self._db.rows(db, text, claim | {"ids": ids})
        except sqlite3.IntegrityError:
            if len(ids) > 1:
                return [id for id in ids if self._take(db, [id], claim)]
            self._db.rows(db, self._db.statements["put_off"], {"ids": ids, "wait": PUT_OFF})
            return []
        return ids

    def _taken(self, db: sqlite3.Connection, fence: str, ids: list[int]) -> list[ClaimedJob]:
        """The jobs claimed, in the order of these ids."""
        taken: dict[int, ClaimedJob] = {}
        try:
            for part in batched(ids, DOCUMENT):
                [document] = self._db.rows(db, self._db.statements["claimed"], {"ids": part, "fence": fence})
                now = self._db.clock()
                taken |= {row[0]: _claimed_job(fence, row, now) for row in _TAKEN.decode(_only(document))}
        except sqlite3.Error as error:
            raise OutcomeUnknown(f"{self._db.path}: jobs were claimed and could not be read: {error}") from error
        return [taken[id] for id in ids if id in taken]

    def _choose(self, db: sqlite3.Connection, wants: Wants) -> tuple[list[Found], Claimed]:
        """Which jobs this worker would take now, the most urgent first: priority, then due time, then id."""
        statements, clock = self._db.statements, self._db.clock()
        now = stored(clock)
        scope = {"tasks": list(wants.tasks), "queues": None if wants.queues is None else list(wants.queues)}
        lanes = self._db.readable(db, statements["open_lanes"], scope)
        due = [lane for lane in lanes if lane["ready_at"] <= now]
        names = [[lane["queue"], lane["task"], lane["priority"]] for lane in due]
        [later] = self._db.rows(db, statements["upcoming"], {"lanes": names})
        upcoming = [lane["ready_at"] for lane in lanes if lane["ready_at"] > now]
        upcoming += [moment for moment in (later["next_due"], later["pause_ends"]) if moment]
        next_due = seconds_until(min(upcoming), clock) if upcoming else None
        n = wants.limit + wants.ahead
        picked = self._first(db, due, n)
        # The first `limit` may be any; those claimed ahead of a free slot must be fresh (as in PostgreSQL's taken.sql).
        found = [one for rank, one in enumerate(picked) if rank < wants.limit or one[3]]
        passed = len(found) < len(picked)
        return found, Claimed(next_due=next_due, passed=passed, filter_version=later["filter_version"])

    def _first(self, db: sqlite3.Connection, due: list[Row], n: int) -> list[Found]:
        """The first n of all lanes together. Lower priorities are read only if the higher ones have too few."""
        found: list[Found] = []
        for priority in sorted({row["priority"] for row in due}, reverse=True):
            lanes = [lane for lane in due if lane["priority"] == priority]
            found += islice(heapq.merge(*self._in_turn(db, lanes, n - len(found))), n - len(found))
            if len(found) == n:
                break
        return found

    def _in_turn(self, db: sqlite3.Connection, lanes: list[Row], n: int) -> list[Iterator[Found]]:
        """The jobs of each lane, in order. A few of each are read by one statement, and more where they run out."""
        if not lanes:
            return []
        few = min(n, n // len(lanes) + 4)
        starts = [[lane["queue"], lane["task"], lane["priority"], "", 0] for lane in lanes]

        def read(places: list[list[Any]], many: int) -> list[list[Found]]:
            [document] = self._db.rows(db, self._db.statements["lane_jobs"], {"lanes": places, "n": many})
            return _FOUND.decode(_only(document))

        def jobs(start: list[Any], found: list[Found]) -> Iterator[Found]:
            many = few
            while found:
                yield from found
                if len(found) < many:
                    return
                many = min(n, many * 4)
                _, after_at, after_id, _, _ = found[-1]
                [found] = read([[*start[:3], after_at, after_id]], many)

        return [jobs(start, found) for start, found in zip(starts, read(starts, few), strict=True)]

    def claim_of(self, fence: str) -> Claimed:
        with self._db.use() as connection, reading_text_as(connection.db, bytes):
            rows = connection.db.execute(self._db.statements["claim_of"], {"fence": fence}).fetchall()
            now = self._db.clock()
        return Claimed([_claimed_job(fence, _read_as_bytes(row), now) for row in rows])

    def close(self) -> None:
        """It has no connections but those of the database."""


# The documents of lane_jobs.sql and claimed.sql.
_FOUND = msgspec.json.Decoder(list[list[Found]])
_TAKEN = msgspec.json.Decoder(list[list[Any]])
# Where JSON and the expiry stand among the fields of a ClaimedJob: its second one is the fence.
_JSON = [place + 1 for place, column in enumerate(CLAIMED) if column.type == "json"]
_EXPIRY = 1 + [column.name for column in CLAIMED].index("expires_at")


def _one(wants: Wants) -> Wants:
    """Wants just enough to know whether there is anything to take. (What may be claimed ahead of free slots depends on
    the jobs before it.)"""
    return msgspec.structs.replace(wants, limit=1, ahead=0) if wants.limit else wants


def _only(row: Row) -> str:
    """The one value of a row."""
    [value] = row.values()
    return cast(str, value)


def batched(ids: list[int], size: int) -> Iterator[list[int]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))


def _claimed_job(fence: str, row: Sequence[Any], now: datetime) -> ClaimedJob:
    values = [row[0], fence, *row[1:]]
    for place in _JSON:
        if isinstance(values[place], str):
            values[place] = values[place].encode()
    if values[_EXPIRY] is not None:
        values[_EXPIRY] = seconds_until(values[_EXPIRY], now)
    return ClaimedJob(*values)


def _read_as_bytes(row: Sequence[Any]) -> list[Any]:
    """The values of a row whose text was read as bytes: JSON stays so, other text is shown as far as it can be."""
    return [
        value.decode(errors="replace") if isinstance(value, bytes) and column.type != "json" else value
        for column, value in zip(CLAIMED, row, strict=True)
    ]


def as_text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
