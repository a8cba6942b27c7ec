"""Values of an adopted table in SQL: SQLite keeps any value in any column, so each is read for what it may be."""

from __future__ import annotations

import json

from holdfast.model.mapping import INSTANTS, WHOLE
from holdfast.model.table import TableColumn
from holdfast.store.adopted import literal, words_in

# An instant, in our tables and in theirs: six digits, as drivers of all languages read them. Ours compare instants as
# text, and fewer digits would sort before six.
KEPT = "%Y-%m-%d %H:%M:%f000"
NOW = f"strftime('{KEPT}', 'now')"


def instant_of(value: str, later: str = "") -> str:
    """An instant of theirs as our tables keep it; null if it is none."""
    text = f"strftime('{KEPT}', {value}{later})"
    return f"case when {text} glob '[0-9][0-9][0-9][0-9]-*' and {text} >= '0001' then {text} end"


def as_json(column: TableColumn, value: str, blob: str) -> str:
    """The argument of json_quote. SQLite keeps any value in any column."""
    cases = [
        f"when typeof({value}) = 'blob' then {blob.format(value)}",
        # JSON has no infinity. As PostgreSQL writes it:
        f"when typeof({value}) = 'real' and {value} = 9e999 then 'Infinity'",
        f"when typeof({value}) = 'real' and {value} = -9e999 then '-Infinity'",
    ]
    match column.kind:
        case "json":
            cases.append(f"when json_valid({value}) then json({value})")
        case "boolean":
            cases.append(f"when {value} is 0 then json('false') when {value} is 1 then json('true')")
        case "instant" | "naive_instant":
            # As Python and JSON write it. Text keeps its digits; numbers are seconds since 1970 or Julian days.
            cases.append(f"when typeof({value}) <> 'text' then strftime('%Y-%m-%dT%H:%M:%fZ', {value}, 'auto')")
            cases.append(f"when length({value}) = 10 then {value} || 'T00:00:00Z'")
            cases.append(f"when substr({value}, 20) glob '*[-Z+]*' then replace({value}, ' ', 'T')")
            cases.append(f"when length({value}) >= 19 then replace({value}, ' ', 'T') || 'Z'")
    return f"case {' '.join(cases)} else {value} end"


def path_of(field: str) -> str:
    return "'$'" if field == WHOLE else literal("$." + json.dumps(field, ensure_ascii=False))


def result_of(column: TableColumn, field: str, result: str) -> str:
    value = f"json_extract({result}, {path_of(field)})"
    if column.kind == "json":
        return result if field == WHOLE else f"{result} -> {path_of(field)}"
    if column.kind in INSTANTS:
        return f"strftime('{KEPT}', {value})"
    return value


def misfits(column: TableColumn, result: str, path: str) -> str:
    """SQL: the result's part has a type that this column is not meant for."""
    kind = f"coalesce(json_type({result}, {path}), 'null')"
    value = f"json_extract({result}, {path})"
    allowed = {
        "integer": ("integer",), "number": ("integer", "real"), "boolean": ("true", "false"), "uuid": ("text",),
        "enum": ("text",), "instant": ("text",), "naive_instant": ("text",), "bytes": (),
    }.get(column.kind)  # fmt: skip
    wrong = "0" if allowed is None else f"{kind} not in {words_in((*allowed, 'null'))}"
    if column.kind in INSTANTS:
        wrong += f" or ({kind} = 'text' and strftime('{KEPT}', {value}) is null)"
    if column.words is not None:
        wrong += f" or ({kind} <> 'null' and {value} not in {words_in(column.words)})"
    if not column.nullable:
        wrong += f" or {kind} = 'null'"
    return f"({wrong})"
