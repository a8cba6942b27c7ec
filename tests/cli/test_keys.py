"""API keys on the command line."""

from __future__ import annotations

from pathlib import Path

from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.cli.shell import Shell


def test_a_key_is_printed_once_and_opens_until_it_is_revoked(kept: Store, settings: Settings, tmp_path: Path) -> None:
    shell = Shell(tmp_path, settings)
    made = shell("keys", "create", "shop", "--role", "submitter", "--by", "ops")
    key = made.stdout.strip()  # nothing else goes to stdout: scripts read it
    found = kept.credentials.key(key)
    assert found is not None
    assert (found.name, found.role) == ("shop", "submitter")
    listed = shell("keys", "list").stdout
    assert "shop" in listed
    assert key.split("_", 2)[2] not in listed
    again = shell("keys", "create", "shop", "--role", "admin", code=2)
    assert "'shop' is taken" in again.stderr
    shell("keys", "revoke", "shop", "--reason", "it leaked")
    assert kept.credentials.key(key) is None
    assert "nothing is named 'shop'" in shell("keys", "revoke", "shop", code=2).stderr
    assert "'root' is not one of" in shell("keys", "create", "x", "--role", "root", code=2).stderr
