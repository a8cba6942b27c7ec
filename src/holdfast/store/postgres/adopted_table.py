"""Reads a table of the user's from PostgreSQL's catalogue."""

from __future__ import annotations

import re
from typing import Any

import psycopg

from holdfast.errors import BadSettings
from holdfast.model.table import Table, TableColumn
from holdfast.model.text import nearest
from holdfast.store.adopted import quoted
from holdfast.store.columns import Row
from holdfast.store.postgres.adopted_functions import FUNCTIONS
from holdfast.store.postgres.connect import Connection
from holdfast.store.postgres.database import PostgresDatabase

KINDS = {
    "int2": "integer", "int4": "integer", "int8": "integer", "numeric": "number", "float4": "number",
    "float8": "number", "text": "text", "varchar": "text", "bpchar": "text", "name": "text", "citext": "text",
    "uuid": "uuid", "bool": "boolean", "timestamptz": "instant", "timestamp": "naive_instant", "json": "json",
    "jsonb": "json", "bytea": "bytes",
}  # fmt: skip
NO_TABLE = {"v": "a view", "m": "a materialised view", "f": "a foreign table"}

_LITERAL = re.compile(r"'((?:[^']|'')*)'")
# `status in ('a', 'b')` as the server writes it, and `status = 'a'`.
_IN = re.compile(
    r"CHECK \(\(*[^\s=]+?(?:::[a-z ]+)?\)* = (?:ANY \(+ARRAY\[(.+?)\]\)*(?:::[a-z ]+\[\])?|('[^=]*))\)+(?: NOT VALID)?"
)


class Catalogue:
    """What is read of the catalogue, on one connection, in one transaction."""

    def __init__(self, db: PostgresDatabase, connection: Connection) -> None:
        self._db = db
        self._connection = connection
        row = connection.execute("select current_schemas(false)", prepare=False).fetchone()
        self._session_path: list[str] = row[0] if row else []
        connection.execute("set local search_path = pg_catalog", prepare=False)

    def _rows(self, name: str, /, **parameters: Any) -> list[Row]:
        return self._db.rows(self._connection, self._db.statements[name], parameters)

    def owner(self) -> str:
        """The role that our functions act as: the owner of our tables, as `migrate` has it."""
        return str(self._rows("schema_owner")[0]["owner"])

    def find(self, name: str) -> Row:
        """The one table that this name means."""
        found = self._named(name) if is_sql_text(name) else []
        if not found:
            known = [row["name"] for row in self._rows("tables_like")]
            near = nearest(name, known)
            hint = f": perhaps you mean {', '.join(map(repr, near))}" if near else ": check its name and schema"
            raise BadSettings(f"there is no table {name!r} in {self._db.shown_url}{hint}", number="HF1165")
        if len(found) > 1:
            all_named = ", ".join(f"{quoted(row['schema'])}.{quoted(row['name'])}" for row in found)
            raise BadSettings(f"{name!r} can mean {all_named}: write which, with its schema", number="HF1165")
        [row] = found
        if row["kind"] in NO_TABLE:
            raise BadSettings(
                f"{name!r} is {NO_TABLE[row['kind']]}, and only a table can be adopted: name the table behind it",
                number="HF1165",
            )
        return row

    def oid(self, name: str) -> int | None:
        """The number of the one table that this name means, if there is one."""
        found = self._named(name)
        return int(found[0]["oid"]) if len(found) == 1 else None

    def _named(self, name: str) -> list[Row]:
        parts = self._parts(name)
        return self._rows(
            "tables_named", raw=name, name=parts[-1] if parts else None, schema=parts[0] if len(parts) == 2 else None,
            ours=self._db.settings.schema,
        )  # fmt: skip

    def _parts(self, name: str) -> list[str]:
        """A name as SQL reads it: its schema, if it says one, and the table. Nothing, if it is no SQL."""
        try:
            with self._connection.transaction():
                rows = self._connection.execute("select parse_ident(%s)", (name,), prepare=False).fetchone()
        except psycopg.errors.DataError:  # not a name as SQL writes it
            return []
        parts: list[str] = [] if rows is None else rows[0]
        return parts if len(parts) <= 2 else []

    def table(self, found: Row) -> Table:
        oid = found["oid"]
        keys = self._rows("table_keys", oid=oid)
        primary = next((tuple(key["columns"]) for key in keys if key["primary"]), ())
        rights = self._rows("table_rights", oid=oid, role=self.owner())[0]
        return Table(
            schema=found["schema"],
            name=found["name"],
            columns=tuple(_column(row) for row in self._rows("table_columns", oid=oid)),
            primary_key=primary,
            unique=tuple(tuple(key["columns"]) for key in keys if not key["primary"]),
            triggers=tuple(row["name"] for row in self.triggers(found) if row["enabled"]),
            rows=None if found["rows"] < 0 else found["rows"],
            row_security=bool(rights["hidden"]),
            partitioned=found["kind"] == "p",
            owner=found["owner"],
            problems=tuple(self._problems(found, rights)),
        )

    def _problems(self, found: Row, rights: Row) -> list[str]:
        role, table = self.owner(), f"{quoted(found['schema'])}.{quoted(found['name'])}"
        missing = []
        if not rights["usage"]:
            missing.append(f"grant usage on schema {quoted(found['schema'])} to {quoted(role)}")
        if rights["missing"]:
            missing.append(f"grant {', '.join(rights['missing'])} on {table} to {quoted(role)}")
        return missing

    def query(self, text: str) -> list[tuple[Any, ...]]:
        """A query on the user's table, made of quoted names. Nothing, if who asks may not read it."""
        try:
            with self._connection.transaction():
                found: list[tuple[Any, ...]] = self._connection.execute(text.encode(), prepare=False).fetchall()
        except psycopg.errors.InsufficientPrivilege:
            return []
        return found

    def path(self, found: Row) -> list[str]:
        """Where triggers of the table's may look for what they name: in its schema, and where this session does. But
        not where everybody may create things, as these triggers act as the owner of our tables."""
        schemas = list(dict.fromkeys([found["schema"], *self._session_path]))
        return [row["name"] for row in self._rows("schemas_closed", names=schemas, ours=self._db.settings.schema)]

    def types(self, found: Row) -> dict[str, int]:
        return {row["name"]: row["oid"] for row in self._rows("table_columns", oid=found["oid"])}

    def triggers(self, found: Row) -> list[Row]:
        return self._rows("table_triggers", oid=found["oid"])

    def functions(self, suffix: str) -> dict[str, str]:
        """What stands in our functions for a table, by name."""
        names = [f"{name}_{suffix}" for name in FUNCTIONS]
        rows = self._rows("table_functions", ours=self._db.settings.schema, names=names)
        return {row["name"]: row["body"] for row in rows}


def is_sql_text(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= char <= "\udfff" for char in text)


def _column(row: Row) -> TableColumn:
    kind = "enum" if row["sort"] == "e" else KINDS.get(row["base"], "other")
    words = row["words"] or next(filter(None, map(_words, row["checks"] or ())), None)
    return TableColumn(
        name=row["name"], type=row["type"], kind=kind, nullable=not row["required"], default=row["default"],
        words=None if words is None else tuple(words), generated=row["generated"],
    )  # fmt: skip


def _words(check: str) -> list[str] | None:
    """All that a CHECK of the form `column in (…)` allows; None: it is of another form."""
    found = _IN.fullmatch(check)
    if found is None:
        return None
    return [word.replace("''", "'") for word in _LITERAL.findall(found[1] or found[2])]
