"""What adopting a table would do, as `holdfast adopt` shows it."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import click
import msgspec

from holdfast.cli.adopt_mapping import Found
from holdfast.cli.base import print_table, say
from holdfast.harmless import block
from holdfast.model.lifecycle import UNFINISHED
from holdfast.model.mapping import Mapping
from holdfast.model.mapping_text import as_python, as_toml
from holdfast.model.table import TableColumn
from holdfast.model.text import plural
from holdfast.store.adopted import Plan

MEANINGS = {
    "id": "names the row",
    "status": "its state, as a word",
    "created_at": "when it was made; due from then, unless run_at says otherwise",
    "run_at": "when it is due; empty: at once",
    "priority": "larger is sooner",
    "attempts": "how often it was tried, counted {counting}",
    "max_attempts": "how often it may be tried",
    "worker": "who works it",
    "started_at": "when its last attempt began",
    "finished_at": "when it was done or given up",
    "heartbeat_at": "sign of life of whoever works it; silent for {lease:g} s: abandoned",
    "claimed_at": "when it was taken; abandoned {lease:g} s later",
    "lease_until": "until when it is taken",
    "fence": "a new mark with each attempt",
    "version": "one more with each change",
    "updated_at": "when Holdfast last changed it",
    "error_code": "the kind of its last error",
    "error_message": "its last error",
    "key": "equal rows are one job",
    "token": "shows its status without a login",
    "pending": "what is left to do in it",
    "done": "what is done in it",
    "total": "what there is to do in it",
}

ZONE = "; read and written as UTC"


def document(plan: Plan, found: Found) -> dict[str, Any]:
    mapping = plan.resolved.mapping
    return {
        "table": plan.resolved.sql_table,
        "name": mapping.name,
        "origin": found.origin,
        "differs": found.differs,
        "mapping": msgspec.to_builtins(mapping),
        "columns": [
            {"column": column, "type": kind, "meaning": meaning} for column, kind, meaning, _ in _columns(plan)
        ],
        "payload": [column.name for column in plan.resolved.payload],
        "words": [{"word": word, "rows": rows, "state": _state(mapping, word)} for word, rows in _words(plan).items()],
        "jobs": _jobs(plan),
        "choices": [asdict(choice) for choice in found.choices],
        "problems": [asdict(problem) for problem in plan.problems],
        "locks": list(plan.locks),
        "wishes": list(plan.wishes),
        "statements": list(plan.statements),
        "undo": list(plan.undo),
        "toml": as_toml(mapping),
        "python": as_python(mapping),
    }


def show(plan: Plan, found: Found, *, sql: bool) -> None:
    mapping = plan.resolved.mapping
    _title(f"{plan.resolved.sql_table} as queue {mapping.queue}, task {mapping.name}; mapping: {found.origin}")
    if found.differs:
        say(f"it is adopted by another mapping, which differs in {', '.join(found.differs)}")
    print_table(("column", "type", "is", "meaning"), _columns(plan))
    handlers = ", ".join(column.name for column in plan.resolved.payload)
    say(f"handlers get: {handlers}")
    _title("rows")
    print_table(
        ("word", "rows", "state"),
        [(word, f"{rows:,}", _state(mapping, word) or "left alone") for word, rows in _words(plan).items()],
    )
    jobs = _jobs(plan)
    say("1 row would become a job" if jobs == 1 else f"{jobs:,} rows would become jobs")
    if guesses := [choice for choice in found.choices if not choice.sure]:
        _title("guessed: look at these before you say yes")
        print_table(("meaning", "guess", "why"), [(choice.meaning, choice.value, choice.why) for choice in guesses])
    if found.choices:
        _title("to keep this mapping, put it into holdfast.toml")
        click.echo(block(as_toml(mapping)))
        _title("or into the application")
        click.echo(block(as_python(mapping)))
    _title(f"what is made: {_made(plan)}")
    for lock in plan.locks:
        say(f"lock: {lock}")
    for wish in plan.wishes:
        say(f"would help: {wish}")
    if sql:
        for heading, statements in (("statements", plan.statements), ("to undo it", plan.undo)):
            _title(heading)
            for statement in statements:
                click.echo(block(statement.rstrip(";\n") + ";"))
    if plan.problems:
        _title("problems")
        for problem in plan.problems:
            rows = f" ({problem.rows:,} {plural('row', problem.rows)})" if problem.rows is not None else ""
            say(f"{'error' if problem.fatal else 'warning'}: {problem.what}{rows}. Fix: {problem.fix}")


def _title(text: str) -> None:
    say(text, after=click.style("── ", dim=True))


def _made(plan: Plan) -> str:
    kinds: dict[str, int] = {}
    for statement in plan.statements:
        made = re.search(r"^create (?:or replace )?(\w+)", statement, re.MULTILINE)
        if made is not None:  # else it only says who may call what was made
            kinds[made[1]] = kinds.get(made[1], 0) + 1
    return ", ".join(f"{count} {plural(kind, count)}" for kind, count in kinds.items()) + " (--sql shows them)"


def _columns(plan: Plan) -> list[tuple[str, str, str, str]]:
    mapping = plan.resolved.mapping
    said = {"counting": mapping.counting.replace("_", " "), "lease": mapping.lease}
    return [
        (column.name, column.type, meaning, _meaning(meaning).format(**said) + ZONE * _is_zoneless(plan, column))
        for meaning, column in sorted(plan.resolved.columns.items(), key=lambda item: item[0] not in ("id", "status"))
    ]


def _is_zoneless(plan: Plan, column: TableColumn) -> bool:
    """On PostgreSQL such a column holds whatever zone its writers have. SQLite's own times are UTC."""
    return column.kind == "naive_instant" and bool(plan.resolved.table.schema)


def _meaning(meaning: str) -> str:
    if meaning.startswith("results."):
        field = meaning.removeprefix("results.")
        return "takes the result" if field == "*" else "takes this field of the result"
    return MEANINGS[meaning]


def _words(plan: Plan) -> dict[str, int]:
    """Those of the mapping, also without rows, and those that rows have."""
    return {**dict.fromkeys(plan.resolved.mapping.meanings, 0), **plan.rows}


def _state(mapping: Mapping, word: str) -> str | None:
    return mapping.meanings.get(word)


def _jobs(plan: Plan) -> int:
    return sum(rows for word, rows in plan.rows.items() if plan.resolved.mapping.meanings.get(word) in UNFINISHED)
