"""What a process of its own gets to know of the worker's environment: what a program needs to run at all, and what the
task names. The rest stays out, the database's address and all tokens with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KEPT = frozenset([
    "PATH", "HOME", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT",
])  # fmt: skip
KEPT_PREFIXES = ("LC_", "PYTHON")
# What leads to the database: only for tasks that ask for it.
OF_DATABASE = frozenset(["DATABASE_URL"])
OF_DATABASE_PREFIXES = ("HOLDFAST_", "PG")


def of_database(name: str) -> bool:
    return name in OF_DATABASE or name.startswith(OF_DATABASE_PREFIXES)


def child_environment(ours: Mapping[str, str], named: Iterable[str] = (), *, database: bool = False) -> dict[str, str]:
    """Our variables without what the child has no business with."""
    names = set(named)
    return {
        name: value
        for name, value in ours.items()
        if (database if of_database(name) else name in names or name in KEPT or name.startswith(KEPT_PREFIXES))
    }
