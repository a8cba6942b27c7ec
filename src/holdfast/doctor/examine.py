"""Runs the checks one after the other on a database that it opens without changing it. A check that fails to run is
reported and does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

from holdfast.doctor import fleet, postgres, schema, sqlite
from holdfast.doctor.adopted import adopted
from holdfast.doctor.application import own
from holdfast.doctor.finding import Finding, Thresholds, error, ok, warning
from holdfast.errors import HoldfastError, SchemaOutdated, StoreError
from holdfast.model.mapping import Mapping
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.base import Store
from holdfast.tasks.hooks import DoctorCheck

Check = Callable[[Store, Settings, Thresholds], Iterator[Finding]]

# FIRST: checks that need no schema. THEN: checks of what is in it.
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


def examine(
    settings: Settings,
    thresholds: Thresholds | None = None,
    mappings: dict[str, Mapping] | None = None,
    own_checks: Sequence[DoctorCheck] = (),
) -> list[Finding]:
    """All findings, including the checks that passed. `mappings`: those that the application has, by name; its
    `own_checks` come last."""
    found = list(_examine(settings, thresholds or Thresholds(), mappings or {}))
    return found + [finding for check in own_checks for finding in own(check)]


def _examine(settings: Settings, thresholds: Thresholds, mappings: dict[str, Mapping]) -> Iterator[Finding]:
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
        yield from _all(FIRST[engine], store, settings, thresholds)
        try:
            store.schema.check()
        except SchemaOutdated as outdated:
            yield error("HF4004", str(outdated))
            return
        except StoreError as trouble:
            yield error("HF4001", str(trouble), "See that this user may use the schema and its tables.")
            return
        yield from schema.version(store, engine)
        yield from _all(THEN[engine], store, settings, thresholds)
        yield from _all((("HF4501", partial(adopted, said=mappings)),), store, settings, thresholds)


def _all(
    checks: tuple[tuple[str, Check], ...], store: Store, settings: Settings, thresholds: Thresholds
) -> Iterator[Finding]:
    for code, check in checks:
        try:
            yield from list(check(store, settings, thresholds))
        except StoreError as trouble:
            yield warning(code, f"could not be looked at: {trouble}", "See that this user may read it, and try again.")
