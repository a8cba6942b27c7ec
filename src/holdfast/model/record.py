"""What public calls return, and how it becomes JSON."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from holdfast.redact import MARKS, hide_secrets


class Record(msgspec.Struct, frozen=True):
    """A value that a public call returns."""

    def as_dict(self) -> dict[str, Any]:
        """Its fields as JSON has them, for `json.dumps` or a web framework: instants as ISO 8601 text, tuples as
        lists."""
        return {name: plain(getattr(self, name)) for name in self.__struct_fields__}


def plain(value: Any) -> Any:
    """A value as JSON has it. Bytes are JSON that was stored: decoded, with secrets hidden."""
    match value:
        case Record():
            return value.as_dict()
        case datetime():
            return value.isoformat()
        case Enum():
            return value.value
        case bytes():
            return shown(value)
        case dict():
            return {str(plain(name)): plain(item) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item) for item in value]
    return value


def shown(stored: bytes, secrets: Iterable[str] = ()) -> Any:
    """Stored JSON as it may be shown: without these secrets, and those that are known by their name or mark."""
    try:
        return hide_secrets(decoded(stored), secrets)
    except RecursionError as error:
        return _unreadable(stored, error)


def decoded(stored: bytes) -> Any:
    """Stored JSON; if it can't be read, a text that says so."""
    try:
        return msgspec.json.decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:  # not written by us
        return _unreadable(stored, error)


def _unreadable(stored: bytes, error: Exception) -> str:
    return f"({len(stored):,} bytes that can't be shown: {type(error).__name__})"


def arguments(stored: bytes) -> Any:
    """Stored arguments by name, as JSON values, secrets included."""
    kept = msgspec.json.decode(stored)
    return {name: value for name, value in kept.items() if name != MARKS} if isinstance(kept, dict) else kept
