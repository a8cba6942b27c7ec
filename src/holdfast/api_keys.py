"""API keys for the HTTP API: create, list, revoke. Each function is a method of `Holdfast`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import BadArguments
from holdfast.model.access import ROLES, ApiKey, Role
from holdfast.tasks.options import by_of, looked_for, name_of, reason_of

if TYPE_CHECKING:
    from holdfast.app import Holdfast

MAX_NAME = 100  # characters: the audit names the key and says that it is one


def create_api_key(
    app: Holdfast, name: str, role: Role, *, reason: str | None = None, by: str | None = None
) -> str:  # fmt: skip
    """A new API key with a role: "submitter", "viewer", "operator" or "admin". It is returned once; the database keeps
    a hash of it."""
    if role not in ROLES:
        raise BadArguments(f"create_api_key: role is one of {', '.join(ROLES)}, not {role!r:.80}")
    name = name_of("create_api_key: name", name, limit=MAX_NAME)
    made = app.store.credentials.add_key(
        name, role, reason_of("create_api_key", reason), by_of("create_api_key", by)
    )  # fmt: skip
    if made is None:
        raise BadArguments(
            f"the name {name!r} is taken by another API key: revoke that one first, or choose another name"
        )
    return made


def api_keys(app: Holdfast) -> list[ApiKey]:
    """The API keys, by name, without their secrets."""
    return app.store.credentials.all_keys()


def revoke_api_key(app: Holdfast, name: str, *, reason: str | None = None, by: str | None = None) -> bool:
    """Delete an API key: from the next request on it opens nothing. False: there is none of this name."""
    looked_for("revoke_api_key: name", name)
    return app.store.credentials.revoke_key(
        name, reason_of("revoke_api_key", reason), by_of("revoke_api_key", by)
    )  # fmt: skip
