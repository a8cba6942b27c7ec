"""The numbered migrations: forward-only, the only source of the schema, each applied once, by whoever comes first."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

from holdfast.errors import SchemaOutdated
from holdfast.store.statements import HERE, with_tables

OLDEST_CODE = 1  # the oldest code, by the newest migration it knows, that today's schema still serves


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def migrations(engine: str) -> list[Migration]:
    files = sorted((HERE / engine / "migrations").glob("*.sql"))
    return [Migration(int(f.name[:4]), f.stem, f.read_text("utf-8")) for f in files]


@cache
def newest(engine: str) -> int:
    return migrations(engine)[-1].version


def pending(engine: str, version: int) -> list[Migration]:
    return [m for m in migrations(engine) if m.version > version]


def turn(schema: str) -> int:
    """The number of the advisory lock that is held while migrating this schema on PostgreSQL."""
    return int.from_bytes(hashlib.sha256(f'"{schema}"'.encode()).digest()[:8], signed=True)


def script(engine: str, since: int, *, schema: str, prefix: str) -> str:
    """What `migrate` would do to a schema at version `since` (0: none), as SQL for psql or sqlite3: one transaction, so
    that all of it happens or nothing."""
    found = pending(engine, since)
    if not found:
        return f"-- The schema is at {since}: nothing to do.\n"
    version = found[-1].version
    parts = [f"-- Holdfast's schema on {engine}, from {since} to {version}."]
    if engine == "postgres":
        parts += ["begin;", f"select pg_advisory_xact_lock({turn(schema)});"]
        parts.append(f'create schema if not exists "{schema}";' if not since else _GUARD.format(since=since))
        first = _META.format(columns="(version, oldest_code)", values=f"{version}, {OLDEST_CODE}")
    else:
        parts += ["pragma journal_mode = wal;", "begin immediate;"]
        first = _META.format(
            columns="(only_row, store_id, version, oldest_code)", values=f"1, {_RANDOM_ID}, {version}, {OLDEST_CODE}"
        )
    known = f"update @meta set version = {version}, oldest_code = {OLDEST_CODE};"  # noqa: S608 - our own numbers
    parts += [f"-- {migration.name}\n{migration.sql.strip()}" for migration in found]
    parts += [known if since else first, "commit;"]
    own, end = (f'"{schema}".', "") if engine == "postgres" else (f'"{prefix}', '"')
    return with_tables("\n\n".join(parts), lambda name: own + name + end) + "\n"


_META = "insert into @meta {columns} values ({values});"
_GUARD = """do $$ begin
    if (select version from @meta) <> {since} then
        raise exception 'the schema is at %, not at {since}', (select version from @meta);
    end if;
end $$;"""
_RANDOM_ID = "lower(" + " || '-' || ".join(f"hex(randomblob({size}))" for size in (4, 2, 2, 2, 6)) + ")"


def check_version(engine: str, where: str, found: int | None, oldest_code: int | None) -> None:
    """Refuse with one clear sentence when database and code don't fit."""
    needed = newest(engine)
    if found is None:
        raise SchemaOutdated(
            f"{where} has no Holdfast tables yet, or they are in another schema: run `holdfast migrate APP` (as in "
            f"app:hf), or `holdfast migrate` where the URL and the schema are set",
            number="HF2102",
        )
    if found < needed:
        raise SchemaOutdated(
            f"the schema in {where} is at {found}, this version needs {needed}: run `holdfast migrate APP`, "
            f"or apply `holdfast sql upgrade --from {found} --engine {engine}`"
        )
    if oldest_code is not None and oldest_code > needed:
        raise SchemaOutdated(
            f"the schema in {where} is at {found} and serves code from {oldest_code} on, this version knows {needed}: "
            "upgrade Holdfast",
            number="HF2103",
        )


def misfit(engine: str, where: str, found: int | None, oldest_code: int | None) -> SchemaOutdated | None:
    """Why database and code don't fit; None if they do."""
    try:
        check_version(engine, where, found, oldest_code)
    except SchemaOutdated as error:
        return error
    return None
