"""Pauses of queues, tasks, crons, and of what a filter means: durable, with who asked, why, and until when."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from holdfast import events
from holdfast.errors import RowLocked, StoreUnavailable
from holdfast.model.job import COUNTED, Changed, Pause
from holdfast.model.pause_filter import PauseFilter, pause_meaning
from holdfast.store.audit import Call
from holdfast.store.bulk_calls import LOCKED
from holdfast.store.columns import known
from holdfast.store.engine import Database, Wakeups
from holdfast.store.reads import CHUNK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.store.columns import JobId, Row
    from holdfast.store.engine import Transaction


# Pauses by filter, as the store keeps them. A job that such a pause means is held: it stays queued, `held_by` names
# the pause, and with `ready_at` null it is not in the claim's index. So however many jobs are held, no claim reads
# them.
#
# Jobs that wait when the pause begins are held here, page by page. Those that come later are claimed like any others;
# the desk gives them back as held before they start (worker/intake.py). When a pause has ended, by its own
# time or by an operator, each of its jobs is judged again: another pause may mean it; otherwise it returns to its old
# place.
#
# Once `pause` has returned, no claim that began after it starts a job the pause means. A claim that began before it
# has a lock on what it takes, and whoever holds the waiting jobs waits for that lock. A claim that begins later reads
# the new version of the filter pauses together with its jobs, and the desk reads the pauses before it starts any of
# them.

PAGE = 1000  # jobs of a lane read by one statement
LANES = 1_000_000
BEFORE_ALL = datetime(1000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StandingFilters:
    """The pauses by filter in force, the version of the whole, and seconds until the first of them ends by itself."""

    version: int
    pauses: tuple[PauseFilter, ...]
    ends_in: float | None


def standing_filters(db: Database) -> StandingFilters:
    return standing(db.read("standing_filters"))


def standing(rows: Sequence[Row]) -> StandingFilters:
    pauses = (PauseFilter.named(row["name"]) for row in rows if row["name"] is not None)
    ends = [row["ends_in"] for row in rows if row["ends_in"] is not None]
    return StandingFilters(
        rows[0]["version"], tuple(pause for pause in pauses if pause is not None), min(ends, default=None)
    )


def changed(tx: Transaction) -> None:
    """Give the filter pauses a new version, in the transaction that changes them. A random one: a counter could repeat
    itself after a failover or a restore, and a desk would then go by what it knew before."""
    tx.rows("change_filters", version=random.getrandbits(62))


def hold_waiting(db: Database, *, name: str | None = None, most: int | None = None) -> int:
    """Hold the waiting jobs that a pause means (only the one named, if given); returns how many. With `most`: about so
    many, and only from the heads of lanes, so that they don't block the jobs behind them."""
    pauses = [pause for pause in standing_filters(db).pauses if name in (None, pause.name)]
    count = 0
    locked: list[RowLocked] = []
    for pause, ids in _waiting(db, pauses, heads=most is not None):
        if most is not None and count >= most:
            break
        for start in range(0, len(ids), CHUNK):
            done, trouble = _hold(db, pause, ids[start : start + CHUNK])
            count += done
            locked += trouble
            if len(locked) >= LOCKED:
                raise _complaint(locked)
    if locked:
        raise _complaint(locked)
    return count


def _complaint(locked: list[RowLocked]) -> RowLocked:
    return RowLocked(
        "the pause stands, and whoever claims from now on keeps to it, but jobs that wait could not all be set aside: "
        f"someone's open transaction holds them: {locked[0].message}; pause once more when it has ended"
    )


def _waiting(db: Database, pauses: Sequence[PauseFilter], *, heads: bool) -> Iterator[tuple[PauseFilter, list[JobId]]]:
    """The ready jobs that these pauses mean, lane by lane. `heads`: a lane is left at its first page without any."""
    for lane in db.read("every_lane", lanes=LANES, most=0, tasks=[], queues=None) if pauses else ():
        place = {name: lane[name] for name in ("queue", "task", "priority")}
        possible = [pause for pause in pauses if pause.may_mean(place["queue"], place["task"])]
        after_at, after_id = db.codec.instant(BEFORE_ALL), 0
        rows: list[Row] = [{}] * PAGE
        while possible and len(rows) == PAGE:
            rows = db.read("lane_page", **place, after_at=after_at, after_id=after_id, limit=PAGE)
            held = _judged(db, rows, possible)
            yield from ((pause, ids) for pause, ids in held.items() if pause is not None)
            if rows:
                after_at, after_id = rows[-1]["ready_at"], rows[-1]["id"]
            if heads and held.keys() <= {None}:
                break


def _judged(db: Database, rows: Sequence[Row], pauses: Sequence[PauseFilter]) -> dict[PauseFilter | None, list[JobId]]:
    """The ids of these jobs by the pause that means them."""
    found: dict[PauseFilter | None, list[JobId]] = defaultdict(list)
    for row in rows:
        args = db.codec.json(row["args"]) or b""
        found[pause_meaning(row["queue"], row["task"], args, pauses)].append(row["id"])
    return found


def _hold(db: Database, pause: PauseFilter, ids: Sequence[JobId]) -> tuple[int, list[RowLocked]]:
    def hold(some: Sequence[JobId]) -> int:
        with db.transaction() as tx:
            return len(tx.rows("hold", ids=list(some), held_by=pause.hold, instead_of=None))

    try:
        return hold(ids), []
    except StoreUnavailable:
        pass
    # Someone has a lock on one of them, or two transactions wait for each other: then one job at a time.
    done, locked = 0, []
    for id in ids:
        try:
            done += hold([id])
        except RowLocked as error:
            locked.append(error)
            if len(locked) == LOCKED:
                break
    return done, locked


def let_go(db: Database) -> tuple[int, list[str]]:
    """Judge a bounded number of jobs again whose hold has ended; returns how many, and the queues of those that are
    ready now. Call again while it returns any."""
    judged, queues = 0, []
    with db.transaction() as tx:
        ended = [row["held_by"] for row in tx.rows("ended_holds")]
        pauses = standing(tx.rows("standing_filters")).pauses if ended else ()
        for held_by in ended:
            rows = tx.rows("held_jobs", held_by=held_by, limit=CHUNK - judged) if judged < CHUNK else []
            judged += len(rows)
            for pause, ids in _judged(db, rows, pauses).items():
                if pause is not None:
                    tx.rows("hold", ids=ids, held_by=pause.hold, instead_of=held_by)
                else:
                    queues += [row["queue"] for row in tx.rows("let_go", ids=ids, held_by=held_by)]
    return judged, queues


def read_pause(db: Database, row: Row) -> Pause:
    moment = db.codec.moment
    return Pause(**{**row, "until": moment(row["until"]), "created_at": known(moment(row["created_at"]))})


class Pauses:
    def __init__(self, db: Database, wakeups: Wakeups) -> None:
        self._db = db
        self._wakeups = wakeups

    def all(self, *, count: bool = True) -> list[Pause]:
        """What is paused. `count`: with the number of jobs that a filter holds."""
        return [read_pause(self._db, row) for row in self._db.read("pauses", most=COUNTED + 1 if count else 0)]

    def add(
        self,
        kind: str,
        name: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        until: datetime | None = None,
        delay: float | None = None,
    ) -> Pause:
        """Pause a queue, a task, a cron or the jobs that a filter means: no worker starts new attempts. Running jobs
        continue."""
        call = Call(_verb("pause", kind), name, by, reason, {"until": until, "delay": delay})
        with self._db.transaction() as tx:
            until_at = self._db.codec.instant(until)
            [row] = tx.rows("add_pause", kind=kind, name=name, by=by, reason=reason, until=until_at, delay=delay)
            if kind == "filter":
                changed(tx)
            call.record(tx, Changed(1, 0))
        events.emit("held", kind=kind, name=name, by=by, reason=reason)
        made = read_pause(self._db, row)
        if kind != "filter":
            return made
        hold_waiting(self._db, name=name)
        # With how many jobs it holds. If it has been ended meanwhile, as it was made.
        return next((pause for pause in self.all() if (pause.kind, pause.name) == (kind, name)), made)

    def hold_heads(self, most: int = 10_000) -> int:
        """Hold the jobs at the heads of lanes that pauses by filter mean, about so many; returns how many."""
        return hold_waiting(self._db, most=most)

    def let_go(self) -> int:
        """Let go of jobs whose hold has ended, a bounded batch; returns how many. Call again while it returns any."""
        judged, queues = let_go(self._db)
        if queues:
            self._wakeups.notify(set(queues))
            events.emit("freed", count=len(queues))
        return judged

    def drop(
        self,
        kind: str,
        name: str,
        *,
        by: str | None = None,
        reason: str | None = None,
        next_at: datetime | None = None,
    ) -> bool:
        """End the pause of a queue, a task, a filter or a cron (which continues with this tick). False: there was
        none."""
        with self._db.transaction() as tx:
            ended = bool(tx.rows("drop_pause", kind=kind, name=name))
            if ended and kind == "filter":
                changed(tx)
            if ended and next_at is not None:
                tx.rows("skip_cron", name=name, next_at=self._db.codec.instant(next_at))
            Call(_verb("resume", kind), name, by, reason).record(tx, Changed(int(ended), int(not ended)))
        if ended:
            while kind == "filter" and self.let_go():
                pass
            # A task's jobs may wait in any queue; an empty name wakes everyone.
            self._wakeups.notify([name if kind == "queue" else ""])
            events.emit("let_go", kind=kind, name=name)
        return ended


def _verb(verb: str, kind: str) -> str:
    """The verb as the API names it: `pause_queue`."""
    return f"{verb}_{'matching' if kind == 'filter' else kind}"
