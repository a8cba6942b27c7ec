"""Who may do what over HTTP: roles, API keys that carry one, and the scopes of job tokens."""

from __future__ import annotations

import base64
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from holdfast.model.record import Record

Role = Literal["submitter", "viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

# What a route asks for -> the roles that have it. A viewer can't submit, and a submitter can't look around: it sees its
# own jobs by their tokens.
_HAVE: dict[Role, frozenset[Role]] = {
    "submitter": frozenset(["submitter", "operator", "admin"]),
    "viewer": frozenset(["viewer", "operator", "admin"]),
    "operator": frozenset(["operator", "admin"]),
    "admin": frozenset(["admin"]),
}


def suffices(role: Role, needed: Role) -> bool:
    return role in _HAVE[needed]


class Access(msgspec.Struct, frozen=True):
    """What a request may do: its role. `by`: who it is, for the audit."""

    role: Role
    by: str | None = None


Authorize = Callable[[Any], Access | Awaitable[Access | None] | None]  # it gets a Request of Starlette's

Scope = Literal["read", "control"]  # of a job token
SCOPES: tuple[Scope, ...] = get_args(Scope)


class ApiKey(Record, frozen=True):
    """An API key, without its secret: that is shown once, when the key is created."""

    name: str
    role: Role
    created_at: datetime
    created_by: str | None


PREFIX = "hfk_"
_ID = 12  # hexadecimal digits


class NewKey:
    """An API key as its owner gets it, with what is stored of it. It has 256 random bits, so a plain hash is enough:
    there is nothing to guess."""

    def __init__(self) -> None:
        self.id = os.urandom(_ID // 2).hex()
        self.text = f"{PREFIX}{self.id}_{base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip('=')}"
        self.digest = digest_of(self.text)


def id_of(key: str) -> str | None:
    """By which an API key is found; None: it is not one."""
    id, mark, _ = key.removeprefix(PREFIX).partition("_")
    return id if key.startswith(PREFIX) and mark and len(id) == _ID and id.isascii() and id.isalnum() else None


def digest_of(key: str) -> str:
    import hashlib  # slow to import, and few programs need it

    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
