"""Database: what every part of a Store works with. It runs our statements by name, and says how values are stored."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast.model.facts import Holder
from holdfast.store.columns import Codec, Row
from holdfast.store.statements import Statements


class Transaction(Protocol):
    """An open transaction of ours."""

    def rows(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement by its name."""


class Database(Protocol):
    shown_url: str  # without secrets
    statements: Statements

    @property
    def codec(self) -> Codec: ...

    def transaction(self) -> AbstractContextManager[Transaction]:
        """A write transaction: committed at the end of the block, rolled back by an exception."""

    def write(self, name: str, /, **parameters: Any) -> list[Row]:
        """One statement that writes, committed by itself."""

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        """One statement that only reads."""

    def writing(self) -> Holder | None:
        """Who keeps all others from writing right now. None: nobody, or this database has no such lock."""

    def shares_sessions(self) -> bool:
        """Does something between us and the database share its sessions among clients?"""

    @property
    def has_several_hosts(self) -> bool:
        """Does the URL name more than one server?"""

    def look_around(self) -> None:
        """Check that we work with the one server that should take writes."""

    def writable(self) -> list[str]:
        """The servers that take writes, of all that the URL names."""

    def close(self) -> None: ...
