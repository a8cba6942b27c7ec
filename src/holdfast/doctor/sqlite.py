"""Checks of a SQLite file and the library that reads it."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from holdfast.doctor.finding import Finding, Thresholds, error, ok, warning
from holdfast.errors import HoldfastError
from holdfast.model.text import quoted
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.sqlite.connect import NETWORK_FILE_SYSTEMS, file_system_of, is_there, path_of

Version = tuple[int, ...]

FIXED = (3, 51, 3)
BACKPORTED: tuple[tuple[Version, Version], ...] = (((3, 44, 6), (3, 45, 0)), ((3, 50, 7), (3, 51, 0)))


def unopenable(settings: Settings) -> Iterator[Finding]:
    """Problems to report before the file is opened: opening would create it, or raise a less helpful error."""
    try:
        path, exists = path_of(settings), is_there(settings)
    except HoldfastError as trouble:
        yield error("HF4001", str(trouble))
        return
    kind = file_system_of(path.parent)
    if kind in NETWORK_FILE_SYSTEMS:
        yield error("HF4401", f"{path} is on a network file system ({kind})")
    elif not exists:
        make = f"holdfast migrate --url {quoted(settings.shown_url)}"
        yield error("HF4001", f"there is no file {path}", f"Make it: {make}")


def library(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    yield judged(sqlite3.sqlite_version_info)


def judged(version: Version) -> Finding:
    shown = ".".join(map(str, version))
    if version >= FIXED or any(first <= version < end for first, end in BACKPORTED):
        return ok("HF4002", f"SQLite {shown}")
    return warning("HF4002", f"SQLite {shown} has the WAL-reset bug")


def file_system(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    path = path_of(settings)
    yield ok("HF4401", f"{path} is on a local file system ({file_system_of(path.parent) or 'unknown'})")


def log(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    path = Path(f"{path_of(settings)}-wal")
    size = os.stat(path).st_size if path.exists() else 0
    if size > thresholds.log:
        yield warning("HF4402", f"the write-ahead log is {_size(size)}")
    else:
        yield ok("HF4402", f"the write-ahead log is {_size(size)}")


def journal_mode(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    mode = store.db.read("journal_mode")[0]["journal_mode"]
    if mode == "wal":
        yield ok("HF4403", "the journal mode is WAL")
    else:
        run = f"holdfast migrate --url {quoted(settings.shown_url)}"
        yield warning("HF4403", f"the journal mode is {mode}", f"Run: {run}")


def synchronous(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    if settings.synchronous == "full":
        yield ok("HF4404", "commits wait for the disk")
    else:
        yield warning("HF4404", f"synchronous is {settings.synchronous}")


def disk(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    path = path_of(settings).parent
    free = shutil.disk_usage(path).free
    said = f"{_size(free)} free at {path}"
    if free < thresholds.disk_full:
        yield error("HF4405", said)
    elif free < thresholds.disk_low:
        yield warning("HF4405", said)
    else:
        yield ok("HF4405", said)


def turns(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    holder = store.db.writing()
    if holder is not None and holder.seconds >= thresholds.turn:
        yield warning("HF4406", f"nobody else can write: the file is held by {holder}")
    else:
        yield ok("HF4406", "writers take turns")


def _size(size: int) -> str:
    for unit, length in (("GB", 1024**3), ("MB", 1024**2), ("kB", 1024)):
        if size >= length:
            return f"{size / length:.1f} {unit}"
    return f"{size} bytes"
