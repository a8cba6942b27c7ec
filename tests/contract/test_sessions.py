"""How our sessions on PostgreSQL get their settings: by a statement at first, by startup options once the server itself
has answered."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.settings import Settings
from holdfast.store.postgres.connect import connect


@pytest.mark.parametrize("engine", ["postgres"])
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "a handler's"])
def test_the_first_session_and_later_ones_have_the_same_settings(settings: Settings, ours: bool) -> None:
    """And those that the URL asks for."""
    more = "options=-c%20work_mem%3D5MB&application_name=one-of-its-own"
    settings = replace(settings, url=settings.url + ("&" if "?" in settings.url else "?") + more)
    found = []
    for _ in range(3):
        with connect(settings, ours=ours) as session:
            found.append(session.execute("select name, setting from pg_settings where name <> 'port'").fetchall())
            found[-1] += session.execute("select 'notifies', current_setting('holdfast.notifies', true)").fetchall()
    assert found[0] == found[1] == found[2]
    values = dict(found[0])
    assert values["work_mem"] == "5120"
    if ours:
        assert values["default_transaction_isolation"] == "read committed"
        assert (values["lock_timeout"], values["notifies"]) == ("2000", "on")
