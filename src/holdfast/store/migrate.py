"""The numbered migrations: forward-only, the only source of the schema, applied once by whoever comes first."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from holdfast.errors import SchemaOutdated
from holdfast.store.statements import HERE

OLDEST_CODE = 1  # the oldest code, by the newest migration it knows, that today's schema still serves


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    sql: str


def migrations(engine: str) -> list[Migration]:
    files = sorted((HERE / engine / "migrations").glob("*.sql"))
    return [Migration(int(f.name[:4]), f.stem, f.read_text()) for f in files]


@cache
def newest(engine: str) -> int:
    return migrations(engine)[-1].version


def pending(engine: str, version: int) -> list[Migration]:
    return [m for m in migrations(engine) if m.version > version]


def check_version(engine: str, where: str, found: int | None, oldest_code: int | None) -> None:
    """Refuse with one clear sentence when database and code don't fit."""
    needed = newest(engine)
    if found is None:
        raise SchemaOutdated(f"{where} has no Holdfast tables yet: run `holdfast migrate --url {where}`")
    if found < needed:
        raise SchemaOutdated(
            f"the schema in {where} is at {found}, this version needs {needed}: run `holdfast migrate --url {where}`"
        )
    if oldest_code is not None and oldest_code > needed:
        raise SchemaOutdated(
            f"the schema in {where} is at {found} and serves code from {oldest_code} on, this version knows {needed}: "
            "upgrade Holdfast"
        )


def misfit(engine: str, where: str, found: int | None, oldest_code: int | None) -> SchemaOutdated | None:
    """Why database and code don't fit; None if they do."""
    try:
        check_version(engine, where, found, oldest_code)
    except SchemaOutdated as error:
        return error
    return None
