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
    assert store.audit.all(job=id)[0] == record, "also of a job that is gone"


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
    a_running_job(store, queue="other")
    assert store.operator.bulk("cancel", parse("task:greet"), "ordered twice", "ops") == Changed(5, 0, 1)
    [record] = store.audit.all()
    assert (record.verb, record.what, record.by, record.reason) == ("cancel", "task:greet", "ops", "ordered twice")
    assert counts(record) == (5, 1, 0)
    assert record.ended_at is not None
    store.operator.bulk("retry", parse("state:failed,cancelled queue:none since:1h"), by="ops")
    record = store.audit.all(limit=1)[0]
    assert (record.what, counts(record)) == ("state:failed,cancelled queue:none since:3600s", (0, 0, 0))
    assert record.ended_at is not None


def test_a_bulk_verb_is_found_by_each_job_it_changed(
    store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "CHUNK", 4)
    held = a_running_job(store, queue="busy")
    ids = [a_queued_job(store) for _ in range(10)]
    other = a_queued_job(store, queue="other")
    store.operator.pause(ids[3], by="dev")  # so a pause of all of them changes nine
    store.operator.bulk("pause", parse("queue:default,busy"), "provider down", "ops")
    store.operator.bulk("cancel", parse(f"id:{ids[0]},{ids[9]}"), by="ops")
    verbs = {id: [record.verb for record in store.audit.all(job=id)] for id in (*ids, other, str(held.id))}
    assert verbs == {
        ids[0]: ["cancel", "pause"], ids[3]: ["pause"], ids[9]: ["cancel", "pause"], other: [],
        **{id: ["pause"] for id in (*ids[1:3], *ids[4:9], str(held.id))},
    }  # fmt: skip
    assert store.audit.all(job=ids[3])[0].by == "dev", "it was paused already"
    assert store.audit.all(job=str(held.id))[0].what == "queue:default,busy", "it was asked"
    with raw(settings) as sql:
        assert len(sql("select 1 from {audit_jobs}")) <= 4, "a row a chunk, not a job"


def test_a_deleted_job_is_still_found_in_the_audit(store: Store) -> None:
    held = a_running_job(store)
    store.attempts.fail(ref(held), BOOM)
    store.operator.bulk("delete", parse("state:failed"), by="ops", unfinished=False)
    assert [record.verb for record in store.audit.all(job=str(held.id))] == ["delete"]


def test_records_are_found_by_who_verb_target_and_time(store: Store, clock: Clock) -> None:
    id = a_queued_job(store)
    store.pauses.add("queue", "Mail_1", by="ops")
    store.operator.pause(id)  # nobody said who
    clock.advance(HOUR)
    store.operator.bulk("resume", parse("state:paused queue:mail_1,default"), by="ops")
    store.operator.change(id, by="dev", queue="mail_2")
    store.operator.cancel(id, by="dev")
    found = {
        "by ops": store.audit.all(by="ops"),
        "verb": store.audit.all(verb="pause"),
        "what": store.audit.all(what="mail_1"),
        "parameters": store.audit.all(what="MAIL_2"),
        "taken literally": store.audit.all(what="m%l"),
        "ago": store.audit.all(since=timedelta(seconds=HOUR / 2)),
        "when": store.audit.all(since=clock.now),
        "both": store.audit.all(by="ops", since=clock.now),
        "of a job": store.audit.all(job=id, by="ops"),
        "next page": store.audit.all(job=id, before=store.audit.all(job=id, limit=1)[0].id, limit=1),
    }
    assert {name: [record.verb for record in records] for name, records in found.items()} == {
        "by ops": ["resume", "pause_queue"], "verb": ["pause"], "what": ["resume", "pause_queue"],
        "parameters": ["change"], "taken literally": [], "ago": ["cancel", "change", "resume"],
        "when": ["cancel", "change", "resume"], "both": ["resume"],
        "of a job": ["resume"], "next page": ["change"],
    }  # fmt: skip


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
    [left] = store.reads.jobs(state="queued")
    assert store.audit.all(job=left.id) == []
    assert store.audit.all(job=str(int(left.id) + 1)) == [record], "of a job that it had come to"


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
    for job in store.reads.jobs(limit=300):
        [call] = store.audit.all(job=job.id)
        assert call.by == job.asked_by, "who paused it"


def test_records_come_in_pages_newest_first(store: Store) -> None:
    id = a_queued_job(store)
    for _ in range(3):
        store.operator.pause(id)
        store.operator.resume(id)
    first = store.audit.all(limit=4)
    rest = store.audit.all(before=first[-1].id, limit=4)
    assert [record.verb for record in first + rest] == ["resume", "pause"] * 3
    assert len({record.id for record in first + rest}) == 6


def test_records_are_kept_for_their_time_and_go_in_bounded_steps(
    store: Store, settings: Settings, clock: Clock
) -> None:
    id = a_queued_job(store)
    for _ in range(2):
        store.operator.change(id, by="old", priority=1)
    store.operator.bulk("pause", parse(f"id:{id}"), by="old")
    clock.advance(HOUR)
    store.operator.change(id, by="new", priority=2)
    clock.advance(HOUR / 2)
    assert store.audit.purge(kept=2 * HOUR) == 0
    assert [store.audit.purge(kept=HOUR, limit=2) for _ in range(3)] == [2, 1, 0]
    assert [record.by for record in store.audit.all()] == ["new"]
    with raw(settings) as sql:
        assert not sql("select 1 from {audit_jobs}")


def test_a_long_filter_is_cut_short_in_the_record(store: Store) -> None:
    ids = ",".join(str(n) for n in range(1, 2000))
    store.operator.bulk("retry", parse(f"id:{ids}"))
    [record] = store.audit.all()
    assert record.what == f"id:{ids}"[:1999] + "…"
