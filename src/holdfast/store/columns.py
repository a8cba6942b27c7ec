"""The columns of a job, stated once. What reads a job, every way to insert one (by parameters, by a JSON document, by
COPY, as rows of SQLite) and the claim's answer are made from this table.

To add a column: add it to both migrations, to `COLUMNS` here and to `model.job.JobRecord`; to `NewJob` if an enqueue
gives it, to `ClaimedJob` if a runner needs it; and write it in the statement of the verb that changes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from holdfast.errors import JobNotFound
from holdfast.model.job import JobRecord, NewJob
from holdfast.model.lifecycle import State
from holdfast.model.text import no_id

JobId = int | str
Row = dict[str, Any]


class Codec(Protocol):
    """How a database stores values that it, or its driver, has no type for."""

    def moment(self, stored: Any) -> datetime | None:
        """A stored instant as aware UTC."""

    def instant(self, moment: datetime | None) -> Any:
        """An instant as it is stored."""

    def words(self, stored: Any) -> tuple[str, ...]:
        """A stored list of words."""

    def json(self, stored: Any) -> bytes | None:
        """Stored JSON as bytes."""

    def ids(self, stored: Any) -> list[JobId]:
        """The job ids of a lease."""


def known(moment: datetime | None) -> datetime:
    """An instant that is never null."""
    assert moment is not None
    return moment


def key_of(job_id: str) -> int:
    """The id in the database of what people write; JobNotFound if it can't be one."""
    if not (job_id.isascii() and job_id.isdigit() and len(job_id) < 19):
        raise JobNotFound(f"there is no job {job_id!r}: {no_id(job_id)}")
    return int(job_id)


class Source(Enum):
    """Where an enqueue takes a column's value from."""

    GIVEN = "the field of the same name"
    DUE = "`run_at`, or `delay` seconds from now"
    EXPIRY = "`expires_in` seconds from now, or null"
    NOW = "the clock"
    TRUE = "true"


class Column(NamedTuple):
    name: str
    type: str  # PostgreSQL's. It also decides how the value is read and encoded.
    enqueued: Source | None = None
    keyed: bool = False  # an enqueue writes it only for a job with a key
    listed: bool = True  # it is a field of JobRecord
    claimed: bool = False  # it is part of what a claim answers, in this order


GIVEN, DUE, EXPIRY, NOW, TRUE = Source

COLUMNS = (
    Column("id", "bigint", claimed=True),
    Column("task", "text", GIVEN, claimed=True),
    Column("queue", "text", GIVEN, claimed=True),
    Column("args", "json", GIVEN, claimed=True),
    Column("attempt", "integer", claimed=True),
    Column("max_attempts", "integer", GIVEN, claimed=True),
    Column("priority", "smallint", GIVEN, claimed=True),
    Column("checkpoint", "json", claimed=True),
    Column("correlation_id", "text", GIVEN, claimed=True),
    Column("suspicion", "smallint", claimed=True),
    Column("expires_at", "timestamptz", EXPIRY, claimed=True),
    Column("state", "state"),
    Column("life", "integer"),
    Column("crashes", "smallint"),
    Column("created_at", "timestamptz", NOW),
    Column("run_at", "timestamptz", DUE),
    Column("ready_at", "timestamptz", DUE, listed=False),
    Column("started_at", "timestamptz"),
    Column("finished_at", "timestamptz"),
    Column("failed_at", "timestamptz"),
    Column("fence", "uuid"),
    Column("worker", "text"),
    Column("key", "text", GIVEN, keyed=True),
    Column("holds_key", "boolean", TRUE, keyed=True),
    Column("tags", "text[]", GIVEN),
    Column("result", "json"),
    Column("pending", "bigint"),
    Column("done", "bigint"),
    Column("total", "bigint"),
    Column("note", "text"),
    Column("rate", "float8"),
    Column("progressed_at", "timestamptz"),
    Column("error_code", "text"),
    Column("error_message", "text"),
    Column("error_fingerprint", "text"),
    Column("pause_requested", "boolean"),
    Column("cancel_requested", "boolean"),
    Column("asked_at", "timestamptz"),
    Column("asked_by", "text"),
    Column("asked_why", "text"),
    Column("awaited", "boolean", listed=False),
    Column("held_by", "text"),
    Column("source", "text"),
    Column("source_id", "text"),
    Column("owed", "boolean", listed=False),
)

LISTED = tuple(column for column in COLUMNS if column.listed)
CLAIMED = tuple(column for column in COLUMNS if column.claimed)
ENQUEUED = tuple(column for column in COLUMNS if column.enqueued is not None and not column.keyed)
KEYED = (*ENQUEUED, *(column for column in COLUMNS if column.keyed))

# All that is said of a new job but its arguments, its key and what an equal key means. Many jobs that are
# enqueued together are equal in this: what is made of it is remembered by those who insert many.
_OWN = ("args", "key", "reuse", "after_failure")
kind_of = attrgetter(*(name for name in NewJob.__struct_fields__ if name not in _OWN))


class Records:
    """Turns rows of `get` and `list` into records."""

    def __init__(self, codec: Codec) -> None:
        by_type: Mapping[str, Callable[[Any], Any]] = {
            "timestamptz": codec.moment, "json": codec.json, "text[]": codec.words, "boolean": bool, "state": State,
            "uuid": lambda stored: None if stored is None else str(stored),
        }  # fmt: skip
        self._convert = [(column.name, by_type[column.type]) for column in LISTED if column.type in by_type]

    def record(self, row: Row) -> JobRecord:
        converted = {name: convert(row[name]) for name, convert in self._convert}
        return JobRecord(**{**row, **converted, "id": str(row["id"])})


def parameters(job: NewJob, codec: Codec) -> dict[str, Any]:
    """The parameters of `enqueue`, and with a key of `enqueue_keyed`."""
    given: dict[str, Any] = {
        "run_at": codec.instant(job.run_at), "delay": job.delay, "expires_in": job.expires_in
    }  # fmt: skip
    for column in ENQUEUED if job.key is None else KEYED:
        if column.enqueued is GIVEN:
            given[column.name] = plain(column, getattr(job, column.name))
    return given


def plain(column: Column, value: Any) -> Any:
    """A value of a new job as JSON and drivers take it."""
    if column.type == "json":
        return value.decode()
    if column.type == "text[]":
        return list(value) or None
    return value


class Lists:
    """Lists of columns as SQL, for the tokens of statements. `stamps`: inserts say when a job was created. (On
    PostgreSQL the column's default does, so that nobody needs a right to it; only the clock of a test is written.)
    `expiry`: how the claim answers when a job expires."""

    def __init__(self, *, stamps: bool, expiry: str) -> None:
        self._stamps = stamps
        self._expiry = expiry

    def enqueued(self, columns: tuple[Column, ...] = ENQUEUED) -> list[Column]:
        return [column for column in columns if self._stamps or column.enqueued is not NOW]

    def __call__(self, form: str, name: str, table: str = "") -> str:
        """`form` is the token: `columns` (names, of a table if one is given), `values` (of parameters), `record` and
        `record_values` (of a JSON document). What a claim answers has other forms: `columns` with their names, `values`
        without them, `names` alone, and as many `nulls`."""
        if name == "claimed":
            return self._claimed(form, f"{table}." if table else "")
        columns = LISTED if name == "listed" else self.enqueued({"enqueue": ENQUEUED, "enqueue_keyed": KEYED}[name])
        if form == "columns":
            return ", ".join(column.name for column in columns)
        if form == "record":
            return ", ".join([*(_definition(c) for c in columns if c.enqueued is GIVEN), *_RECKONED])
        expressions = _VALUES if form == "values" else _RECORD_VALUES
        return ", ".join(expressions.get(column.enqueued) or _given(column, form) for column in columns)

    def _claimed(self, form: str, table: str) -> str:
        if form == "nulls":
            return ", ".join(["null"] * len(CLAIMED))
        # What has begun once does not expire any more.
        expiry = f"case when {table}attempt = 1 then {self._expiry.format(f'{table}expires_at')} end"
        special = {"columns": f"{expiry} as expires_in", "values": expiry, "names": "expires_in"}[form]
        return ", ".join(special if column.name == "expires_at" else table + column.name for column in CLAIMED)


_VALUES: dict[Source | None, str] = {
    DUE: "coalesce(:run_at, @after(delay))", EXPIRY: "@after(expires_in)", NOW: "@clock", TRUE: "true"
}  # fmt: skip
_RECORD_VALUES: dict[Source | None, str] = {
    DUE: "coalesce(run_at, @clock + make_interval(secs => delay))",
    EXPIRY: "@clock + make_interval(secs => expires_in)",
    NOW: "@clock",
    TRUE: "true",
}
_RECKONED = ("run_at timestamptz", "delay float8", "expires_in float8")  # what DUE and EXPIRY are made from


def _given(column: Column, form: str) -> str:
    if form == "values":
        return f":{column.name}"
    return f"{column.name}::json" if column.type == "json" else column.name


def _definition(column: Column) -> str:
    return f"{column.name} {'text' if column.type == 'json' else column.type}"
