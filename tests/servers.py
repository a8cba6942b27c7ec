"""The PostgreSQL servers tests run on: one per test process, from the wheel, unless HOLDFAST_TEST_POSTGRES_URL names
another. Durability is off: these tests end processes, not machines."""

from __future__ import annotations

import atexit
import os
import secrets
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bench.embedded import PORT, EmbeddedPostgres

FAST: dict[str, Any] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
ROLES_PASSWORD = secrets.token_hex(16)  # of the roles that tests make


@cache
def shared_postgres() -> str:
    """The URL of the server all tests of this process share."""
    given = os.environ.get("HOLDFAST_TEST_POSTGRES_URL")
    if given:
        return given
    server = EmbeddedPostgres(int(os.environ.get("HOLDFAST_TEST_POSTGRES_VERSION", "18")), in_memory=True, **FAST)
    atexit.register(server.destroy)
    return server.url


@contextmanager
def own_postgres(
    version: int = 18, *, tcp: bool = False, in_memory: bool = True, **settings: str | int
) -> Iterator[EmbeddedPostgres]:
    """A server of one's own, to stop and start."""
    server = EmbeddedPostgres(version, tcp=tcp, in_memory=in_memory, **{**FAST, **settings})
    try:
        yield server
    finally:
        server.destroy()


def new_schema() -> str:
    return f"t_{uuid.uuid4().hex[:12]}"


def drop_schema(url: str, schema: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'drop schema if exists "{schema}" cascade'.encode())


def host_and_port(url: str) -> tuple[str, int]:
    """Or the directory of the server's socket, and the number in its name."""
    parts = conninfo_to_dict(url)
    return str(parts.get("host") or "127.0.0.1"), int(parts.get("port") or PORT)


def as_role(url: str, role: str, password: str = ROLES_PASSWORD) -> str:
    """The same database, as this role sees it."""
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


def in_database(url: str, name: str) -> str:
    """Another database of the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


@contextmanager
def a_role(url: str, *grants: str) -> Iterator[str]:
    """The same database as seen by a new role with these rights (`usage on schema …`) and no others."""
    role = f"r_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"create role {role} login password '{ROLES_PASSWORD}'".encode())
        try:
            for grant in grants:
                owner.execute(f"grant {grant} to {role}".encode())
            yield as_role(url, role)
        finally:
            owner.execute(f"drop owned by {role}".encode())
            owner.execute(f"drop role {role}".encode())
