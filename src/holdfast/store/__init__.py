"""Where jobs are kept: the only place that knows SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from holdfast.errors import BadSettings
from holdfast.settings import Settings
from holdfast.store.base import Store


def open_store(
    settings: Settings, *, clock: Callable[[], datetime] | None = None, conn: Any = None, reading: bool = False
) -> Store:  # fmt: skip
    """The store a URL names. `reading`: it refuses writes, ends what takes long, and creates no file. For tests:
    `clock` moves time, and everything is done on the connection `conn`."""
    scheme = _scheme(settings.url)
    if scheme == "sqlite":
        from holdfast.store.sqlite.store import SqliteStore

        return SqliteStore(settings, clock=clock, conn=conn, reading=reading)
    if scheme in ("postgresql", "postgres"):
        try:
            from holdfast.store.postgres.store import PostgresStore
        except ModuleNotFoundError as missing:
            if missing.name != "psycopg":
                raise
            raise BadSettings("PostgreSQL needs a driver: pip install 'holdfast[postgres]'", number="HF1105") from None

        return PostgresStore(settings, clock=clock, conn=conn, reading=reading)
    kind, plus, driver = scheme.partition("+")
    raise BadSettings(
        f"the database URL {settings.shown_url!r} is not one of sqlite:///file.db, sqlite:////absolute/file.db, "
        "postgresql://user@host/database" + (f": leave out +{driver}, as in {kind}://" if plus else ""),
        number="HF1104",
    )


def same_database(settings: Settings, url: str) -> bool:
    """Does this URL lead to the database of these settings? A SQLite file may be named in several ways."""
    if _scheme(settings.url) == _scheme(url) == "sqlite":
        from holdfast.store.sqlite.connect import path_of

        return path_of(settings) == path_of(replace(settings, url=url))
    return settings.url == url


def _scheme(url: str) -> str:
    from urllib.parse import urlsplit  # imported only by who opens a store

    try:
        return urlsplit(url).scheme
    except ValueError:  # not even a URL
        return ""
