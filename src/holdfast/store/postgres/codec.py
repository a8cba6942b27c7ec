"""How PostgreSQL stores values: it, or its driver, has a type for each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from holdfast.store.columns import JobId


class PostgresCodec:
    def moment(self, stored: Any) -> datetime | None:
        return None if stored is None else stored.astimezone(UTC)

    def instant(self, moment: datetime | None) -> Any:
        return moment

    def words(self, stored: Any) -> tuple[str, ...]:
        return tuple(stored or ())

    def json(self, stored: Any) -> bytes | None:
        return None if stored is None else bytes(stored)

    def ids(self, stored: Any) -> list[JobId]:
        return list(stored)


def array(words: Iterable[str]) -> str:
    """A list of texts as PostgreSQL writes it."""
    quoted = (word.replace("\\", r"\\").replace('"', r"\"") for word in words)
    return "{" + ",".join(f'"{word}"' for word in quoted) + "}"


def numbers(values: Iterable[Any]) -> str:
    """An array of numbers or UUIDs as PostgreSQL writes it: one parameter of one type, whatever its length."""
    return "{" + ",".join(map(str, values)) + "}"
