"""What a Store knows of jobs, as values, however the database stores them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.errors import JobNotFound
from holdfast.model.filter import ALL, DERIVED, Filter, as_json
from holdfast.model.job import COUNTED, AttemptRecord, Backlog, Depth, ErrorGroup, JobRecord, Mark, Page, StepRecord
from holdfast.model.lifecycle import State
from holdfast.model.record import decoded
from holdfast.store.columns import JobId, Records, Row, key_of, known
from holdfast.store.engine import Database

# Finds the jobs that a filter matches, newest first, without reading a big table from end to end: a page looks
# through a bounded number of the newest ids and says if it stopped there. Running and failed jobs are found by their
# indexes.

STEP = 10_000  # ids that one statement looks through
WINDOW = 25_000  # ids that are looked through for one page
INDEXED = 100_000  # ids that an index provides for it, at most
CHUNK = 500  # jobs changed in one transaction
LAST = 2**63 - 1


def page(db: Database, filter: Filter, before: str | None, limit: int, window: int = WINDOW) -> Page[JobRecord]:
    top = LAST if before is None else key_of(before)
    ids: list[int] = []
    cut, reached = False, None
    for found, floor in _found(db, filter, top, limit=limit, window=window):
        ids += found
        reached = floor
        if len(ids) >= limit:
            break
    else:
        cut = reached is not None
    found_here = ids[:limit]
    rows = db.read("list", ids=found_here) if found_here else []
    record = Records(db.codec).record
    following = str(ids[limit - 1]) if len(ids) >= limit else str(reached) if reached else None
    return Page(map(record, rows), cut=cut, next=following)


def chunks(db: Database, filter: Filter, size: int, before: int | None = None) -> Iterator[list[JobId]]:
    """All jobs that the filter matches, each once, however old; jobs enqueued meanwhile are left out. An empty chunk:
    none were found in one step."""
    for found, _ in _found(db, filter, LAST if before is None else before, limit=STEP, window=None):
        for start in range(0, max(1, len(found)), size):
            yield list(found[start : start + size])


def count(db: Database, filter: Filter) -> int:
    """How many jobs the filter matches, however old."""
    return sum(len(found) for found, _ in _found(db, filter, LAST, limit=STEP, window=None))


def _found(
    db: Database, filter: Filter, top: int, *, limit: int, window: int | None
) -> Iterator[tuple[list[int], int | None]]:
    """Ids in steps, and the id below which nothing was looked at yet (None: nothing is left)."""
    wanted = parameters(db, filter)
    few = _few(db, filter)
    if few is None:
        yield from _walk(db, wanted, top, limit, window if filter else None)
        return
    few = sorted((id for id in few if id < top), reverse=True)
    for start in range(0, len(few), STEP):
        rows = db.read("find_of", ids=few[start : start + STEP], limit=STEP, **wanted)
        yield [row["id"] for row in rows], None


def _few(db: Database, filter: Filter) -> Sequence[int] | None:
    """The ids among which all matches must be, if an index provides them."""
    if filter.ids:
        return list({key_of(id) for id in filter.ids})
    if filter.sources and filter.rows:
        return [row["id"] for row in db.read("rows_ids", sources=list(filter.sources), rows=list(filter.rows))]
    if filter.groups:
        return _indexed(db.read("grouped_ids", groups=list(filter.groups), limit=INDEXED + 1))
    if filter.states == ("running",):
        return [row["id"] for row in db.read("running_ids")]
    if filter.states == ("failed",):
        return _indexed(db.read("failed_ids", limit=INDEXED + 1))
    return None


def _indexed(rows: Sequence[Row]) -> list[int] | None:
    """Their ids. None: there are more than a page looks through, so the ids are walked as for other filters."""
    return [row["id"] for row in rows] if len(rows) <= INDEXED else None


def _walk(
    db: Database, wanted: dict[str, Any], top: int, limit: int, window: int | None
) -> Iterator[tuple[list[int], int | None]]:
    looked = 0
    while True:
        [row] = db.read("newest", before=top)
        newest = row["id"]
        if newest is None:
            yield [], None
            return
        if window is not None and looked >= window:
            yield [], newest + 1
            return
        floor = newest - STEP
        rows = db.read("find", before=newest + 1, after=floor, limit=limit, **wanted)
        looked += STEP
        top = floor + 1
        yield [row["id"] for row in rows], top


def parameters(db: Database, filter: Filter) -> dict[str, Any]:
    """The parameters of the fragment matching.sql."""
    since = filter.since
    ago = -since.total_seconds() if isinstance(since, timedelta) else None
    return {
        "states": [state for state in filter.states if state not in DERIVED] if filter.states else None,
        **{name: name in filter.states for name in DERIVED},
        "queues": list(filter.queues) or None,
        "tasks": list(filter.tasks) or None,
        "keys": list(filter.keys) or None,
        "workers": list(filter.workers) or None,
        "sources": list(filter.sources) or None,
        "rows": list(filter.rows) or None,
        "groups": list(filter.groups) or None,
        "tags": list(filter.tags) or None,
        "error": None if filter.error is None else f"%{literal(filter.error)}%",
        "minus_since": ago,
        "since_time": None if isinstance(since, timedelta) else db.codec.instant(since),
        "arguments": arguments(filter),
    }


def literal(text: str) -> str:
    """A text that LIKE takes literally."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def arguments(filter: Filter) -> str | None:
    if not filter.args:
        return None
    import json

    return json.dumps(
        [
            # The path in the notation of each database. The grammar allows no quotes in a name.
            {"path": "{" + ",".join(quoted) + "}", "route": ".".join(["$", *quoted]), "values": as_json(value)}
            for path, value in filter.args
            for quoted in [[f'"{part}"' for part in path]]
        ]
    )


# Failed jobs by the kind of their error. All of them are counted in an index; with a filter, their rows are read.

FAILED = Filter(states=("failed",))


def error_groups(db: Database, filter: Filter, limit: int) -> list[ErrorGroup]:
    groups: dict[str, list[Row]] = {}
    if filter == FAILED:
        found = db.read("error_groups")
    else:
        ids = [key_of(id) for id in filter.ids]
        found = db.read("error_groups_of", every=not ids, ids=ids, **parameters(db, filter))
    for row in found:
        groups.setdefault(row["error_fingerprint"], []).append(row)
    largest = sorted(groups.values(), key=lambda rows: -sum(row["jobs"] for row in rows))[:limit]
    examples = {row["id"]: row for row in db.read("list", ids=[_newest(rows) for rows in largest])} if largest else {}
    return [_group(db, rows, examples[_newest(rows)]) for rows in largest if _newest(rows) in examples]


def _newest(rows: Sequence[Row]) -> int:
    newest: int = max(row["newest"] for row in rows)
    return newest


def _group(db: Database, rows: Sequence[Row], example: Row) -> ErrorGroup:
    """A group from its rows, of one task each."""
    return ErrorGroup(
        id=rows[0]["error_fingerprint"],
        jobs=sum(row["jobs"] for row in rows),
        tasks=tuple(sorted({row["task"] for row in rows})),
        first_at=known(db.codec.moment(min(row["first_at"] for row in rows))),
        last_at=known(db.codec.moment(max(row["last_at"] for row in rows))),
        error_code=example["error_code"],
        error_message=example["error_message"],
        example=str(example["id"]),
    )


# How many jobs wait, run and have failed, by queue and task. Read from the indexes for claims and failures and
# counted up to a cap, so it costs the same however large the table is.

LANES = 10_000  # lanes (queue, task, priority) that are counted


def depths(db: Database, running_ids: Sequence[JobId] | None = None) -> list[Depth]:
    """A few statements, however many queues there are. `running_ids`: the jobs under leases, if the caller has read
    them already."""
    limit = COUNTED + 1
    due: dict[tuple[str, str], int] = {}
    scheduled: dict[tuple[str, str], int] = {}
    oldest: dict[tuple[str, str], datetime] = {}

    def waits(place: tuple[str, str], jobs: int, since: datetime | None) -> None:
        due[place] = due.get(place, 0) + jobs
        if jobs and since is not None:
            oldest[place] = min(since, oldest.get(place, since))

    lanes = db.read("every_lane", lanes=LANES + 1, most=limit, tasks=[], queues=None)
    more = len(lanes) > LANES
    for lane in lanes[:LANES]:
        place = lane["queue"], lane["task"]
        waits(place, lane["due"], db.codec.moment(lane["ready_at"]))
        scheduled[place] = scheduled.get(place, 0) + lane["scheduled"]
    running: dict[tuple[str, str], dict[str, int]] = {}
    ids = [row["id"] for row in db.read("running_ids")] if running_ids is None else running_ids
    for row in db.read("running_depth", ids=list(ids)) if ids else ():
        running.setdefault((row["queue"], row["task"]), {})[row["worker"] or ""] = row["jobs"]
    failed = {(row["queue"], row["task"]): row["jobs"] for row in db.read("failed_depth", limit=limit)}
    work = {(row["queue"], row["task"]): (row["running"], row["unfinished"]) for row in db.read("pending_work")}
    cut = sum(failed.values()) >= limit
    return [
        Depth(
            queue=place[0],
            task=place[1],
            due=due.get(place, 0),
            scheduled=scheduled.get(place, 0),
            running=running.get(place, {}),
            failed=failed.get(place, 0),
            oldest_due_at=oldest.get(place),
            pending_running=work.get(place, (0, 0))[0],
            pending=work.get(place, (0, 0))[1],
            capped=more or max(due.get(place, 0), scheduled.get(place, 0)) >= limit or (cut and place in failed),
        )
        for place in sorted({*due, *scheduled, *running, *failed, *work})
    ]


class Reads:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._records = Records(db.codec)

    def get(self, job_id: str) -> JobRecord:
        rows = self._db.read("get", id=key_of(job_id))
        if not rows:
            raise JobNotFound(f"there is no job {job_id} in {self._db.shown_url}")
        return self._records.record(rows[0])

    def of_row(self, source: str, row_id: str) -> JobRecord | None:
        """The job of a row of an adopted table; None: it has none."""
        found = self._db.read("rows_ids", sources=[source], rows=[row_id])
        return next(iter(self.records([row["id"] for row in found])), None)

    def records(self, ids: Sequence[JobId]) -> list[JobRecord]:
        """These jobs, newest first; those that are gone are left out."""
        return [self._records.record(row) for row in self._db.read("list", ids=list(ids))] if ids else []

    def marks(self, ids: Sequence[str]) -> dict[str, Mark]:
        """What these jobs look like, in one statement; those that are gone are left out."""
        moment = self._db.codec.moment
        return {
            str(row["id"]): Mark(
                State(row["state"]), row["life"], row["attempt"], known(moment(row["run_at"])),
                bool(row["pause_requested"]), bool(row["cancel_requested"]), row["done"], row["total"], row["note"],
                moment(row["progressed_at"]),
            )
            for row in self._db.read("marks", ids=[key_of(id) for id in ids])
        }  # fmt: skip

    def newest(self) -> int:
        """The highest id there is; 0: there are no jobs."""
        [row] = self._db.read("newest", before=2**63 - 1)
        return row["id"] or 0

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """The attempts that did not succeed, or left output, in order."""
        return [
            AttemptRecord(
                **{
                    **row,
                    "job_id": str(row["job_id"]),
                    "fence": str(row["fence"]),
                    "started_at": self._db.codec.moment(row["started_at"]),
                    "ended_at": self._db.codec.moment(row["ended_at"]),
                }
            )
            for row in self._db.read("attempts", id=key_of(job_id))
        ]

    def steps(self, job_id: str) -> list[StepRecord]:
        """The steps that were done, in order."""
        return [
            StepRecord(
                **{
                    **row,
                    "ended_at": known(self._db.codec.moment(row["ended_at"])),
                    "result": decoded(self._db.codec.json(row["result"]) or b"null"),
                }
            )
            for row in self._db.read("steps", id=key_of(job_id))
        ]

    def counts(self) -> list[Row]:
        """Jobs by queue, task and state. Reads the whole table."""
        return self._db.read("counts")

    def failures(self) -> list[Row]:
        """Failed jobs by task and error code."""
        return self._db.read("failures")

    def outcomes(self) -> list[Row]:
        """Attempts that did not succeed, by how they ended. Reads the whole history."""
        return self._db.read("outcomes")

    def now(self) -> datetime:
        """The database's clock."""
        return known(self._db.codec.moment(self._db.read("now")[0]["now"]))

    def waiting(self, lanes: int = 1000, most: int = 1000) -> list[Backlog]:
        """What is queued, by queue and task, whether anybody serves it or not; what is due is counted up to `most`."""
        return [
            Backlog(
                row["queue"], row["task"], min(row["due"], most), row["due"] >= most,
                known(self._db.codec.moment(row["due_at"])),
            )
            for row in self._db.read("waiting", lanes=lanes, most=most, tasks=[], queues=None)
        ]  # fmt: skip

    def jobs(
        self,
        filter: Filter = ALL,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 50,
        window: int = WINDOW,
    ) -> Page[JobRecord]:
        """Newest first; `before` an id is the next page. Looks through a bounded number of jobs, and says if that cut
        it short."""
        return page(self._db, filter.narrowed(state=state, queue=queue, task=task), before, limit, window)

    def matching(self, filter: Filter, before: int | None = None) -> Iterator[list[JobId]]:
        """All jobs the filter means, in chunks of ids, newest first. Reads on as it is asked for more. An empty chunk
        says that a step found none."""
        return chunks(self._db, filter, CHUNK, before)

    def oldest(
        self, filter: Filter, limit: int | None = None, *, after: int = 0, step: Callable[[], None] = lambda: None
    ) -> list[JobId]:  # fmt: skip
        """All jobs the filter means, or the oldest of them, the oldest first. `step` is called as it reads on."""
        ids: list[JobId] = []
        for chunk in chunks(self._db, filter, STEP):
            ids += [id for id in map(int, chunk) if id > after]
            step()
        return ids[: -limit - 1 : -1] if limit is not None else ids[::-1]

    def error_groups(self, filter: Filter = ALL, limit: int = 100) -> list[ErrorGroup]:
        """The jobs the filter means, by the kind of their error, the largest groups first. A filter that names no state
        means failed jobs."""
        return error_groups(self._db, filter if filter.states else filter.narrowed(state="failed"), limit)

    def count(self, filter: Filter) -> int:
        """How many jobs the filter matches. Looks through all of them, a bounded number at a time."""
        return count(self._db, filter)

    def count_up_to(self, filter: Filter, most: int, window: int | None = None) -> tuple[int, bool]:
        """How many jobs match, and whether there may be more: it stops when it has counted more than `most`, or looked
        through the newest `window` ids."""
        found, more = 0, False
        for ids, reached in _found(self._db, filter, LAST, limit=STEP, window=window):
            found, more = found + len(ids), reached is not None
            if found > most:
                return found, True
        return found, more

    def depths(self) -> list[Depth]:
        """How much waits, runs and failed, by queue and task; counted up to a cap."""
        return depths(self._db)
