"""Who did what: one row for each call of an operator's verb, written with what it did."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import Refused, StoreError
from holdfast.model.audit import AuditRecord
from holdfast.model.filter import parse
from holdfast.model.job import Changed
from holdfast.model.lifecycle import State
from holdfast.settings import Settings
from holdfast.store import reads
from holdfast.store.base import Store
from holdfast.store.reads import CHUNK
from tests.contract.places import at_once, raw
from tests.factories import BOOM, HOUR, Clock, a_queued_job, a_running_job, new_job, ref


def counts(record: AuditRecord) -> tuple[int, int, int]:
    return record.changed, record.asked, record.refused


def test_a_call_on_one_job_is_recorded_with_who_and_why(store: Store, clock: Clock) -> None:
    id = a_queued_job(store)
    store.operator.pause(id, "until the backup is done", "ops")
    [record] = store.audit.all()
    assert record == AuditRecord(
        id=record.id, at=clock.now, by="ops", verb="pause", what=f"id:{id}", parameters={},
        reason="until the backup is done", changed=1, asked=0, refused=0, ended_at=clock.now,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "state", "options", "parameters"),
    [
        ("pause", "queued", {}, {}),
        ("resume", "paused", {}, {}),
        ("cancel", "queued", {}, {}),
        ("retry", "failed", {}, {}),
        ("change", "queued", {"priority": 0, "tags": ("a", "b")}, {"priority": 0, "tags": ["a", "b"]}),
        ("delete", "failed", {"unfinished": False}, {}),
    ],
)
def test_every_verb_on_a_job_is_recorded(
    store: Store, verb: str, state: str, options: dict[str, Any], parameters: dict[str, Any]
) -> None:
    if state == "failed":
        held = a_running_job(store)
        store.attempts.fail(ref(held), BOOM)
        id = str(held.id)
    else:
        id = a_queued_job(store)
        if state == "paused":
            store.operator.pause(id)
    getattr(store.operator, verb)(id, "because", "ops", **options)
    record = store.audit.all(limit=1)[0]
    assert (record.verb, record.what, record.by, record.reason) == (verb, f"id:{id}", "ops", "because")
    assert (record.parameters, counts(record)) == (parameters, (1, 0, 0))
    assert store.audit.of_job(id)[0] == record, "also of a job that is gone"


def test_a_request_and_a_refusal_are_told_apart_from_a_change(store: Store) -> None:
    held = a_running_job(store)
    store.operator.cancel(str(held.id), by="ops")
    with pytest.raises(Refused):
        store.operator.retry(str(held.id), by="ops")
    assert [(record.verb, *counts(record)) for record in store.audit.all()] == [
        ("retry", 0, 0, 1), ("cancel", 0, 1, 0),
    ]  # fmt: skip


def test_what_can_not_be_recorded_is_not_done(store: Store, settings: Settings) -> None:
    id = a_queued_job(store)
    with raw(settings) as sql:
        sql("alter table {audit} rename column verb to verbs")
    with pytest.raises(StoreError):
        store.operator.pause(id)
    with pytest.raises(StoreError):
        store.pauses.add("queue", "default")
    with pytest.raises(StoreError):
        store.operator.bulk("pause", parse("state:queued"))
    assert store.reads.get(id).state is State.QUEUED
    assert store.pauses.all() == []


def test_pauses_are_recorded(store: Store, clock: Clock) -> None:
    store.pauses.add("queue", "mail", by="ops", reason="provider down", delay=60.0)
    store.pauses.add("filter", "args.n:1", by="ops", until=clock.now + timedelta(seconds=5))
    assert store.pauses.drop("queue", "mail", by="dev", reason="it is up")
    assert not store.pauses.drop("task", "greet", by="dev")
    assert [
        (record.verb, record.what, record.by, record.reason, record.parameters, counts(record))
        for record in reversed(store.audit.all())
    ] == [
        ("pause_queue", "mail", "ops", "provider down", {"delay": 60.0}, (1, 0, 0)),
        ("pause_matching", "args.n:1", "ops", None, {"until": "2030-01-01T00:00:05Z"}, (1, 0, 0)),
        ("resume_queue", "mail", "dev", "it is up", {}, (1, 0, 0)),
        ("resume_task", "greet", "dev", None, {}, (0, 0, 1)),
    ]


def test_a_bulk_verb_is_one_row(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads, "CHUNK", 2)
    for _ in range(5):
        a_queued_job(store)
    held = a_running_job(store, queue="other")
    assert store.operator.bulk("cancel", parse("task:greet"), "ordered twice", "ops") == Changed(5, 0, 1)
    [record] = store.audit.all()
    assert (record.verb, record.what, record.by, record.reason) == ("cancel", "task:greet", "ops", "ordered twice")
    assert counts(record) == (5, 1, 0)
    assert record.ended_at is not None
    assert store.audit.of_job(str(held.id)) == [], "it is not about one job"
    store.operator.bulk("retry", parse("state:failed,cancelled queue:none since:1h"), by="ops")
    record = store.audit.all(limit=1)[0]
    assert (record.what, counts(record)) == ("state:failed,cancelled queue:none since:3600s", (0, 0, 0))
    assert record.ended_at is not None


KILLED = """
import os, signal, sys
from holdfast.model.filter import parse
from holdfast.settings import Settings
from holdfast.store import open_store
store = open_store(Settings(url=sys.argv[1], schema=sys.argv[2]))
store.operator.bulk("pause", parse("state:queued"), by="ops", told=lambda done: os.kill(os.getpid(), signal.SIGKILL))
"""


def test_a_bulk_verb_whose_process_was_killed_is_unfinished_and_says_how_far_it_got(
    store: Store, settings: Settings
) -> None:
    list(store.enqueue_many(new_job() for _ in range(CHUNK + 1)))
    killed = subprocess.run([sys.executable, "-c", KILLED, settings.url, settings.schema], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    [record] = store.audit.all()
    assert (record.verb, record.by, counts(record), record.ended_at) == ("pause", "ops", (CHUNK, 0, 0), None)
    assert len(store.reads.jobs(state="paused", limit=CHUNK + 1)) == CHUNK


def test_two_bulk_verbs_at_once_have_a_row_each_with_their_own_counts(
    store: Store, stores: Callable[..., Store], clock: Clock
) -> None:
    list(store.enqueue_many(new_job() for _ in range(300)))
    own = [stores(clock=clock) for _ in range(3)]
    done = at_once(3, lambda n: own[n].operator.bulk("pause", parse("state:queued"), by=str(n)))
    recorded = {record.by: record for record in store.audit.all()}
    assert [recorded[str(n)].changed for n in range(3)] == [one.changed for one in done]
    assert sum(record.changed for record in recorded.values()) == 300
    assert all(record.ended_at for record in recorded.values())


def test_records_come_in_pages_newest_first(store: Store) -> None:
    id = a_queued_job(store)
    for _ in range(3):
        store.operator.pause(id)
        store.operator.resume(id)
    first = store.audit.all(limit=4)
    rest = store.audit.all(before=first[-1].id, limit=4)
    assert [record.verb for record in first + rest] == ["resume", "pause"] * 3
    assert len({record.id for record in first + rest}) == 6


def test_records_are_kept_for_their_time_and_go_in_bounded_steps(store: Store, clock: Clock) -> None:
    id = a_queued_job(store)
    for _ in range(3):
        store.operator.change(id, by="old", priority=1)
    clock.advance(HOUR)
    store.operator.change(id, by="new", priority=2)
    clock.advance(HOUR / 2)
    assert store.audit.purge(kept=2 * HOUR) == 0
    assert [store.audit.purge(kept=HOUR, limit=2) for _ in range(3)] == [2, 1, 0]
    assert [record.by for record in store.audit.all()] == ["new"]


def test_a_long_filter_is_cut_short_in_the_record(store: Store) -> None:
    ids = ",".join(str(n) for n in range(1, 2000))
    store.operator.bulk("retry", parse(f"id:{ids}"))
    [record] = store.audit.all()
    assert record.what == f"id:{ids}"[:1999] + "…"
