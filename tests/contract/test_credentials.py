"""The secret that signs job tokens, and API keys."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.store.base import Store
from tests.contract.places import at_once
from tests.factories import Clock


def test_whoever_comes_first_makes_the_secret_and_all_others_use_it(store: Store, stores: Callable[..., Store]) -> None:
    others = [stores() for _ in range(6)]
    found = at_once(6, lambda n: others[n].credentials.signing_secret())
    assert {*found, store.credentials.signing_secret()} == {found[0]}
    assert len(found[0]) == 32


def test_one_of_several_that_take_a_name_at_once_gets_it(store: Store, stores: Callable[..., Store]) -> None:
    others = [stores() for _ in range(4)]
    made = at_once(4, lambda n: others[n].credentials.add_key("ci", "viewer", by=f"w{n}"))
    [key] = [text for text in made if text is not None]
    found = store.credentials.key(key)
    assert found is not None
    assert found.role == "viewer"
    assert [call.verb for call in store.audit.all()] == ["create_api_key"], "what was not done is not recorded"


def test_a_key_is_found_by_its_text_alone(store: Store, clock: Clock) -> None:
    one, other = (store.credentials.add_key(name, "operator", by="ops") for name in ("one", "other"))
    assert one is not None
    assert other is not None
    found = store.credentials.key(one)
    assert found is not None
    assert (found.name, found.created_at, found.created_by) == ("one", clock(), "ops")
    mixed = one[: len("hfk_") + 12] + other[len("hfk_") + 12 :]
    assert store.credentials.key(mixed) is None
    assert store.credentials.revoke_key("one")
    assert store.credentials.key(one) is None
    assert [key.name for key in store.credentials.all_keys()] == ["other"]
