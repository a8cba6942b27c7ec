"""Checks of adopted tables: that each is still as its mapping says, that its rows are ones that can be worked, and that
rows and jobs are in step."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.finding import Finding, Thresholds, error, ok, warning
from holdfast.errors import StoreError
from holdfast.model.durations import short_duration
from holdfast.model.mapping import Mapping
from holdfast.model.table import Problem
from holdfast.model.text import named, plural
from holdfast.settings import Settings
from holdfast.store.adopted import Source, rare_beats
from holdfast.store.base import Store


def adopted(store: Store, settings: Settings, thresholds: Thresholds, said: dict[str, Mapping]) -> Iterator[Finding]:
    """`said`: the mappings that the application or the settings file has, by name."""
    installed = store.adopted.installed()
    if not installed and not said:
        yield ok("HF4501", "no table is adopted")
        return
    yield from _drift({source.name: source for source in installed}, said)
    for source in installed:
        yield from _source(store, source, settings, thresholds)


def _drift(installed: dict[str, Source], said: dict[str, Mapping]) -> Iterator[Finding]:
    for name, mapping in said.items():
        source = installed.get(name)
        adopt = f"Run: holdfast adopt {named(name)} --app APP"
        if source is None:
            yield warning("HF4505", f"{name}: the application maps this table, and nobody has adopted it", adopt)
        elif source.mapping != mapping:
            differing = [n for n in mapping.__struct_fields__ if getattr(mapping, n) != getattr(source.mapping, n)]
            yield error("HF4505", f"{name}: the application maps it otherwise: {', '.join(differing)}", adopt)
        else:
            yield ok("HF4505", f"{name}: the application and what is installed agree")


def _source(store: Store, source: Source, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    name = source.name
    if source.suspended:
        fix = f"If its columns are as they should be: holdfast adopt {named(name)} --resume"
        yield warning("HF4502", f"{name} is suspended: none of its rows is worked", fix)
    else:
        yield ok("HF4502", f"{name} is worked")
    problems = store.adopted.check(source.mapping)
    rare = rare_beats(source.mapping, settings.heartbeat)
    yield from (_finding("HF4501", name, problem) for problem in (*problems, *rare))
    if not problems and not rare:
        yield ok("HF4501", f"{name}: table, triggers and mapping fit together")
    if not any(problem.fatal for problem in problems):  # else its columns can't be read
        try:
            yield from list(_rows(store, source))
        except StoreError as trouble:
            yield warning(
                "HF4503", f"{name}: could not be looked at: {trouble}", "See that this user may read the table."
            )
    yield from _in_step(store, source, thresholds)


def _rows(store: Store, source: Source) -> Iterator[Finding]:
    name, mapping = source.name, source.mapping
    odd = store.adopted.odd_rows(mapping)
    yield from (_finding("HF4503", name, problem) for problem in odd)
    words = store.adopted.words(store.adopted.describe(mapping.table), mapping.status)
    others = {word: rows for word, rows in words.items() if word not in mapping.meanings}
    meant = {_bare(word): word for word in mapping.meanings}
    for word, rows in others.items():
        if near := meant.get(_bare(word)):
            what = f"{mapping.status} is {word!r}, which is not quite {near!r}: the row is no job"
            fix = f"write {near!r}, or add {word!r} to the mapping's states"
            odd.append(Problem(what=what, fix=fix, fatal=False, column=mapping.status, rows=rows))
            yield _finding("HF4503", name, odd[-1])
    if not odd:
        counts = ", ".join(f"{rows:,} {word!r}" for word, rows in others.items())
        left = f"; left alone, for their word means nothing here: {counts}" if others else ""
        yield ok("HF4503", f"{name}: every row can be worked{left}")


def _bare(word: str) -> str:
    return word.strip().casefold()


def _finding(code: str, name: str, problem: Problem) -> Finding:
    rows = "" if problem.rows is None else f" ({problem.rows:,} {plural('row', problem.rows)})"
    fix = problem.fix[:1].upper() + problem.fix[1:]
    return (error if problem.fatal else warning)(code, f"{name}: {problem.what}{rows}", fix)


def _in_step(store: Store, source: Source, thresholds: Thresholds) -> Iterator[Finding]:
    now, found = store.reads.now(), store.adopted.unsettled(source.name)
    late = False
    for count, since, bound, what in (
        (found.inbox, found.inbox_since, thresholds.unsettled, "changed by others and not taken up"),
        (found.owed, found.owed_since, thresholds.owed, "not told what became of their job"),
    ):
        age = 0.0 if since is None else (now - since).total_seconds()
        if count and age > bound:
            late = True
            told = f"{source.name}: {count:,} {plural('row', count)} {what}, the oldest {short_duration(age)} ago"
            yield warning("HF4504", told)
    if not late:
        yield ok("HF4504", f"{source.name}: rows and jobs are in step")
