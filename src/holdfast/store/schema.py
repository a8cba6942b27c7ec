"""Schema: our tables in a database."""

from __future__ import annotations

from typing import Protocol

from holdfast.model.job import Thing


class Schema(Protocol):
    store_id: str  # known once the schema was checked

    def migrate(self) -> list[str]:
        """Bring the schema up to date; returns the names of what was applied. Safe from many processes at once."""

    def pending(self) -> list[str]:
        """The names of what `migrate` would apply."""

    def check(self) -> None:
        """Refuse with one clear sentence (SchemaOutdated) if database and code don't fit."""

    def catalogue(self) -> tuple[list[Thing], list[Thing]]:
        """What our tables are made of: as they are, and as this version would make them."""
