"""What a process of its own may use, and what it gets to know of the worker's environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from holdfast.errors import BadSettings

LEAST_MEMORY = 64 * 2**20  # bytes: with less, Python can't start and import an application
LEAST_FILES = 32


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What the kernel allows a task's own process (`isolation="process"`), and each process that it starts: bytes of
    address space, seconds of CPU time, open files, bytes of any file it writes. None: the worker's limit. A limit can
    only be lowered: where the worker's own is lower, that one applies."""

    memory: int | None = None
    cpu: float | None = None
    files: int | None = None
    file_size: int | None = None

    def __post_init__(self) -> None:
        _check("memory", self.memory, int, "bytes", LEAST_MEMORY)
        _check("cpu", self.cpu, float, "seconds", 1)
        _check("files", self.files, int, "open files", LEAST_FILES)
        _check("file_size", self.file_size, int, "bytes", 0)


def _check(name: str, value: Any, kind: type, unit: str, least: int) -> None:
    if value is None:
        return
    fits = isinstance(value, int | float if kind is float else int) and not isinstance(value, bool)
    if not (fits and least <= value < 2**62):
        number = "a whole number" if kind is int else "a number"
        raise BadSettings(f"Limits({name}=…) is {number} of {unit}, {least} or more, not {value!r}", number="HF1111")


NO_LIMITS = Limits()


KEPT = frozenset([
    "PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT",
])  # fmt: skip
KEPT_PREFIXES = ("LC_", "PYTHON")
# These give access to the database: only tasks with `database=True` get them.
OF_DATABASE = frozenset(["DATABASE_URL"])
OF_DATABASE_PREFIXES = ("HOLDFAST_", "PG")


def of_database(name: str) -> bool:
    return name in OF_DATABASE or name.startswith(OF_DATABASE_PREFIXES)


def child_environment(ours: Mapping[str, str], named: Iterable[str] = (), *, database: bool = False) -> dict[str, str]:
    """Our variables, less those that the child must not have."""
    names = set(named)
    return {
        name: value
        for name, value in ours.items()
        if (database if of_database(name) else name in names or name in KEPT or name.startswith(KEPT_PREFIXES))
    }
