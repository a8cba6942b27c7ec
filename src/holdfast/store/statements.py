"""Loads the SQL files, once. Statements that serve both databases live in `sql/`; where the databases differ, each has
its own in `postgres/` and `sqlite/`, under the same name. A file holds one statement, named like the file, or several
short ones on one subject, each below a line `-- name: get`.

In the files, `@jobs` is a table of ours, `:name` a parameter, and these become what each database writes:
  @now           the database's clock, in conditions
  @clock         the database's clock, in SET lists
  @after(name)   that clock plus the parameter's seconds
  @any(name)     after a column: it is one of the parameter's list
  @by_ready      after a table: read it by the claim's index (PostgreSQL does so by itself)
Each store says what these become. What several statements share is said once and put in where it is named:
  @columns(…), @values(…), @names(…), @nulls(…), @record(…), @record_values(…)
                 lists of a job's columns and what goes into them (`columns.Lists`)
  @lanes         a fragment: the file `lanes.sql` (FRAGMENTS)
  @stands(p)     a condition on the row `p` (MACROS)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from holdfast.model.rollups import BOUNDS, CHARTED, INFINITE
from holdfast.store.columns import Lists

HERE = Path(__file__).parent
FRAGMENTS = frozenset(
    [
        "answer",
        "count_successes",
        "counted",
        "ended_hold",
        "first_tick",
        "given",
        "lanes",
        "lists_job",
        "matching",
        "started",
        "straight",
        "taken",
    ]
)
MACROS = {
    # This pause is in force.
    "stands": "({0}.until is null or {0}.until > @now)",
    # The queue or the task of this lane is paused.
    "paused": "exists (select 1 from @pauses p where ((p.kind = 'queue' and p.name = {0}.queue) "
    "or (p.kind = 'task' and p.name = {0}.task)) and @stands(p))",
    # This job waits in this lane and may be claimed, if not now then later; and the order of its index.
    "in_lane": "{0}.ready_at is not null and {0}.queue = {1}.queue and {0}.task = {1}.task "
    "and {0}.priority = {1}.priority",
    "in_order": "order by {0}.queue, {0}.task, {0}.priority, {0}.ready_at, {0}.id",
    # It may be claimed now, if it waits in a lane at all: due, and not expired. What has begun once expires no more.
    "due": "{0}.ready_at <= @now and @unexpired({0})",
    "unexpired": "({0}.expires_at is null or {0}.attempt > 0 or {0}.expires_at > @now)",
    # It was not started by its expiry, and is to be cancelled.
    "expired": "{0}.expires_at <= @now and {0}.expires_at is not null "
    "and ({0}.ready_at is not null or {0}.held_by is not null) and {0}.attempt = 0",
    # It may be claimed ahead of a free slot: never tried, and allowed to be tried again.
    "fresh": "{0}.attempt = 0 and {0}.max_attempts > 1",
    # A cron, with its pause.
    "cron_and_pause": "{0}.name, {0}.task, {0}.args, {0}.expression, {0}.timezone, {0}.catch_up, {0}.queue, "
    "{0}.priority, {0}.max_attempts, {0}.tags, {0}.next_at, {0}.last_at, {1}.created_at as paused_at, "
    "{1}.until as paused_until, {1}.by as paused_by, {1}.reason as paused_reason, @now as now",
    # A call in the audit is one of those asked for: what the question leaves open is null.
    "recorded": "{0}.id < :before and coalesce(:by, {0}.by, '') = coalesce({0}.by, '') "
    "and {0}.verb = coalesce(:verb, {0}.verb) "
    "and lower({0}.what || ' ' || cast({0}.parameters as text)) like :what escape '\\' "
    "and {0}.at >= coalesce(@after(minus_since), :since, {0}.at)",
    # SQLite: may this picked job be taken?
    "passes": "true",
    # This picked job is to be taken: there is a slot for it, or will be in a moment.
    "wanted": "({0}.rank <= :limit or {0}.fresh)",
    # The bucket that so many milliseconds are in.
    "bucket": "case " + "".join(f"when {{0}} < {bound} then '{bound}' " for bound in BOUNDS) + f"else '{INFINITE}' end",
    # SQLite: when that of the stretches of so many seconds began that this instant is in.
    "bin": "strftime('%Y-%m-%d %H:%M:00.000000', strftime('%s', {0}) / {1} * {1}, 'unixepoch')",
    # It is shown in charts, so it is also counted in the grains that are for them.
    "charted": f"{{0}} in ({', '.join(map(repr, CHARTED))})",
    # The adopted table of this lane is suspended, or can't be worked right now. (Its task has its name.)
    "closed": "exists (select 1 from @sources s where s.name = {0}.task and (s.suspended or s.busy_until > @now))",
}

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_LISTS = ("columns", "values", "names", "nulls", "record", "record_values")
_TOKEN = re.compile(rf"@(after|any|{'|'.join((*_LISTS, *MACROS))})\((\w+(?:, \w+)*)\)|@(\w+)")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


@cache
def sources(engine: str) -> dict[str, str]:
    """All statements by name, read at once: by the time a long-running process needs the next one, its file may be gone
    or belong to another version."""
    found: dict[str, str] = {}
    for path in [*(HERE / "sql").glob("*.sql"), *(HERE / engine).glob("*.sql")]:
        for name, text in _named(path):
            assert name not in found, f"two statements are named {name}"
            found[name] = _COMMENT.sub("", text).strip().rstrip(";")
    return found


def _named(path: Path) -> Iterator[tuple[str, str]]:
    _, *named = _NAME.split(path.read_text("utf-8"))
    return zip(named[::2], named[1::2], strict=True) if named else iter([(path.stem, path.read_text("utf-8"))])


def source(engine: str, name: str) -> str:
    return sources(engine)[name]


def with_tables(text: str, table: Callable[[str], str]) -> str:
    """The text of a migration, which has no tokens but names, with the names filled in."""
    return re.sub(r"@(\w+)", lambda match: table(match[1]), text)


class Statements:
    """The statements of one database, with their tokens filled in."""

    def __init__(
        self,
        engine: str,
        *,
        table: Callable[[str], str],
        now: str,
        clock: str,
        after: Callable[[str], str],
        any_of: Callable[[str], str],
        lists: Lists,
        by_ready: str = "",
        parameter: Callable[[str], str] | None = None,
    ) -> None:
        self._engine = engine
        self._table = table
        self._words = {"now": now, "clock": clock, "by_ready": by_ready}
        self._after = after
        self._any_of = any_of
        self._lists = lists
        self._parameter = parameter
        self._ready: dict[str, str] = {}
        sources(engine)

    def __getitem__(self, name: str) -> str:
        found = self._ready.get(name)
        if found is None:
            found = self._ready[name] = self.fill(source(self._engine, name))
        return found

    def with_tables(self, migration: str) -> str:
        return with_tables(migration, self._table)

    def define(self, name: str, text: str) -> None:
        """Add a statement that is made from others."""
        self._ready[name] = self.fill(text)

    def fill(self, text: str) -> str:
        """A text of ours with its tokens filled in; each text is filled only once."""
        found = self._ready.get(text)
        if found is None:
            found = self._ready[text] = self._fill(text)
        return found

    def _fill(self, text: str) -> str:
        if self._parameter is not None:
            text = text.replace("%", "%%")
            # Parameters first: the replacements of tokens may contain placeholders of their own.
            parameter = self._parameter
            text = _PARAMETER.sub(lambda m: parameter(m[1]), text)
        return _TOKEN.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        function, given, word = match.groups()
        arguments = given.split(", ") if given else []
        if function == "after":
            return self._after(*arguments)
        if function == "any":
            return self._any_of(*arguments)
        if function in _LISTS:
            return self.fill(self._lists(function, *arguments))
        if function:
            return self.fill(MACROS[function].format(*arguments))
        if word in FRAGMENTS:
            return self.fill(source(self._engine, word))
        return self._words[word] if word in self._words else self._table(word)
