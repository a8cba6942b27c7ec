"""The examination: open the database without changing it, then one check after the other. One that can't be made is
told and keeps no other from being made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from holdfast.doctor import fleet, postgres, schema, sqlite
from holdfast.doctor.finding import Finding, Limits, error, ok, warning
from holdfast.errors import HoldfastError, SchemaOutdated, StoreError
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store

Check = Callable[[Store, Settings, Limits], Iterator[Finding]]

# Of what there is before a schema, and of what is in it.
FIRST: dict[str, tuple[tuple[str, Check], ...]] = {
    "sqlite": (
        ("HF4002", sqlite.library), ("HF4401", sqlite.file_system), ("HF4402", sqlite.log),
        ("HF4403", sqlite.journal_mode), ("HF4404", sqlite.synchronous), ("HF4405", sqlite.disk),
        ("HF4406", sqlite.turns),
    ),
    "postgres": (
        ("HF4003", postgres.version), ("HF4305", postgres.pooler), ("HF4301", postgres.horizon),
        ("HF4205", fleet.clock),
    ),
}  # fmt: skip
THEN: dict[str, tuple[tuple[str, Check], ...]] = {
    "sqlite": (("HF4101", schema.drift), *fleet.CHECKS),
    "postgres": (
        ("HF4101", schema.drift), ("HF4302", postgres.bloat), ("HF4303", postgres.autovacuum),
        ("HF4304", postgres.connections), ("HF4306", postgres.primaries), *fleet.CHECKS,
    ),
}  # fmt: skip


def examine(settings: Settings, limits: Limits | None = None) -> list[Finding]:
    """All that was found, what is in order included."""
    return list(_examine(settings, limits or Limits()))


def _examine(settings: Settings, limits: Limits) -> Iterator[Finding]:
    engine = "sqlite" if settings.url.startswith("sqlite") else "postgres"
    refused = list(sqlite.unopenable(settings)) if engine == "sqlite" else []
    if refused:
        yield from refused
        return
    try:
        store = open_store(settings)
    except HoldfastError as trouble:
        yield error("HF4001", str(trouble))
        return
    with closing(store):
        try:
            store.reads.now()
        except StoreError as trouble:
            yield error("HF4003" if trouble.number == "HF3410" else "HF4001", str(trouble))
            return
        yield ok("HF4001", f"{settings.shown_url} answers")
        yield from _all(FIRST[engine], store, settings, limits)
        try:
            store.schema.check()
        except SchemaOutdated as outdated:
            yield error("HF4004", str(outdated))
            return
        except StoreError as trouble:
            yield error("HF4001", str(trouble), "See that this user may use the schema and its tables.")
            return
        yield from schema.version(store, engine)
        yield from _all(THEN[engine], store, settings, limits)


def _all(checks: tuple[tuple[str, Check], ...], store: Store, settings: Settings, limits: Limits) -> Iterator[Finding]:
    for code, check in checks:
        try:
            yield from list(check(store, settings, limits))
        except StoreError as trouble:
            yield warning(code, f"could not be looked at: {trouble}", "See that this user may read it, and try again.")
