"""Which mapping `holdfast adopt` goes by: one that somebody wrote down, else the installed one, else a proposal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.adopting import file_mapping
from holdfast.app import Holdfast
from holdfast.errors import BadArguments, BadSettings
from holdfast.model.mapping import Mapping, plain_name
from holdfast.model.mapping_text import section
from holdfast.model.proposal import Choice, propose, status_column
from holdfast.model.text import nearest
from holdfast.settings import adopted_in_file
from holdfast.store.adopted import Source

PROPOSED = "proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A mapping, and where it comes from."""

    origin: str
    mapping: Mapping
    choices: tuple[Choice, ...] = ()  # of a proposal
    differs: tuple[str, ...] | None = None  # in what, from the installed one; None: none is installed


def mapping_for(app: Holdfast, table: str) -> Found:
    """That of the table with this name, or of the one that was adopted under it."""
    installed = app.store.adopted.installed()
    found = _said(app, table, installed) or _proposed(app, table)
    there = next((source.mapping for source in installed if source.name == found.mapping.name), None)
    if there is None:
        return found
    fields = found.mapping.__struct_fields__
    differs = tuple(name for name in fields if getattr(there, name) != getattr(found.mapping, name))
    return Found(origin=found.origin, mapping=found.mapping, choices=found.choices, differs=differs)


def source_of(app: Holdfast, table: str) -> Source:
    """What is installed for this table."""
    installed = app.store.adopted.installed()
    named = [source for source in installed if table in (source.name, source.mapping.table)]
    named = named or [source for source in installed if _same_table(app, source.mapping.table, table)]
    if named:
        return named[0]
    names = [source.name for source in installed]
    near = nearest(table, names)
    hint = f"; did you mean {near[0]!r}?" if near else f"; these are: {', '.join(names)}" if names else ""
    raise BadArguments(f"{table} is not adopted{hint}", number="HF1164")


def _said(app: Holdfast, table: str, installed: list[Source]) -> Found | None:
    known = [*_written(app), *(("what is installed", source.name, source.mapping) for source in installed)]
    for literally in (True, False):
        for origin, name, mapping in known:
            other = mapping.table if isinstance(mapping, Mapping) else str(mapping.get("table", name))
            if table in (name, other) if literally else _same_table(app, other, table):
                said = mapping if isinstance(mapping, Mapping) else file_mapping(name, mapping)
                return Found(origin=origin, mapping=said)
    return None


def _written(app: Holdfast) -> Iterator[tuple[str, str, Mapping | dict[str, Any]]]:
    """What the application's code and the settings file say. The latter is read only if it is wanted."""
    for one in app.adopted.values():
        yield "the application", one.name, one.mapping
    in_file, file = adopted_in_file()
    for name, given in in_file.items():
        yield f"[{section(name)}] in {file}", name, given


def _same_table(app: Holdfast, one: str, other: str) -> bool:
    """Do these names, written differently, mean one live table?"""
    try:
        first, second = app.store.adopted.describe(one), app.store.adopted.describe(other)
    except BadSettings:
        return False
    return (first.schema, first.name) == (second.schema, second.name)


def _proposed(app: Holdfast, table: str) -> Found:
    live = app.store.adopted.describe(table)
    status = status_column(live)
    words = {} if status is None else app.store.adopted.words(live, status.name)
    proposal = propose(live, words, table)
    if proposal.mapping is None:
        raise BadSettings(
            f"{table} can't be mapped without your help: {'; '.join(proposal.missing)}. Write the mapping down, as "
            f"[{section(plain_name(table))}] in holdfast.toml or as hf.adopt({table!r}, …)",
            number="HF1163",
        )
    return Found(origin=PROPOSED, mapping=proposal.mapping, choices=proposal.choices)
