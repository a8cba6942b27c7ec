"""`adopt`: make a table of the user's a queue, look at what that takes, and leave again."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli.adopt_mapping import PROPOSED, mapping_for, source_of
from holdfast.cli.adopt_plan import document, show
from holdfast.cli.base import (
    ago,
    cli,
    counted,
    database_option,
    open_app,
    output_option,
    print_data,
    print_table,
    talk,
    who_options,
)
from holdfast.cli.queues import total
from holdfast.errors import BadArguments, BadSettings
from holdfast.model.job import Changed
from holdfast.model.text import named, plural
from holdfast.store.adopted import Source
from holdfast.store.audit import Call
from holdfast.tasks.options import by_of, reason_of


@cli.command()
@click.argument("table", required=False)
@click.option("--dry-run", is_flag=True, help="Only show the plan, or with --undo the script.")
@click.option("--sql", is_flag=True, help="Show every statement of the plan in full, and those that undo it.")
@click.option("--suspend", "verb", flag_value="suspend", help="Leave the table alone for now, to change its columns.")
@click.option("--resume", "verb", flag_value="resume", help="Work it again.")
@click.option("--undo", "verb", flag_value="undo", help="Take away what was made. The table stays as it is.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@who_options
@output_option
@database_option
def adopt(
    table: str | None, dry_run: bool, sql: bool, verb: str | None, yes: bool, reason: str | None, by: str | None,
    output: str, url: str | None,
) -> None:  # fmt: skip
    """Work a TABLE of yours as a queue: show what that takes, ask, and do it. Without a TABLE, list the adopted ones.

    The mapping is that of the application (--app) or of the settings file; if neither has one, it is proposed from the
    table. Safe to repeat, also after it was cut short.

    \b
    Examples:
      holdfast adopt audits --dry-run
      holdfast adopt
    """
    app = open_app(url)
    who = {"by": by_of("adopt", by), "reason": reason_of("adopt", reason)}
    if table is None:
        if verb or dry_run or sql or yes:
            raise BadArguments("which table? `holdfast adopt` alone lists the adopted ones")
        _list(app, output)
    elif verb is None:
        _adopt(app, table, dry_run=dry_run, sql=sql, yes=yes, output=output, who=who)
    else:
        source = source_of(app, table)
        if verb == "undo":
            _undo(app, source, dry_run=dry_run, yes=yes, who=who)
        else:
            _switch(app, source, verb, who)


# -- adopt ------------------------------------------------------------------------------------------------------------


def _adopt(app: Holdfast, table: str, *, dry_run: bool, sql: bool, yes: bool, output: str, who: dict[str, Any]) -> None:
    found = mapping_for(app, table)
    plan = app.store.adopted.plan(found.mapping)
    if output == "table":
        show(plan, found, sql=sql)
    else:
        print_data([document(plan, found)], output, one=True)
    if fatal := [problem for problem in plan.problems if problem.fatal]:
        raise BadSettings(f"{table} can't be adopted with this mapping: {'; '.join(map(str, fatal))}", number="HF1162")
    if dry_run:
        talk("nothing was changed")
        return
    if not yes:
        _ask(f"adopt {table}", f"adopt {table}?")
    elif found.origin == PROPOSED:
        raise BadSettings(
            f"the mapping of {table} is only proposed, and --yes can't confirm it: put it into holdfast.toml or into "
            "the application's code (both are shown above), or leave --yes out and answer",
            number="HF1163",
        )
    with _recorded(app, "adopt", found.mapping.name, who) as done:
        app.store.adopted.install(found.mapping, Progress())
        done(1)
    talk(f"{table} is adopted. To leave again: holdfast adopt {named(found.mapping.name)} --undo")


class Progress:
    """Says how far it is, once a second at most."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if now >= self._next_at:
            self._next_at = now + 1.0
            talk(text)


# -- leave it alone for a while, and for good -------------------------------------------------------------------------


def _switch(app: Holdfast, source: Source, verb: str, who: dict[str, Any]) -> None:
    adopted, name = app.store.adopted, source.name
    with _recorded(app, verb, name, who) as done:
        (adopted.suspend if verb == "suspend" else adopted.resume)(name)
        done(1)
    if verb == "suspend":
        talk(f"{name} is suspended: nothing is claimed or written. To go on: holdfast adopt {named(name)} --resume")
        return
    problems = adopted.check(source.mapping)
    for problem in problems:
        talk(f"{'error' if problem.fatal else 'warning'}: {problem}")
    unfit = any(problem.fatal for problem in problems)
    talk(f"{name} is resumed" + ", and waits until these errors are mended" * unfit)


def _undo(app: Holdfast, source: Source, *, dry_run: bool, yes: bool, who: dict[str, Any]) -> None:
    if dry_run:
        for statement in app.store.adopted.plan(source.mapping).undo:
            click.echo(statement.rstrip(";\n") + ";\n")
        talk("nothing was changed")
        return
    if not yes:
        talk(f"the table {source.mapping.table} stays as it is; jobs of its rows that have not finished are removed")
        _ask(f"undo the adoption of {source.name}", f"leave {source.name}?")
    with _recorded(app, "undo", source.name, who) as done:
        removed = app.store.adopted.undo(source.name)
        done(removed)
    talk(f"{source.name} is a table like any other again; {removed:,} unfinished {plural('job', removed)} removed")


# -- the list ---------------------------------------------------------------------------------------------------------


def _list(app: Holdfast, output: str) -> None:
    depths, adopted = app.store.reads.depths(), app.store.adopted
    now = app.store.reads.now()
    rows = []
    for source in adopted.installed():
        unsettled = adopted.unsettled(source.name)
        jobs = total((depth for depth in depths if depth.task == source.name), now)
        rows.append(
            {
                "name": source.name, "table": source.mapping.table, "queue": source.mapping.queue,
                "state": _state(source), "swept_to": source.swept_to,
                **{name: jobs[name] for name in ("due", "scheduled", "running", "failed", "capped")},
                "inbox": unsettled.inbox, "inbox_since": unsettled.inbox_since and unsettled.inbox_since.isoformat(),
                "owed": unsettled.owed,
            }
        )  # fmt: skip
    if output != "table":
        print_data(rows, output)
        return
    print_table(
        ("name", "table", "state", "due", "scheduled", "running", "failed", "to settle", "owed"),
        [
            (
                row["name"], row["table"], row["state"],
                *(counted(row[name], row["capped"]) for name in ("due", "scheduled", "running", "failed")),
                _settling(row),
                f"{row['owed']:,}",
            )
            for row in rows
        ],
    )  # fmt: skip


def _settling(row: dict[str, Any]) -> str:
    """How many rows wait to be taken up, and since when the oldest does."""
    since = row["inbox_since"]
    return f"{row['inbox']:,}" + (f" ({ago(datetime.fromisoformat(since))})" if since else "")


def _state(source: Source) -> str:
    if source.suspended:
        return "suspended"
    return "working" if source.swept_to is None else f"working; its rows are looked through, up to {source.swept_to}"


# -- what the verbs share ---------------------------------------------------------------------------------------------


def _ask(what: str, question: str) -> None:
    if not sys.stdin.isatty():
        raise BadArguments(
            f"this would {what}, and nobody is there to ask: say --yes, or --dry-run to look", number="HF1401"
        )
    if not click.confirm(question, err=True):
        talk("nothing was changed")
        raise click.exceptions.Exit(1)


@contextmanager
def _recorded(app: Holdfast, verb: str, name: str, who: dict[str, Any]) -> Iterator[Callable[[int], None]]:
    """Record the verb in the audit. It takes several transactions: one that was cut short has no end there. Tell what
    this yields how many have changed: tables, or with undo jobs."""
    call = Call(f"{verb}_table" if verb != "adopt" else verb, name, who["by"], who["reason"]).begin(app.store.db)

    def done(changed: int) -> None:
        with app.store.db.transaction() as tx:
            call.record(tx, Changed(changed, 0), [])

    yield done
    call.end()
