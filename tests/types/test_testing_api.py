"""What a type checker sees of secrets and of the test kit; as in test_public_api.py, checking is the test."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type

from holdfast import Holdfast, Job, Secret, testing
from holdfast.testing import Kit, Ran

hf = Holdfast("sqlite:///unused.db")


@hf.task
def pay(card: Secret[str], amount: int, pin: Secret[int] | None = None) -> str:
    assert_type(card, str)
    return card


if TYPE_CHECKING:
    assert_type(pay.enqueue("4111", 5), Job[str])
    pay.enqueue(4111, 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    with testing.store(hf, inline=True, lease=5.0) as kit:
        assert_type(kit, Kit)
        assert_type(kit.run_due(expect="succeeded"), list[Ran])
        assert_type(kit.assert_enqueued(pay.using(delay=5), card="4111"), Job[Any])
        assert_type(kit.jobs(pay), list[Job[Any]])
        kit.advance("3h")
        kit.advance(timedelta(hours=3))
        kit.advance(5)
        kit.advance(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with kit.failing(pay, ConnectionError("down"), times=2), kit.inline():
            pass


def test_a_secret_is_a_plain_value() -> None:
    assert pay("4111", 5) == "4111"
