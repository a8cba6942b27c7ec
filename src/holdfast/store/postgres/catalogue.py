"""What a fresh schema of this version looks like: migrated into temporary tables and rolled back. That needs no rights
except to temporary tables, and the server itself says how it writes definitions."""

from __future__ import annotations

from typing import Any

from holdfast.model.job import Thing
from holdfast.store.migrate import migrations
from holdfast.store.postgres.connect import Connection
from holdfast.store.statements import source, with_tables


def found_and_fresh(connection: Connection, schema: str) -> tuple[list[Thing], list[Thing]]:
    """What is in the schema, and what should be."""
    with connection.transaction(force_rollback=True):
        for migration in migrations("postgres"):
            connection.execute(with_tables(migration.sql, "pg_temp.{}".format).encode(), prepare=False)
        row = connection.execute(
            "select nspname::text from pg_namespace where oid = pg_my_temp_schema()", prepare=False
        ).fetchone()
        assert row is not None
        return _things(connection, schema), _things(connection, row[0])


def _things(connection: Connection, schema: str) -> list[Thing]:
    text = source("postgres", "catalogue").replace(":schema", "%s")
    rows: list[tuple[Any, ...]] = connection.execute(text.encode(), (schema,), prepare=False).fetchall()
    return [Thing(*row) for row in rows]
