"""Every verb of a Store, by a login of each role: allowed, or refused in one sentence and nothing changed."""

from __future__ import annotations

import pytest

from holdfast.errors import RightMissing
from holdfast.settings import Settings
from holdfast.store.base import Store
from holdfast.store.postgres.roles import ROLES
from tests.roles.matrix import MAY, NO_VERBS, PARTS, SCENE, VERBS
from tests.roles.places import Roles

Logins = dict[str, tuple[Store, Settings]]


@pytest.fixture(scope="module")
def logins(kept_roles: Roles) -> Logins:
    found = {role: kept_roles.login(role, role) for role in ROLES}
    return {role: (kept_roles.store(settings), settings) for role, settings in found.items()}


def test_every_verb_has_its_place() -> None:
    verbs = {
        f"{part}.{name}" if part else name
        for part, kind in PARTS.items()
        for name in dir(kind)
        if not name.startswith("_")
    }
    assert {name.partition(" ")[0] for name in VERBS} == verbs - NO_VERBS
    assert verbs >= NO_VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_for_those_roles_that_it_should_be_for(kept_roles: Roles, logins: Logins, verb: str) -> None:
    what, act = VERBS[verb]
    kept_roles.sql(SCENE)
    before = kept_roles.contents()
    for role in set(ROLES) - {*MAY[what]}:
        with pytest.raises(RightMissing) as refused:
            act(*logins[role])
        assert refused.value.number == "HF3006", role
        assert "holdfast sql roles" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert kept_roles.contents() == before, role
    for role in MAY[what]:
        kept_roles.sql(SCENE)
        act(*logins[role])
