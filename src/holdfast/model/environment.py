"""The environment variables that an isolated process inherits from the worker: those that any program needs, and those
that the task names. All others, such as the database's address and tokens, are kept from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
