"""The functions and triggers of an adopted table, made from the templates in `adopt/`.

In a template, `@jobs` is a table or function of ours, `{{name}}` a piece that depends on the mapping, and `{{said:u}}`
one for the alias `u`. What comes from the user's catalogue is put in last and once, so that nothing in a name is taken
for something else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping as Pieces
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from holdfast.store.adopted import Resolved, literal, quoted
from holdfast.store.postgres.adopted_row import RowReads, RowWrites, id_type
from holdfast.store.statements import with_tables

HERE = Path(__file__).parent / "adopt"
# Each with its parameters, in the order in which they are made. `in` last: from then on the triggers act.
FUNCTIONS = {
    "write": "bigint[], text[], text[], uuid[], boolean",
    "project": "bigint[], text[], text[], uuid[]",
    "take": "bigint[], uuid, text, timestamptz",
    "open": "bigint[], timestamptz, uuid, text, timestamptz",
    "settle": "integer, timestamptz, text",
    "beat": "timestamptz",
    "lapsed": "uuid, text, timestamptz",
    "sweep": "text, integer, timestamptz",
    "in": "",
}
EVENTS = {"insert": "new table as came", "update": "new table as came", "delete": "old table as went", "truncate": ""}
OUT = "adopted_out"  # the trigger on jobs

# PL/pgSQL keeps the plan of its first call, which may have been for one row: only hashes and indexes stay linear.
PLANNED = (
    "set timezone = 'UTC' set jit = off set enable_nestloop = off set enable_mergejoin = off set enable_seqscan = off "
    "set enable_bitmapscan = off"
)
AS_OWNER = f"language plpgsql security definer set search_path = pg_catalog, pg_temp {PLANNED}"
QUOTE = "{{quote}}"
_PIECE = re.compile(r"\{\{(\w+)(?::([\w.]+))?\}\}")


@cache
def template(name: str) -> str:
    return (HERE / f"{name}.sql").read_text("utf-8").strip()


def suffix_of(source: str) -> str:
    """What the names of a source's functions end in: plain, short, and different for different sources."""
    if re.fullmatch(r"[a-z0-9_]{1,30}", source):
        return source
    plain = re.sub(r"[^a-z0-9_]+", "_", source.lower())[:20]
    return f"{plain}_{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def still(schema: str, suffix: str) -> str:
    """The function of the triggers of a suspended source: it does nothing, whatever becomes of the table."""
    function = f"{quoted(schema)}.in_{suffix}()"
    return f"create or replace function {function} returns trigger {AS_OWNER} as 'begin return null; end'"


def trigger_names(suffix: str) -> list[str]:
    return [f"holdfast_{suffix}_{event}" for event in EVENTS]


def drop_functions(schema: str, suffix: str) -> list[str]:
    return [
        f"drop function if exists {quoted(schema)}.{name}_{suffix}({parameters})"
        for name, parameters in reversed(FUNCTIONS.items())
    ]


def drop_out_trigger(schema: str) -> str:
    return f"drop trigger if exists {OUT} on {quoted(schema)}.jobs"


class TableFunctions:
    """All that is generated for one table. `types`: the type numbers of its columns, by name. `path`: the schemas in
    which triggers of the user's find what they name."""

    def __init__(self, resolved: Resolved, *, schema: str, types: Pieces[str, int], path: Sequence[str]) -> None:
        self._of = resolved
        self._schema = schema
        self._path = ", ".join(["pg_catalog", *map(quoted, path), "pg_temp"])
        self.suffix = suffix_of(resolved.mapping.name)
        self._reads = RowReads(resolved)
        self._writes = RowWrites(resolved, self._reads)
        self._pieces = self._made(types)

    def functions(self) -> list[str]:
        return [statement for name in FUNCTIONS for statement in self._statements(name)]

    def _statements(self, name: str) -> list[str]:
        signature = f"@{name}_{self.suffix}({FUNCTIONS[name]})"
        return [self._function(template(name)), self._ours(f"revoke all on function {signature} from public")]

    def bodies(self) -> dict[str, str]:
        """What stands in each, by name."""
        return {f"{name}_{self.suffix}": _parts(self._filled(template(name)))[1] for name in FUNCTIONS}

    def triggers(self) -> dict[str, str]:
        """The statement that makes each, by name. None of them acts on what we ourselves write."""
        made = {}
        for name, (event, tables) in zip(trigger_names(self.suffix), EVENTS.items(), strict=True):
            made[name] = (
                f"create or replace trigger {name} after {event} on {self._of.sql_table}"
                f"{f' referencing {tables}' if tables else ''} for each statement "
                "when (current_setting('holdfast.ours', true) is distinct from pg_trigger_depth()::text) "
                f"execute function {quoted(self._schema)}.in_{self.suffix}()"
            )
        return made

    def out_trigger(self) -> str:
        """The one trigger on jobs, for all sources."""
        return self._ours(
            f"create or replace trigger {OUT} after update on @jobs referencing old table as went new table as came "
            "for each statement when (current_setting('holdfast.settling', true) is distinct from 'on') "
            f"execute function @{OUT}()"
        )

    # -- filling templates in ----------------------------------------------------------------------------------------

    def _function(self, text: str) -> str:
        first, body, end = _parts(self._filled(text))
        tag = "holdfast"
        while f"${tag}$" in body:  # a name of the user's may contain it
            tag += "_"
        return f"{first}${tag}${body}${tag}${end}"

    def _filled(self, text: str) -> str:
        return _PIECE.sub(self._piece, self._ours(text))

    def _ours(self, text: str) -> str:
        return with_tables(text, lambda name: f"{quoted(self._schema)}.{name}")

    def _piece(self, match: re.Match[str]) -> str:
        name, alias = match.groups()
        if alias:
            reads = {
                "said": self._reads.said, "shown": self._reads.shown, "row": self._reads.row, "args": self._reads.args,
                "lease_ends": self._reads.lease_ends, "attempt": self._reads.attempt,
                "held_attempt": self._reads.held_attempt, "holder": self._reads.holder,
                "attempt_of": self._reads.attempt_of,
            }  # fmt: skip
            return reads[name](alias)
        if name == "beat":
            return self._filled(template("beats")) if self._writes.beat_set() else ""
        return self._pieces[name]

    def _made(self, types: Pieces[str, int]) -> dict[str, str]:
        of, mapping, reads, writes = self._of, self._of.mapping, self._reads, self._writes
        return {
            "quote": QUOTE,
            "suffix": self.suffix,
            "as_owner": AS_OWNER,
            "as_writer": f"language plpgsql security definer set search_path = {self._path} {PLANNED}",
            "source": literal(mapping.name),
            "queue": literal(mapping.queue),
            "table": of.sql_table,
            "tables": ", ".join(filter(None, (of.sql_table, writes.counts_table))),
            "table_text": literal(of.table.name),
            "id": quoted(of.id.name),
            "id_type": id_type(of.id),
            "lease": f"{mapping.lease:.6f}",
            "notify": "true" if mapping.notify else "false",
            "channel": literal(f"holdfast:{self._schema}"),
            "counts_attempts": "true" if "attempts" in of.columns else "false",
            "has_results": "true" if mapping.results else "false",
            "watched": ", ".join(f"({literal(c.name)}::name, {types[c.name]}::oid)" for c in reads.watched),
            "watched_count": str(len(reads.watched)),
            "watched_columns": ", ".join(f"u.{quoted(c.name)}" for c in reads.watched),
            "disagrees": reads.disagrees(),
            "drifted": reads.drifted(),
            "taken": reads.taken("r.holder", "j"),
            "taken_meanwhile": reads.taken("h.holder", "b"),
            "taken_from_held": reads.taken(reads.holder("u"), "h"),
            "kept_due": reads.kept_due(),
            "kept_priority": reads.kept_priority(),
            "kept_attempt": reads.kept_attempt(),
            "set": writes.set(),
            "held_counts": writes.held_counts(),
            "free_counts": writes.free_counts(),
            "written_counts": writes.written_counts(),
            "beat_after": writes.beat_after,
            "beat_set": writes.beat_set(),
            "apply": self._ours(f"@write_{self.suffix}(array[j.id], array[j.state::text], null, null, true)"),
        }


def _parts(function: str) -> tuple[str, str, str]:
    """What stands before the body of a function, the body, and what follows."""
    first, _, rest = function.partition(QUOTE)
    body, _, end = rest.rpartition(QUOTE)
    return first, body, end
