"""What is stored comes back as it was: large, deep, odd; and it hurts nobody else."""

from __future__ import annotations

import json

import pytest

from holdfast.model.lifecycle import State
from holdfast.model.outcome import MESSAGE_LIMIT, Outcome, describe
from holdfast.settings import Settings
from holdfast.store.base import Store
from tests.contract.places import raw
from tests.factories import a_running_job, claim, ref

DEEP = b"[" * 1000 + b"]" * 1000
VALUES = {
    "a megabyte": json.dumps("x" * (1024 * 1024 - 2)).encode(),
    "deep": DEEP,
    "an escaped NUL": b'"a\\u0000b"',
    "other scripts": '"Ω≈ç√ 漢字 🦀"'.encode(),
    "a lone surrogate, escaped": b'"\\ud800"',
    "a huge integer": b"9" * 4000,
    "spaces and order": b'{ "b":1 ,\n"a": 2.50}',
    "null": b"null",
    "quotes": b'"\'; drop table jobs; -- %s %(x)s :now @jobs"',
}


@pytest.mark.parametrize("name", VALUES)
def test_arguments_results_and_checkpoints_come_back_to_the_byte(store: Store, name: str) -> None:
    value = VALUES[name]
    held = a_running_job(store, args=value)
    assert held.args == value
    store.checkpoint(ref(held), value)
    store.release(ref(held))
    [held] = claim(store).jobs
    assert held.checkpoint == value
    store.succeed(ref(held), value)
    job = store.get(str(held.id))
    assert (job.args, job.checkpoint, job.result) == (value, value, value)


def test_large_and_small_results_go_in_one_trip(store: Store) -> None:
    held = [a_running_job(store) for _ in VALUES]
    done = store.exchange(
        [Outcome("succeed", job.id, job.fence, result=value) for job, value in zip(held, VALUES.values(), strict=True)],
        None,
        [job.fence for job in held],
    )
    assert done.lost == []
    assert [store.get(str(job.id)).result for job in held] == list(VALUES.values())


@pytest.mark.parametrize("text", ["NUL \x00 here", "\ud800 alone", "x" * 100_000, "", "\x1b[31mred", "line\nline"])
def test_any_error_message_can_be_kept_once_described(store: Store, text: str) -> None:
    held = a_running_job(store)
    error = describe(ValueError(text), "ValueError\x00")
    store.fail(ref(held), error)
    job = store.get(str(held.id))
    assert job.state is State.FAILED
    assert job.error_message == error.message
    assert len(error.message) <= MESSAGE_LIMIT
    assert job.error_code == "ValueError\N{SYMBOL FOR NULL}"
    [attempt] = store.attempts(str(held.id))
    assert attempt.traceback == error.traceback


def test_instants_are_kept_to_the_microsecond(store: Store, settings: Settings, engine: str) -> None:
    held = a_running_job(store, delay=0)
    job = store.get(str(held.id))
    assert job.started_at is not None
    if engine == "sqlite":
        with raw(settings) as sql:
            [(stored,)] = sql("select started_at from {jobs}")
        assert stored == "2030-01-01 00:00:00.000000", "text that sorts"
