"""Connections of users as our statements need them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Any, cast

LEGACY = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, which Python 3.11 has no name for


class PlainRows:
    """A connection of the user's as our statements need it: its rows are tuples and its text is str."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.driver = db

    @property
    def text_factory(self) -> Any:
        return self.driver.text_factory

    @text_factory.setter
    def text_factory(self, factory: Any) -> None:
        self.driver.text_factory = factory

    @property
    def in_transaction(self) -> bool:
        return self.driver.in_transaction

    def execute(self, text: str, parameters: Any = ()) -> sqlite3.Cursor:
        return self._cursor().execute(text, parameters)

    def executemany(self, text: str, parameters: Iterable[Any]) -> sqlite3.Cursor:
        return self._cursor().executemany(text, parameters)

    def _cursor(self) -> sqlite3.Cursor:
        cursor = self.driver.cursor()
        cursor.row_factory = None
        return cursor


def plain_rows(db: sqlite3.Connection) -> sqlite3.Connection:
    return cast(sqlite3.Connection, PlainRows(db))


def begins_by_itself(driver: sqlite3.Connection) -> bool:
    """Does the driver begin transactions by itself, just before the first INSERT, UPDATE or DELETE?"""
    legacy = getattr(driver, "autocommit", LEGACY) == LEGACY
    return legacy and driver.isolation_level is not None


def begin_as_driver(db: sqlite3.Connection) -> None:
    """Where the driver begins transactions by itself, it does so before an insert, and not before a savepoint or a
    trigger is made: these would then be transactions of their own, and committed at their end."""
    if begins_by_itself(db) and not db.in_transaction:
        db.execute("begin")
