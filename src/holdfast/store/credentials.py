"""What opens the HTTP API: the secret that signs job tokens, and API keys by their hashes. In tables of their own,
which readers of jobs have no right to."""

from __future__ import annotations

import os
from typing import Any

from holdfast.model.access import ApiKey, NewKey, Role, digest_of, id_of
from holdfast.model.job import Changed
from holdfast.store.audit import Call
from holdfast.store.columns import Row, known
from holdfast.store.engine import Database


class Credentials:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._signing: bytes | None = None

    def signing_secret(self) -> bytes:
        """Signs job tokens. Made at first use, and read once per process."""
        if self._signing is None:
            rows = self._db.read("signing_secret")
            if not rows:
                self._db.write("add_signing_secret", signing=os.urandom(32).hex())
                rows = self._db.read("signing_secret")
            self._signing = bytes.fromhex(rows[0]["signing"])
        return self._signing

    def add_key(self, name: str, role: Role, reason: str | None = None, by: str | None = None) -> str | None:
        """The new API key, which can't be read again. None: the name is taken."""
        key = NewKey()
        with self._db.transaction() as tx:
            made = tx.rows("add_api_key", id=key.id, name=name, role=role, digest=key.digest, by=by)
            if made:
                Call("create_api_key", name, by, reason, {"role": role}).record(tx, Changed(1, 0))
        return key.text if made else None

    def key(self, text: str) -> ApiKey | None:
        """The API key with this text; None: there is none."""
        import hmac  # slow to import, and only a server needs it

        id = id_of(text)
        rows = self._db.read("api_key", id=id) if id else []
        if not rows or not hmac.compare_digest(rows[0].pop("digest"), digest_of(text)):
            return None
        return self._record(rows[0])

    def all_keys(self) -> list[ApiKey]:
        return [self._record(row) for row in self._db.read("api_keys")]

    def revoke_key(self, name: str, reason: str | None = None, by: str | None = None) -> bool:
        """False: there is none of this name."""
        with self._db.transaction() as tx:
            gone = tx.rows("delete_api_key", name=name)
            if gone:
                Call("revoke_api_key", name, by, reason).record(tx, Changed(1, 0))
        return bool(gone)

    def _record(self, row: Row) -> ApiKey:
        given: dict[str, Any] = {**row, "created_at": known(self._db.codec.moment(row["created_at"]))}
        return ApiKey(**given)
