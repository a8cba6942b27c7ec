"""Job tokens: the right to see one job, or to steer it, without a login. A token carries what it grants and a signature
(HMAC), so nothing is stored for it, and a forged one is refused without a look at the database."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import msgspec

from holdfast.model.access import Scope

PREFIX = "hfj_"
LONGEST = 300  # characters
_SIGNATURE = 24  # bytes
_PURPOSE = b"holdfast job token 1\n"  # a signature made for something else with the same secret is none of ours


class Claims(msgspec.Struct, frozen=True):
    """What a token grants. `created_at` is the job's: after a restore, another job may have the same id. `expires_at`:
    in seconds since 1970, by the clock of whoever checks it; None: as long as the job is kept."""

    id: str
    created_at: datetime
    scope: Scope
    expires_at: int | None = None


def sign(secret: bytes, claims: Claims) -> str:
    micros = (claims.created_at - _EPOCH) // _MICROSECOND
    said = f"{claims.id} {micros} {claims.scope} {claims.expires_at or 0}".encode()
    return PREFIX + base64.urlsafe_b64encode(_signature(secret, said) + said).decode().rstrip("=")


def verified(secret: bytes, token: str, now: float) -> Claims | None:
    """What this token grants; None: it is forged, damaged or has expired."""
    if not token.startswith(PREFIX) or len(token) > LONGEST or not token.isascii():
        return None
    text = token.removeprefix(PREFIX)
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    said = data[_SIGNATURE:]
    if not hmac.compare_digest(data[:_SIGNATURE], _signature(secret, said)):
        return None
    id, micros, scope, expires = said.decode().split(" ")  # we wrote it
    if int(expires) and int(expires) <= now:
        return None
    return Claims(
        id, _EPOCH + int(micros) * _MICROSECOND, "control" if scope == "control" else "read", int(expires) or None
    )


_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)


def _signature(secret: bytes, said: bytes) -> bytes:
    return hmac.digest(secret, _PURPOSE + said, hashlib.sha256)[:_SIGNATURE]
