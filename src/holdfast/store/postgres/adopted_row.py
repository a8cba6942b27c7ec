"""What a row of an adopted table says to its job, and what a job writes to its row: as pieces of SQL."""

# ruff: noqa: S608 - all that comes from the catalogue is quoted

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast.model.mapping import STAND_INS, WHOLE
from holdfast.model.table import TableColumn
from holdfast.store.adopted import Resolved, literal, quoted, said_by, word_of

EARLIEST, LATEST = "'0001-01-02 00:00Z'::timestamptz", "'9999-12-30 00:00Z'::timestamptz"  # as the domain `instant`
UNFINISHED = "('queued', 'running', 'paused')"
WAITING = "('queued', 'paused')"
FINISHED = "('succeeded', 'failed', 'cancelled')"
BEATS = 10  # a lease is renewed when a tenth of it is over


def instant(column: TableColumn, alias: str) -> str:
    """What a column of instants holds. One without a zone holds UTC."""
    name = f"{alias}.{quoted(column.name)}"
    return f"({name} at time zone 'UTC')" if column.kind == "naive_instant" else name


def as_kept(column: TableColumn, value: str) -> str:
    """An instant as such a column holds it."""
    return f"(({value}) at time zone 'UTC')" if column.kind == "naive_instant" else value


def id_type(column: TableColumn) -> str:
    """The type to cast an id's text to, so that the column's own index serves."""
    if column.kind == "integer":
        return "bigint"
    if column.kind == "text":
        return "bpchar" if column.type.startswith("character(") else "text"
    return column.type


class RowReads:
    """What the row with an alias says, in the terms of a job."""

    def __init__(self, resolved: Resolved) -> None:
        self._of = resolved
        self._mapping = resolved.mapping
        self._lease = f"interval '{self._mapping.lease:.6f} seconds'"

    def word(self, alias: str) -> str:
        return f"{alias}.{quoted(self._of.status.name)}::text"

    def said(self, alias: str) -> str:
        """The state that its word means; null: none of ours."""
        return said_by(self._mapping, self.word(alias))

    def shown(self, state: str) -> str:
        """The state that a row shows for a job of this one: the stand-in, where the table has no word for it."""
        missing = [f"when {literal(s)} then {literal(by)}" for s, by in STAND_INS.items() if not self._mapping.words(s)]
        return f"(case {state}::text {' '.join(missing)} else {state}::text end)" if missing else f"{state}::text"

    @property
    def _holder(self) -> TableColumn | None:
        """The column that says who works a row."""
        return self._of.columns.get("worker") or self._of.columns.get("fence")

    def holder(self, alias: str) -> str:
        """Who works it, as text."""
        return "null::text" if self._holder is None else f"{alias}.{quoted(self._holder.name)}::text"

    def taken(self, holder: str, job: str) -> str:
        """Does this holder, which a row that is worked names, differ from the one that the job has?"""
        if self._holder is None:
            return "false"
        ours = (
            f"{job}.fence"
            if "worker" not in self._of
            else f"{_cut(self._holder, f'{job}.worker')}::{self._holder.type}"
        )
        foreign = f"coalesce({job}.worker, '') like 'foreign:%'"
        return f"({holder} is not null and {ours}::text is distinct from {holder} and not {foreign})"

    @property
    def watched(self) -> list[TableColumn]:
        """The columns by which a row may disagree with its job."""
        found = [self._of.columns.get(meaning) for meaning in ("id", "status", "run_at", "priority")]
        return [column for column in (*found, self._holder) if column is not None]

    def disagrees(self) -> str:
        """Does the row `u` disagree with its job `j`, if it has one?"""
        said = self.said("u")
        words = (
            f"{said} is distinct from {self.shown('j.state')} and (j.state in {UNFINISHED} or {said} in {UNFINISHED} "
            f"or (j.state is not null and {said} is not null))"
        )
        drifts = self._drifts(self._due("u"), self._priority("u"), "clock_timestamp()") or "false"
        taken = self.taken(self.holder("u"), "j")
        return (
            f"(({words}) or (j.state in {WAITING} and ({drifts})) "
            f"or (j.state = 'running' and {said} = 'running' and {taken}))"
        )

    def drifted(self) -> str:
        """Was the waiting or paused row `r` of the job `j` moved, or tried by others while it waited?"""
        tried = "j.state = 'queued' and r.attempt <> j.attempt" if "attempts" in self._of else ""
        return " or ".join(filter(None, (self._drifts("r.due", "r.priority", "now"), tried))) or "false"

    def _drifts(self, due: str, priority: str, now: str) -> str:
        drifts = [f"coalesce({due}, least(j.run_at, {now})) <> j.run_at"] if "run_at" in self._of else []
        drifts += [f"{priority} <> j.priority"] if "priority" in self._of else []
        return " or ".join(drifts)

    def kept_due(self) -> str:
        return "coalesce(r.due, least(j.run_at, now))" if "run_at" in self._of else "j.run_at"

    def kept_priority(self) -> str:
        return "r.priority" if "priority" in self._of else "j.priority"

    def attempt(self, alias: str) -> str:
        """How often a waiting row was tried; from 0 again, if that is as often as it may be."""
        if "attempts" not in self._of:
            return "0"
        attempts, maximum = f"coalesce({self._number('attempts', alias)}, 0)", self._max_attempts(alias)
        return f"(case when {attempts} < {maximum} then {attempts} else 0 end)"

    def held_attempt(self, alias: str) -> str:
        """The attempt of who works it."""
        attempts = f"coalesce({self._number('attempts', alias)}, 0)" if "attempts" in self._of else "0"
        begun = "0" if self._mapping.counting == "at_claim" else "1"
        return f"least(greatest({attempts} + {begun}, 1), {self._max_attempts(alias)})"

    def attempt_of(self, job: str) -> str:
        """The same of its job."""
        return f"{job}.attempt" if "attempts" in self._of else "0"

    def kept_attempt(self) -> str:
        return "r.attempt" if "attempts" in self._of else "j.attempt"

    def lease_ends(self, alias: str) -> str:
        """When the lease of who works this row ends, by the table's own rule."""
        if "lease_until" in self._of:
            return instant(self._of.columns["lease_until"], alias)
        for meaning in ("heartbeat_at", "claimed_at", "started_at"):
            column = self._of.columns.get(meaning)
            if column is not None:
                return f"({instant(column, alias)} + {self._lease})"
        return "null::timestamptz"

    def row(self, alias: str) -> str:
        """All of it."""
        of = self._of
        maximum = self._max_attempts(alias)
        born = f"greatest({instant(of.columns['created_at'], alias)}, {EARLIEST})" if "created_at" in of else "null"
        fields = {
            "said": self.said(alias),
            "word": self.word(alias),
            "args": self.args(alias),
            "priority": self._priority(alias),
            "max_attempts": maximum,
            "attempt": self.attempt(alias),
            "held_attempt": self.held_attempt(alias),
            "due": self._due(alias),
            "born": f"{born}::timestamptz",
            "lease_ends": self.lease_ends(alias),
            "holder": self.holder(alias),
        }
        for meaning in ("worker", "error_code", "error_message", "key"):
            fields[meaning] = f"{alias}.{of[meaning]}::text" if meaning in of else "null::text"
        return ", ".join(f"{value} as {name}" for name, value in fields.items())

    def args(self, alias: str) -> str:
        """The arguments of its job."""
        return f"json_build_object('row', {self.document(self._of.payload, alias)})"

    def document(self, columns: Sequence[TableColumn], alias: str) -> str:
        """These columns as JSON, in forms that type hints can read back."""
        values = ", ".join(f"{_as_json(column, alias)} as {quoted(column.name)}" for column in columns)
        return f"(select row_to_json(p.*) from (select {values}) p)"

    def _due(self, alias: str) -> str:
        column = self._of.columns.get("run_at")
        if column is None:
            return "null::timestamptz"
        value = instant(column, alias)
        return f"(case when {value} is not null then least(greatest({value}, {EARLIEST}), {LATEST}) end)"

    def _priority(self, alias: str) -> str:
        if "priority" not in self._of:
            return f"{self._mapping.priority}::smallint"
        return f"least(greatest(coalesce({alias}.{self._of['priority']}, 0), -100), 100)::smallint"

    def _max_attempts(self, alias: str) -> str:
        if "max_attempts" not in self._of:
            return str(self._mapping.max_attempts)
        return f"greatest(coalesce({self._number('max_attempts', alias)}, 1), 1)"

    def _number(self, meaning: str, alias: str) -> str:
        """A count, within what an integer holds."""
        return f"least(greatest({alias}.{self._of[meaning]}, 0), 2000000000)::integer"


def _as_json(column: TableColumn, alias: str) -> str:
    name = f"{alias}.{quoted(column.name)}"
    if column.kind == "naive_instant":
        return instant(column, alias)
    if column.kind == "bytes":
        return rf"translate(encode({name}, 'base64'), E'\n', '')"
    return f"{name}::text" if column.type.startswith("numeric") else name


class RowWrites:
    """What the job `n` writes to its row `u`."""

    def __init__(self, resolved: Resolved, reads: RowReads) -> None:
        self._of = resolved
        self._mapping = resolved.mapping
        self._reads = reads
        self._lease = f"interval '{self._mapping.lease:.6f} seconds'"

    def set(self) -> str:
        of = self._of
        enum = f"::{of.status.type}" if of.status.kind == "enum" else ""
        said, shown = self._reads.said("u"), self._reads.shown("n.state")
        word = f"{word_of(self._mapping, 'n.state')}{enum}"
        sets = {of.status.name: f"case when {said} = {shown} then u.{quoted(of.status.name)} else {word} end"}
        for meaning, column in of.columns.items():
            value = self._value(meaning, column, f"u.{quoted(column.name)}")
            if value is not None:
                sets[column.name] = value
        return ", ".join(f"{quoted(name)} = {value}" for name, value in sets.items())

    def _value(self, meaning: str, column: TableColumn, old: str) -> str | None:
        """What the column that means this becomes; None: we don't write it."""
        running, finished = "n.state = 'running'", f"n.state in {FINISHED}"
        now = as_kept(column, "n.now")
        match meaning:
            case "worker":
                return f"case when {running} then {_cut(column, 'n.worker')} end"
            case "fence":
                return f"case when {running} then n.fence{'::text' if column.kind == 'text' else ''} end"
            case "started_at":
                return f"case when {running} then {as_kept(column, 'n.started_at')} else {old} end"
            case "heartbeat_at":
                return f"case when {running} then {now} else {old} end"
            case "claimed_at":
                started = as_kept(column, "n.started_at")
                return f"case when {running} then {started} when n.state <> 'queued' then {old} end"
            case "lease_until":
                return f"case when {running} then {as_kept(column, f'n.now + {self._lease}')} end"
            case "finished_at":
                ended = as_kept(column, "n.finished_at")
                return f"case when {finished} then {ended} when n.state <> 'queued' then {old} end"
            case "error_code" | "error_message":
                error = _cut(column, f"n.{meaning}")
                return f"case when {running} then {old} when n.state <> 'succeeded' then {error} end"
            case "attempts":
                return self._attempts()
            case "version":
                return f"coalesce({old}, 0) + 1"
            case "updated_at":  # never the same again: others compare it
                return f"case when {old} >= {now} then {old} + interval '1 microsecond' else {now} end"
            case "run_at":
                due = f"{instant(column, 'u')} is distinct from n.run_at and ({old} is not null or n.run_at > n.now)"
                return f"case when n.state in {WAITING} and {due} then {as_kept(column, 'n.run_at')} else {old} end"
            case "priority":
                return f"case when n.state in {WAITING} then n.priority else {old} end"
            case "pending" | "done" | "total":
                return _count(meaning, old)
        if meaning.startswith("results."):
            result = _result(column, meaning.removeprefix("results."))
            return f"case when n.state = 'succeeded' then {result} else {old} end"
        return None

    def _attempts(self) -> str:
        spared = {
            "at_claim": "",
            "at_failure": "when n.state in ('running', 'succeeded') then n.attempt - 1",
            "at_recovery": "when n.state in ('running', 'succeeded', 'failed') then n.attempt - 1",
        }[self._mapping.counting]
        return f"greatest(case {spared} else n.attempt end, 0)" if spared else "n.attempt"

    # -- a second table with counts --------------------------------------------------------------------------------

    @property
    def counts_table(self) -> str | None:
        table = self._of.counts_table
        return None if table is None else f"{quoted(table.schema)}.{quoted(table.name)}"

    def held_counts(self) -> str:
        if self.counts_table is None:
            return ""
        return (
            f"\n    counted as materialized (select c.{self._counts_id} as at from {self.counts_table} c "
            f"where c.{self._counts_id} = any(array(select n.at from n)) for no key update skip locked),"
        )

    def free_counts(self) -> str:
        """Its row there isn't locked by others, either."""
        if self.counts_table is None:
            return ""
        return (
            f" and (n.at in (select k.at from counted k) or n.at not in (select c.{self._counts_id} from "
            f"{self.counts_table} c where c.{self._counts_id} = any(array(select x.at from n x))))"
        )

    def written_counts(self) -> str:
        if self.counts_table is None:
            return ""
        counts = self._mapping.counts
        assert counts is not None
        named = {"pending": counts.pending, "done": counts.done, "total": counts.total}
        sets = ", ".join(
            f"{quoted(name)} = {_count(meaning, f'c.{quoted(name)}')}" for meaning, name in named.items() if name
        )
        return (
            f",\n    counts as (update {self.counts_table} c set {sets} from n where c.{self._counts_id} = n.at "
            f"and c.{self._counts_id} = any(array(select f.at from free f)))"
        )

    @property
    def _counts_id(self) -> str:
        assert self._mapping.counts is not None
        assert self._mapping.counts.id is not None
        return quoted(self._mapping.counts.id)

    # -- heartbeats --------------------------------------------------------------------------------------------------

    @property
    def beat_after(self) -> str:
        """Seconds of its lease that a row has left when it is renewed."""
        return f"{self._mapping.lease * (1 - 1 / BEATS):.6f}"

    def beat_set(self) -> str:
        """What a heartbeat writes; nothing if the table has no lease, or its leases are not renewed."""
        if not self._mapping.renew:
            return ""
        for meaning in ("heartbeat_at", "claimed_at", "lease_until"):
            column = self._of.columns.get(meaning)
            if column is not None:
                now = f"now + {self._lease}" if meaning == "lease_until" else "now"
                return f"{quoted(column.name)} = {as_kept(column, now)}"
        return ""


def _cut(column: TableColumn, value: str) -> str:
    """A text, cut to what the column can hold."""
    length = re.fullmatch(r"character(?: varying)?\((\d+)\)", column.type)
    return f"left({value}, {length[1]})" if length else value


def _count(meaning: str, old: str) -> str:
    if meaning == "pending":
        return f"case when n.state in {FINISHED} then 0 else coalesce(n.pending, 0) end"
    return f"coalesce(n.{meaning}, {old})"


def _result(column: TableColumn, field: str) -> str:
    """What the job returned, or this field of it, as the column keeps it."""
    if column.kind == "json":
        return f"{'n.result' if field == WHOLE else f'(n.result -> {literal(field)})'}::text::{column.type}"
    text = "(n.result #>> '{}')" if field == WHOLE else f"(n.result ->> {literal(field)})"
    if column.kind == "text":
        return text
    if column.kind == "naive_instant":
        return as_kept(column, f"{text}::timestamptz")
    return f"decode({text}, 'base64')" if column.kind == "bytes" else f"{text}::{column.type}"
