"""Rows that we insert into adopted tables of PostgreSQL, each with its job in the same transaction."""

from __future__ import annotations

import re
from typing import Any

from psycopg.types.json import Jsonb

from holdfast.errors import BadArguments
from holdfast.model.lifecycle import State
from holdfast.model.text import nearest
from holdfast.store.adopted import Resolved, SameKey
from holdfast.store.adopted_submit import HOLE, Submission


def submission(found: Resolved, values: dict[str, Any], same: SameKey) -> Submission:
    given = {found.status.name: found.mapping.word(State.QUEUED)}
    given |= {name: _adapted(found, name, value) for name, value in values.items()}
    return Submission(found, given, same, _with_parameters, lock="lock_key", settle="settle_row")


def _with_parameters(text: str) -> str:
    return re.sub(f"{HOLE}(\\w+)", r"%(\1)s", text.replace("%", "%%"))


def _adapted(found: Resolved, name: str, value: Any) -> Any:
    column = found.table.column(name)
    if column is None:
        near = nearest(name, [column.name for column in found.table.columns])
        hint = f" (perhaps {near[0]!r})" if near else ""
        raise BadArguments(f"{found.table.name} has no column {name!r}{hint}: name one of its columns")
    return Jsonb(value) if column.kind == "json" and value is not None else value
