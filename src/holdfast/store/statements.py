"""Loads `<verb>.sql`, once. A statement that serves both databases lives in `sql/`; where they part, each has its
own file of the same name.

In the files, `@jobs` is a table of ours, `:name` a parameter, and time is written as
  @now           the database's clock, in conditions
  @clock         the database's clock, in SET lists
  @after(name)   that clock plus the parameter's seconds
  @any(name)     after a column: it is one of the parameter's list
  @lanes         the fragment `lanes.sql`, shared by claim and look; so `@taken` and `@answer`, shared by claims,
                 `@matching`, by what finds jobs, and `@meant`, by what a pause sets aside
Each store says what these become.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
FRAGMENTS = frozenset(["answer", "lanes", "matching", "meant", "taken"])

_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_TOKEN = re.compile(r"@after\((\w+)\)|@any\((\w+)\)|@(\w+)")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z]\w*)")


@cache
def sources(engine: str) -> dict[str, str]:
    """All at once: the files may be gone, or another version's, when a process that runs for long needs the next."""
    paths = [*(HERE / "sql").glob("*.sql"), *(HERE / engine).glob("*.sql")]
    return {path.stem: _COMMENT.sub("", path.read_text("utf-8")).strip().rstrip(";") for path in paths}


def source(engine: str, name: str) -> str:
    return sources(engine)[name]


class Statements:
    """The statements of one store, with its names filled in."""

    def __init__(
        self,
        engine: str,
        *,
        table: Callable[[str], str],
        now: str,
        clock: str,
        after: Callable[[str], str],
        any_of: Callable[[str], str],
        parameter: Callable[[str], str] | None = None,
    ) -> None:
        self._engine = engine
        self._table = table
        self._words = {"now": now, "clock": clock}
        self._after = after
        self._any_of = any_of
        self._parameter = parameter
        self._ready: dict[str, str] = {}
        sources(engine)

    def __getitem__(self, name: str) -> str:
        found = self._ready.get(name)
        if found is None:
            found = self._ready[name] = self.fill(source(self._engine, name))
        return found

    def define(self, name: str, text: str) -> None:
        """A statement made of others, or of one with something in its place."""
        self._ready[name] = self.fill(text)

    def fill(self, text: str) -> str:
        """A statement of ours with its names filled in; the same text is filled once."""
        found = self._ready.get(text)
        if found is None:
            found = self._ready[text] = self._fill(text)
        return found

    def _fill(self, text: str) -> str:
        if self._parameter is not None:
            text = text.replace("%", "%%")
            # Parameters first: what the words below become may hold placeholders of its own.
            parameter = self._parameter
            text = _PARAMETER.sub(lambda m: parameter(m[1]), text)
        return _TOKEN.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        after, any_of, word = match.groups()
        if after:
            return self._after(after)
        if any_of:
            return self._any_of(any_of)
        if word in FRAGMENTS:
            return self.fill(source(self._engine, word))
        return self._words.get(word) or self._table(word)
