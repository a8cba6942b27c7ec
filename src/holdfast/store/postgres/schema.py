"""The schema in a PostgreSQL database: migrated, checked, described."""

from __future__ import annotations

from typing import Any

from holdfast.errors import StoreError
from holdfast.model.job import Thing
from holdfast.store.migrate import OLDEST_CODE, check_version, migrations, pending, turn
from holdfast.store.postgres.connect import LOCK_TIMEOUT, Connection
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.statements import source, with_tables

# What a fresh schema of this version looks like: migrated into temporary tables and rolled back. That needs no rights
# except to temporary tables, and the server itself says how it writes definitions.


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


TURN_WITHIN = "60s"  # however busy the machine is on which the others start
# The role to migrate a schema as, if the schema exists: the owner of our tables, if the user is a member of that role
# and the role may create tables there.
OWNER = """select o.rolname::text from pg_namespace n
    left join pg_class c on c.relnamespace = n.oid and c.relname = 'meta' and c.relkind = 'r'
    left join pg_roles o on o.oid = c.relowner and has_schema_privilege(o.oid, n.oid, 'create')
     and pg_has_role(o.oid, case when current_setting('server_version_num')::integer < 160000
                                 then 'member' else 'set' end)
    where n.nspname = %s"""


def await_turn(connection: Connection, schema: str) -> None:
    """Until this transaction ends, nobody else migrates the schema or replaces functions in it: programs that start
    together set up the same things, and find them done when their turn comes."""
    connection.execute(f"set local lock_timeout = '{TURN_WITHIN}'", prepare=False)
    connection.execute("select pg_advisory_xact_lock(%s)", (turn(schema),), prepare=False)
    connection.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'", prepare=False)  # for tables: others use them


class PostgresSchema:
    def __init__(self, db: PostgresDatabase) -> None:
        self._db = db
        self.store_id = ""
        self._oldest: int | None = None

    def migrate(self) -> list[str]:
        with self._db.use() as connection, connection.transaction():
            await_turn(connection, self._db.settings.schema)
            self._make_schema_or_act_as_owner(connection)
            found = self._version(connection)
            applied = pending("postgres", found or 0)
            for migration in applied:
                connection.execute(self._db.statements.with_tables(migration.sql).encode(), prepare=False)
            if applied:
                connection.execute(
                    self._db.statements.fill(
                        "insert into @meta (version, oldest_code) values (:version, :oldest_code) "
                        "on conflict (only_row) do update set version = excluded.version, "
                        "oldest_code = excluded.oldest_code"
                    ).encode(),
                    {"version": applied[-1].version, "oldest_code": OLDEST_CODE},
                    prepare=False,
                )
            self._check(connection)
        return [m.name for m in applied]

    def _make_schema_or_act_as_owner(self, connection: Connection) -> None:
        """What a migration creates should belong to the owner of the other tables, so that all members of that role can
        migrate. If that role may not create anything in the schema, the user's own rights are used."""
        found = connection.execute(OWNER, (self._db.settings.schema,), prepare=False).fetchone()
        if found is None:
            connection.execute(f"create schema {self._db.schema}", prepare=False)
        elif found[0] is not None:
            connection.execute("select set_config('role', %s, true)", (found[0],), prepare=False)

    def pending(self) -> list[str]:
        with self._db.use() as connection:
            return [m.name for m in pending("postgres", self._version(connection) or 0)]

    def _version(self, connection: Connection) -> int | None:
        meta = f"{self._db.settings.schema}.meta"
        found = connection.execute("select to_regclass(%s)", (f'"{self._db.settings.schema}".meta',)).fetchone()
        if found is None or found[0] is None:
            return None
        row = connection.execute(self._db.statements["meta"].encode()).fetchone()
        if row is None:
            raise StoreError(
                f"the table {meta} in {self._db.shown_url} is empty: it is not one of ours, or was damaged",
                number="HF2104",
            )
        self.store_id, self._oldest = str(row[0]), int(row[2])
        return int(row[1])

    def check(self) -> None:
        with self._db.use() as connection:
            self._check(connection)

    def _check(self, connection: Connection) -> None:
        self._oldest = None
        found = self._version(connection)
        check_version("postgres", self._db.shown_url, found, self._oldest)

    def drop(self) -> None:
        with self._db.use() as connection, connection.transaction():
            connection.execute(f"drop schema if exists {self._db.schema} cascade", prepare=False)

    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        with self._db.use() as connection:
            return found_and_fresh(connection, self._db.settings.schema)
