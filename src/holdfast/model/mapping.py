"""How a table that exists is a queue: which of its columns mean what, and which words of its status mean which state.

A mapping is said in Python (`hf.adopt`) or in the settings file, is kept as JSON beside the jobs, and knows no SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from holdfast.errors import BadSettings
from holdfast.model.lifecycle import State
from holdfast.model.text import checked_name, nearest

NEEDED = (State.QUEUED, State.RUNNING, State.SUCCEEDED, State.FAILED)
# What is written for a state that the table has no word for.
STAND_INS = {State.PAUSED: State.QUEUED, State.CANCELLED: State.FAILED}
WHOLE = "*"  # in `results`: the whole result, not one of its fields

INSTANTS = ("instant", "naive_instant")
# Which kinds of columns can hold what we write there.
FITS: dict[str, tuple[str, ...]] = {
    "status": ("text", "enum"),
    "priority": ("integer", "number"),
    "attempts": ("integer", "number"),
    "max_attempts": ("integer", "number"),
    "worker": ("text",),
    "fence": ("uuid", "text"),
    "version": ("integer", "number"),
    "error_code": ("text",),
    "error_message": ("text",),
    "token": ("uuid", "text"),
    "pending": ("integer", "number"),
    "done": ("integer", "number"),
    "total": ("integer", "number"),
    **dict.fromkeys(
        (
            "created_at",
            "run_at",
            "started_at",
            "finished_at",
            "heartbeat_at",
            "claimed_at",
            "lease_until",
            "updated_at",
        ),
        INSTANTS,
    ),
}

Counting = Literal["at_claim", "at_failure", "at_recovery"]


class Counts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Columns for what a checkpoint counts, in the table itself or in a second one that has a row for each job."""

    pending: str | None = None
    done: str | None = None
    total: str | None = None
    table: str | None = None  # the second table
    id: str | None = None  # its column that names the row of the first


class Mapping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A field that ends in a column's meaning holds that column's name; None: the table has no such column, and the
    native job alone knows it."""

    table: str  # as people write it: `audits`, `public.audits`, `"My Table"`
    states: dict[str, str | list[str]]  # our state -> the table's words for it; the first is the one we write
    name: str = ""  # of the source, its task and its queue; default: the table's
    queue: str = ""
    id: str | None = None  # default: the primary key
    status: str = "status"
    payload: list[str] | None = None  # what handlers get; default: the id and every column that nothing here names
    created_at: str | None = None
    run_at: str | None = None  # null there: due at once
    priority: str | int = 0  # a column, or the same for all
    attempts: str | None = None
    counting: Counting = "at_claim"
    max_attempts: str | int = 3  # a column, or the same for all
    worker: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    heartbeat_at: str | None = None  # a lease is one of these three
    claimed_at: str | None = None
    lease_until: str | None = None
    lease: float = 300.0  # seconds after which others take a row for abandoned
    renew: bool = True  # False: the lease is never renewed, and an attempt must end before it does
    fence: str | None = None
    version: str | None = None  # + 1 at each of our writes
    updated_at: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    results: dict[str, str] = {}  # column -> field of the result, or "*" for all of it
    key: str | None = None  # what makes equal rows one job
    token: str | None = None
    counts: Counts | None = None
    notify: bool = True  # PostgreSQL: foreign writes wake workers. (It makes a foreign PREPARE TRANSACTION fail.)

    def word(self, state: State) -> str:
        """What we write for this state."""
        words = self.states.get(state) or self.states[STAND_INS[state]]
        return words if isinstance(words, str) else words[0]

    @property
    def meanings(self) -> dict[str, State]:
        """The state that each word of the table means."""
        return {
            word: State(state)
            for state, words in self.states.items()
            for word in ([words] if isinstance(words, str) else words)
        }

    def words(self, *states: State) -> list[str]:
        """All words that mean one of these states."""
        return [word for word, state in self.meanings.items() if state in states]

    @property
    def columns(self) -> dict[str, str]:
        """The columns that mean something to us, by meaning, in the table itself."""
        named = {
            "id": self.id, "status": self.status, "created_at": self.created_at, "run_at": self.run_at,
            "priority": self.priority, "attempts": self.attempts, "max_attempts": self.max_attempts,
            "worker": self.worker, "started_at": self.started_at, "finished_at": self.finished_at,
            "heartbeat_at": self.heartbeat_at, "claimed_at": self.claimed_at, "lease_until": self.lease_until,
            "fence": self.fence, "version": self.version, "updated_at": self.updated_at,
            "error_code": self.error_code, "error_message": self.error_message, "key": self.key, "token": self.token,
        }  # fmt: skip
        if self.counts is not None and self.counts.table is None:
            named |= {"pending": self.counts.pending, "done": self.counts.done, "total": self.counts.total}
        named |= {f"results.{field}": column for column, field in self.results.items()}
        return {meaning: column for meaning, column in named.items() if isinstance(column, str)}

    @property
    def written(self) -> dict[str, str]:
        """Those of them that we write."""
        read_only = ("id", "created_at", "max_attempts", "key", "token")
        return {meaning: column for meaning, column in self.columns.items() if meaning not in read_only}


def mapping_of(table: str, given: dict[str, Any]) -> Mapping:
    """A mapping from what people said, checked as far as that goes without the table."""
    for name in given:
        if name not in Mapping.__struct_fields__:
            near = nearest(name, Mapping.__struct_fields__)
            hint = f" (perhaps {near[0]!r})" if near else ""
            raise BadSettings(f"the mapping of {table!r} can't work: there is no {name!r}{hint}", number="HF1160")
    try:
        mapping = msgspec.convert({"table": table, **given}, Mapping)
    except msgspec.ValidationError as error:
        raise BadSettings(f"the mapping of {table!r} can't be read: {error}", number="HF1160") from None
    if not mapping.name:
        mapping = msgspec.structs.replace(mapping, name=plain_name(table))
    if not mapping.queue:
        mapping = msgspec.structs.replace(mapping, queue=mapping.name)
    checked_name("the name of an adopted table", mapping.name)
    checked_name("the name of a queue", mapping.queue)
    for problem in _problems(mapping):
        raise BadSettings(f"the mapping of {table!r} can't work: {problem}", number="HF1160")
    return mapping


def _problems(mapping: Mapping) -> Iterable[str]:
    unknown = sorted(set(mapping.states) - {state.value for state in State})
    if unknown:
        yield f"there is no state {unknown[0]!r} (the states are {', '.join(state.value for state in State)})"
    for state in NEEDED:
        if not mapping.states.get(state):
            yield f"states has no word for {state.value!r}"
    words = [w for given in mapping.states.values() for w in ([given] if isinstance(given, str) else given)]
    for word in words:
        if words.count(word) > 1:
            yield f"the word {word!r} stands for two states"
    leases = [c for c in (mapping.heartbeat_at, mapping.claimed_at, mapping.lease_until) if c is not None]
    if len(leases) > 1:
        yield f"a lease has one form, and {' and '.join(map(repr, leases))} are two: name one of them"
    if not mapping.lease > 0:
        yield "lease is a number of seconds above 0"
    if isinstance(mapping.max_attempts, int) and mapping.max_attempts < 1:
        yield "max_attempts is at least 1"
    columns = list(mapping.columns.values())
    for column in columns:
        if columns.count(column) > 1:
            yield f"the column {column!r} is named for two things"
    if mapping.counts is not None and (mapping.counts.table is None) != (mapping.counts.id is None):
        yield "counts in a second table need both its name (table) and its column with this table's id (id)"


def plain_name(table: str) -> str:
    """The last part of a name as people write it: `audits` of `public.audits` and of `"My Schema"."audits"`."""
    last = re.search(r'("(?:[^"]|"")*"|[^".]*)$', table)
    name = last[0] if last else table
    return name[1:-1].replace('""', '"') if name.startswith('"') else name
