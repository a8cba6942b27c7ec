"""On PostgreSQL, under load from both sides: in every snapshot that anybody can take, a row and its job agree, or the
difference is known: in the inbox, owed, or a request that stands."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import psycopg
import pytest

from holdfast.errors import StoreError
from holdfast.model.job import ClaimedJob
from holdfast.model.lifecycle import State
from holdfast.store.base import Store
from tests.adopt.postgres import STATES, Side, adopt, claim, finish, inbox, jobs, settle, store_schema
from tests.factories import BOOM
from tests.waiting import wait_until

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

SECONDS = 4.0
WORDS = ", ".join(f"('{state}', '{word}')" for state, word in STATES.items())
# Rows and jobs that disagree, and nothing tells of it.
UNKNOWN = f"""
with words (state, word) as (values {WORDS})
select u.id, u.status, j.state, j.worker from {{s}}.audits u
  full join (select * from {{ours}}.jobs where source = 'audits') j on j.source_id = u.id::text
 where (j.id is null and u.status in ('pending', 'processing', 'paused')
        or u.id is null and j.state in ('queued', 'running', 'paused')
        or u.status <> (select word from words w where w.state = j.state)
           and (u.status <> 'draft' or j.state in ('queued', 'running', 'paused')))  -- else it is none of ours
   and not coalesce(j.owed, false)
   and not coalesce(j.state = 'running' and (j.cancel_requested or j.pause_requested), false)
   and not exists (select 1 from {{ours}}.inbox i where i.source_id in (coalesce(u.id::text, j.source_id), '*'))
"""


class Load:
    """Threads that do something over and over until the time is up; what they raise fails the test."""

    def __init__(self) -> None:
        self.until = time.monotonic() + SECONDS
        self.raised: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def run(self, act: Callable[[], object]) -> None:
        def loop() -> None:
            try:
                while time.monotonic() < self.until:
                    act()
            except (psycopg.Error, StoreError, AssertionError) as error:
                self.raised.append(error)

        thread = threading.Thread(target=loop)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


def test_in_every_snapshot_each_difference_is_known(kept: Store, side: Side) -> None:
    adopt(kept, side, *[f"('{n}', 'pending')" for n in range(30)])
    chance = random.Random(1)
    unknown: list[object] = []
    snapshots: Counter[str] = Counter()
    load = Load()

    def foreign() -> None:
        with side.connect() as other, other.transaction():
            ids = [chance.randrange(1, 80) for _ in range(chance.choice([1, 1, 5]))]
            match chance.randrange(6):
                case 0:
                    side.sql("insert into {s}.audits (url) values ('new')", on=other)
                case 1:
                    side.sql("delete from {s}.audits where id = any(%s)", ids[:1], on=other)
                case 2:
                    side.sql("select * from {s}.audits where id = any(%s) for update skip locked", ids, on=other)
                    time.sleep(chance.random() / 20)
                case _:
                    word = chance.choice(["pending", "processing", "paused", "cancelled", "completed", "draft"])
                    text = (
                        "update {s}.audits set status = %s, heartbeat = now() where id in "
                        "(select id from {s}.audits where id = any(%s) for update skip locked)"
                    )
                    side.sql(text, word, ids, on=other)

    def work() -> None:
        kept.adopted.settle("audits", 20)
        held = claim(kept, 5)
        for one in held:
            end(kept, one, chance)

    def watch() -> None:
        text = UNKNOWN.replace("{ours}", f'"{store_schema(kept)}"')
        unknown.extend(side.sql(text))
        snapshots["taken"] += 1

    for act in (foreign, foreign, work, work, watch):
        load.run(act)
    load.join()
    assert load.raised == []
    assert unknown == []
    assert snapshots["taken"] > 20

    # And when everybody is gone, all of it comes in step.
    for one in claim(kept, 100):
        finish(kept, one)
    wait_until(lambda: not left_over(kept))
    assert side.sql(UNKNOWN.replace("{ours}", f'"{store_schema(kept)}"')) == []


def end(store: Store, held: ClaimedJob, chance: random.Random) -> None:
    match chance.randrange(4):
        case 0 if held.attempt < held.max_attempts:
            finish(store, held, "reschedule", error=BOOM)
        case 1:
            finish(store, held, "fail", error=BOOM)
        case 2:
            finish(store, held, "release")
        case _:
            finish(store, held, result={"score": 1})


def left_over(store: Store) -> bool:
    settle(store)
    for one in claim(store, 100):
        finish(store, one)
    ours = (one for one in jobs(store) if not (one.worker or "").startswith("foreign:"))
    return inbox(store) > 0 or any(one.state in (State.QUEUED, State.RUNNING) for one in ours)
