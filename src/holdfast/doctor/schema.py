"""Checks that the schema fits the code, and that our tables are as the migrations made them."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.finding import Finding, Thresholds, error, ok, warning
from holdfast.model.job import Thing
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.migrate import newest


def version(store: Store, engine: str) -> Iterator[Finding]:
    found, known = store.db.read("meta")[0]["version"], newest(engine)
    newer = f"; this code knows {known}, which it still serves" if found > known else ""
    yield ok("HF4004", f"the schema is at {found}{newer}")


def drift(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    engine = "sqlite" if settings.url.startswith("sqlite") else "postgres"
    if store.db.read("meta")[0]["version"] != newest(engine):
        yield ok("HF4101", "not compared: the schema is newer than this code, and may have more")
        return
    found, expected = store.schema.catalogue()
    differences = list(compare(found, expected))
    yield from differences
    known = {finding.code for finding in differences}
    for code, what in (
        ("HF4101", "nothing of our tables is missing"),
        ("HF4102", "nothing of them was altered"),
        ("HF4103", "nothing was added to them"),
    ):
        if code not in known:
            yield ok(code, what)


def compare(found: list[Thing], expected: list[Thing]) -> Iterator[Finding]:
    """The differences between the schema found and the one expected. A table whose columns differ has another text as
    well, which is not reported again."""
    there = {(thing.kind, thing.table, thing.name): thing for thing in found}
    wanted = {(thing.kind, thing.table, thing.name): thing for thing in expected}
    tables = {thing.name for thing in found if thing.kind == "table"}
    by_column = {key[1] for key in there.keys() ^ wanted.keys() if key[0] == "column"}
    for key, thing in wanted.items():
        if key[0] != "table" and thing.table not in tables:
            continue  # the missing table is reported already
        other = there.get(key)
        if other is None:
            yield error("HF4101", f"missing: {_named(thing)}", f"Put it back: {_definition(thing)}")
        elif other.definition != thing.definition:
            if thing.kind == "table" and (thing.table in by_column or _columns_differ(thing.table, there, wanted)):
                continue
            what = f"constraints of table {thing.name}" if thing.kind == "table" else _named(thing)
            yield error("HF4102", f"altered: {what}: {_clip(other.definition)}", f"It should be: {_definition(thing)}")
    for key, thing in there.items():
        if key not in wanted and thing.table in {want.table for want in expected}:
            yield warning("HF4103", f"added: {_named(thing)}: {_clip(thing.definition)}")


def _columns_differ(
    table: str, there: dict[tuple[str, str, str], Thing], wanted: dict[tuple[str, str, str], Thing]
) -> bool:
    return any(
        there[key].definition != thing.definition
        for key, thing in wanted.items()
        if key[0] == "column" and key[1] == table and key in there
    )


def _named(thing: Thing) -> str:
    if thing.kind == "column":
        return f"column {thing.table}.{thing.name}"
    if thing.kind == "table":
        return f"table {thing.name}"
    return f"{thing.kind} {thing.name} of table {thing.table}"


def _definition(thing: Thing) -> str:
    named = "" if thing.kind in ("index", "table", "constraint", "trigger") else f"{thing.table}.{thing.name} "
    return _clip(named + (thing.definition or f"table {thing.name}"), 300)


def _clip(text: str, length: int = 160) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
