"""The values of new rows of an adopted table."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any

import msgspec

from holdfast.errors import BadArguments
from holdfast.model.lifecycle import State
from holdfast.model.table import TableColumn
from holdfast.model.text import nearest
from holdfast.store.adopted import Resolved
from holdfast.store.sqlite.codec import stored


def values_for(found: Resolved, given: dict[str, Any]) -> dict[str, Any]:
    """What is inserted for a new row, by column: it waits, and has an id."""
    values: dict[str, Any] = {}
    names = {column.name.lower(): column for column in found.table.columns}
    for name, value in given.items():
        column = names.get(name.lower())
        if column is None:
            near = nearest(name, [column.name for column in found.table.columns])
            hint = f" (perhaps {near[0]!r})" if near else ""
            raise BadArguments(f"{found.table.name} has no column {name!r}{hint}")
        if column.generated:
            raise BadArguments(f"{found.table.name}: the column {column.name!r} is generated, and can't be given")
        values[column.name] = _kept(column, value)
    values.setdefault(found.status.name, found.mapping.word(State.QUEUED))
    if found.id.kind in ("text", "uuid") and found.id.default is None:
        values.setdefault(found.id.name, str(uuid.uuid4()))
    return values


def _kept(column: TableColumn, value: Any) -> Any:
    """A value as SQLite keeps it."""
    match value:
        case Enum():
            return _kept(column, value.value)
        case datetime():
            return stored(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
        case str() if column.kind == "json":
            return msgspec.json.encode(value).decode()
        case None | str() | int() | float() | bytes():
            return value
        case uuid.UUID() | date():
            return str(value)
        case Decimal():
            return str(value) if column.kind == "text" else float(value)
    try:
        return msgspec.json.encode(value).decode()
    except TypeError as error:
        raise BadArguments(f"the value of {column.name!r} can't be kept: {error}") from None
