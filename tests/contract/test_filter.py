"""A filter finds the same jobs on every store, newest first, and looks through no more than it says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from holdfast.errors import JobNotFound, RowLocked
from holdfast.model.filter import parse
from holdfast.model.job import Changed
from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error
from holdfast.settings import Settings
from holdfast.store import reads as find
from holdfast.store.base import Store
from holdfast.tasks.options import changes
from tests.contract.places import at_once, raw
from tests.factories import BOOM, HOUR, MINUTE, Clock, a_queued_job, a_running_job, claim, new_job, ref


def found(store: Store, text: str) -> list[str]:
    return [job.id for job in store.reads.jobs(parse(text))]


def a_failed_job(store: Store, error: Error = BOOM, **options: object) -> str:
    held = a_running_job(store, **options)  # type: ignore[arg-type]
    store.attempts.fail(ref(held), error)
    return str(held.id)


def test_each_qualifier_finds_what_it_names(store: Store, clock: Clock) -> None:
    audit = a_queued_job(store, task="audit", queue="mail", tags=("x", "y"), key="k1", args=b'{"user_id":42}')
    assert claim(store, tasks=("audit",), worker="box~1").jobs
    text = a_queued_job(store, task="scan", queue="news", tags=("x",), args=b'{"user_id":"42","user":{"plan":"a b"}}')
    assert found(store, "") == [text, audit]
    for words, ids in {
        "task:audit": [audit],
        "queue:mail,news": [text, audit],
        "queue:mail task:scan": [],
        "tag:x": [text, audit],
        "tag:x tag:y": [audit],
        "key:k1": [audit],
        "key:k": [],
        "worker:box~1": [audit],
        "worker:box": [audit],
        "worker:bo": [],
        f"id:{audit},{text}": [text, audit],
        f"id:{audit},999 queue:news": [],
        "args.user_id:42": [text, audit],
        "args.user_id:4": [],
        'args.user.plan:"a b" tag:x': [text],
        "args.user_id:42 args.user.plan:a": [],
        "args.other:null": [],
        "state:running": [audit],
        "state:queued,running": [text, audit],
    }.items():
        assert found(store, words) == ids, words
    with pytest.raises(JobNotFound):
        found(store, "id:x")


def test_arguments_are_compared_as_json(store: Store) -> None:
    ids = [
        a_queued_job(store, args=args)
        for args in (b'{"a":true}', b'{"a":"true"}', b'{"a":null}', '{"a":"ä\\"ß"}'.encode())
    ]
    assert found(store, "args.a:true") == [ids[1], ids[0]]
    assert found(store, "args.a:null") == [ids[2]]
    assert found(store, 'args.a:"ä\\"ß"') == [ids[3]]
    assert found(store, "args.a.b:1") == []


def test_scheduled_and_retrying_are_states_to_ask_for(store: Store, clock: Clock) -> None:
    held = a_running_job(store, max_attempts=2)
    store.attempts.reschedule(ref(held), HOUR, BOOM)
    ahead = a_queued_job(store, delay=HOUR)
    due = a_queued_job(store)
    assert found(store, "state:scheduled") == [ahead]
    assert found(store, "state:retrying") == [str(held.id)]
    assert found(store, "state:scheduled,retrying") == [ahead, str(held.id)]
    assert found(store, "state:queued") == [due, ahead, str(held.id)]
    clock.advance(2 * HOUR)
    assert found(store, "state:scheduled,retrying") == []


def test_errors_match_by_code_or_text_whatever_the_case(store: Store) -> None:
    slow = a_failed_job(store, Error("Timeout", "no answer in 5 s", None))
    full = a_failed_job(store, Error("OSError", "100% of disk_a is full", None))
    assert found(store, "error:timeout") == [slow]
    assert found(store, "error:ANSWER") == [slow]
    assert found(store, 'error:"100% of disk_a"') == [full]
    assert found(store, "error:disk-a") == found(store, "error:100_") == [], "no wildcards"
    held = a_running_job(store)
    store.attempts.reschedule(ref(held), 0, Error("Timeout", "at first", None))
    assert found(store, "error:timeout") == [str(held.id), slow]
    [held] = claim(store).jobs
    store.attempts.succeed(ref(held))
    assert found(store, "error:timeout") == [slow], "what succeeded in the end has no error"


def test_since_is_when_a_job_last_moved(store: Store, clock: Clock) -> None:
    old = a_queued_job(store)
    clock.advance(HOUR)
    started = clock.now
    assert claim(store).jobs
    clock.advance(HOUR)
    new = a_queued_job(store)
    clock.advance(MINUTE)
    assert found(store, "since:30m") == [new]
    assert found(store, "since:90m") == [new, old]
    assert found(store, f"since:{(started + timedelta(seconds=1)).isoformat()}") == [new]
    assert found(store, f"since:{started.isoformat()}") == [new, old]


def test_pages_go_on_where_the_last_one_ended(store: Store) -> None:
    ids = [a_queued_job(store, queue="ab"[n % 2]) for n in range(10)]
    first = store.reads.jobs(parse("queue:b"), limit=3)
    second = store.reads.jobs(parse("queue:b"), before=first.next, limit=3)
    assert [job.id for job in first + second] == ids[::-1][::2]
    assert (first.cut, second.cut, second.next) == (False, False, None)


def test_a_page_looks_through_a_bounded_number_of_ids_and_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "STEP", 3)
    ids = [a_queued_job(store, queue="rare" if n == 1 else "common") for n in range(12)]
    page = store.reads.jobs(parse("queue:rare"), window=6)
    assert (page, page.cut) == ([], True)
    assert page.next == ids[6]
    rest = store.reads.jobs(parse("queue:rare"), before=page.next, window=6)
    assert [job.id for job in rest] == [ids[1]]
    assert [job.id for job in store.reads.jobs()] == ids[::-1], "what nothing narrows is bounded by its limit"
    assert store.operator.bulk("pause", parse("queue:rare")) == Changed(1, 0), "who acts looks through all"


def test_gaps_between_ids_cost_nothing(store: Store, settings: Settings) -> None:
    """One step finds the newest job, however far its id lies ahead, and the next one the old job."""
    old = a_queued_job(store, queue="mail")
    newer = a_queued_job(store)
    with raw(settings) as sql:
        sql("update {jobs} set id = 9000000000 where id = ?", int(newer))
    page = store.reads.jobs(parse("queue:default"), window=find.STEP)
    assert [job.id for job in page] == ["9000000000"]
    page = store.reads.jobs(parse("queue:mail"), window=find.STEP)
    assert [job.id for job in store.reads.jobs(parse("queue:mail"), before=page.next, window=find.STEP)] == [old]


def test_what_runs_or_failed_is_found_behind_any_backlog(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = a_failed_job(store)
    running = a_running_job(store)
    list(store.enqueue_many(new_job() for _ in range(50)))
    monkeypatch.setattr(find, "STEP", 5)
    pages = {
        filter: store.reads.jobs(parse(filter), window=10)
        for filter in ("state:failed", "state:running task:greet", "state:running queue:none", "state:queued,running")
    }
    assert [[job.id for job in page] for page in list(pages.values())[:3]] == [[failed], [str(running.id)], []]
    assert pages["state:queued,running"].cut


def test_more_failures_than_a_page_looks_through_are_walked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "STEP", 2)
    monkeypatch.setattr(find, "INDEXED", 4)
    ids = [a_failed_job(store) for _ in range(7)]
    page = store.reads.jobs(parse("state:failed"), window=4)
    assert ([job.id for job in page], page.cut) == (ids[:2:-1], True)
    assert store.operator.bulk("retry", parse("state:failed")) == Changed(7, 0)


def test_a_count_is_exact_beyond_any_window(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [a_failed_job(store) for _ in range(7)]
    running = a_running_job(store, queue="rush")
    list(store.enqueue_many(new_job(queue="mail") for _ in range(20)))
    monkeypatch.setattr(find, "STEP", 3)
    assert store.reads.count(parse("")) == 28
    assert store.reads.count(parse("queue:mail")) == 20
    assert store.reads.count(parse("state:failed")) == 7, "more of them than are found by their index"
    assert store.reads.count(parse("state:running")) == 1
    assert store.reads.count(parse("state:running queue:mail")) == 0
    ids = ",".join([failed[0], *failed, str(running.id), "4711"])
    assert store.reads.count(parse(f"id:{ids}")) == 8, "each once"


def test_each_verb_acts_on_all_the_filter_means_and_counts_the_rest(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "CHUNK", 2)
    failed = [a_failed_job(store) for _ in range(5)]
    other = a_queued_job(store, queue="other")
    told: list[Changed] = []
    assert store.operator.bulk("retry", parse("queue:default"), told=told.append) == Changed(5, 0)
    assert told == [Changed(2, 0), Changed(4, 0), Changed(5, 0)]
    assert store.operator.bulk("retry", parse("queue:default,other")) == Changed(0, 6)
    assert store.operator.bulk("pause", parse("queue:default")) == Changed(5, 0)
    assert store.operator.bulk("resume", parse("")) == Changed(5, 1)
    given = changes(priority=7, tags=["t"])
    assert store.operator.bulk("change", parse("queue:other"), **given) == Changed(1, 0)
    assert (store.reads.get(other).priority, store.reads.get(other).tags) == (7, ("t",))
    assert store.operator.bulk("cancel", parse(f"id:{failed[0]},{other}"), reason="enough") == Changed(2, 0)
    assert store.reads.get(other).error_message == "enough"
    assert store.operator.bulk("delete", parse(""), unfinished=False) == Changed(2, 4), "unfinished jobs stay"
    assert store.reads.attempts(failed[0]) == []
    assert {job.state for job in store.reads.jobs()} == {State.QUEUED}


def test_bulk_verbs_ask_what_runs(store: Store) -> None:
    held = a_running_job(store)
    assert store.operator.bulk("cancel", parse("state:running"), reason="stop") == Changed(0, 0, 1)
    assert [(request.id, request.cancel) for request in store.attempts.asked()] == [(held.id, True)]


@pytest.mark.parametrize("engine", ["postgres"])  # SQLite has one lock, for all
def test_one_locked_job_holds_no_others_up(store: Store, settings: Settings) -> None:
    ids = [a_queued_job(store) for _ in range(4)]
    with psycopg.connect(settings.url) as other:
        other.execute(f'select 1 from "{settings.schema}".jobs where id = {ids[2]} for update'.encode())
        with pytest.raises(RowLocked, match="HF3004"):
            store.operator.bulk("pause", parse("state:queued"))
    assert found(store, "state:paused") == [ids[3], ids[1], ids[0]]
    assert store.operator.bulk("pause", parse("state:queued")) == Changed(1, 0)


def test_many_bulk_verbs_at_once_change_each_job_once(store: Store, stores: Callable[..., Store], clock: Clock) -> None:
    list(store.enqueue_many(new_job() for _ in range(300)))
    own = [stores(clock=clock) for _ in range(4)]
    done = at_once(4, lambda n: own[n].operator.bulk("pause", parse("state:queued")))
    assert sum(one.changed for one in done) == 300
    assert found(store, "state:queued") == []
