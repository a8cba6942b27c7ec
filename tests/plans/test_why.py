"""What people ask of a crowded table (why, the doctor's look at what waits) reads a bounded part of it, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast.settings import Settings
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.sqlite.codec import stored
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.why import why, why_queue
from tests.contract.test_workers import register
from tests.factories import Clock
from tests.plans import test_sqlite as sqlite
from tests.plans.crowd import PAUSED_QUEUE, PAUSED_TASK, QUEUE, TASK
from tests.plans.postgres import fill
from tests.plans.test_postgres import Case, crowd_the_front, unbounded
from tests.servers import own_postgres

MOST = 200
SCALE = 60  # times 1,600 jobs


def cases(store: PostgresStore, id: int) -> list[Case]:
    tasks, queues = [TASK, PAUSED_TASK], [QUEUE, PAUSED_QUEUE]
    place: dict[str, Any] = {"id": id, "priority": -1, "due_at": "2100-01-01", "most": MOST, "tasks": tasks}
    statements = store.db.statements
    return [
        Case("why", statements["why"], {"id": id}, rows=50, pages=200),
        Case("ahead anywhere", statements["ahead"], {**place, "queues": None}, rows=4 * MOST + 200, pages=2500),
        Case("ahead", statements["ahead"], {**place, "queues": queues}, rows=4 * MOST + 200, pages=2500),
        Case("pace", statements["pace"], {"id": id, "tasks": tasks, "most": MOST, "minus_span": -300.0}, rows=MOST + 1),
        Case(
            "waiting", statements["waiting"], {"tasks": [], "queues": None, "lanes": 100, "most": MOST},
            rows=20 * MOST, pages=6000,
        ),
        *(
            Case(
                f"why_queue {queue}", statements["why_queue"], {"queue": queue, "most": MOST, "judged": judged},
                4 * MOST, 2000,
            )
            for queue in (QUEUE, PAUSED_QUEUE)
            for judged in (False, True)
        ),
    ]  # fmt: skip


def test_why_reads_a_bounded_part_of_a_crowded_table_on_postgres() -> None:
    with own_postgres(18, autovacuum="off", shared_buffers="256MB") as server:
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        register(store, tasks=[TASK, PAUSED_TASK])
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("set jit = off")
            fill(connection, store, SCALE)
            [(id,)] = connection.execute("select max(id) from holdfast.jobs").fetchall()
            # Our sessions ask for generic plans. One for this queue alone, made without statistics, reads all of it.
            lonely = "force_custom_plan: why_queue"
            told = [told for told in unbounded(connection, cases(store, id)) if not told.startswith(lonely)]
            complaints = [f"never analysed, {one}" for one in told]
            connection.execute("analyze")
            complaints += [f"analysed, {told}" for told in unbounded(connection, cases(store, id))]
            crowd_the_front(connection, store)
            complaints += [f"out of date, {told}" for told in unbounded(connection, cases(store, id))]
            connection.execute("analyze")
            complaints += [f"busy, {told}" for told in unbounded(connection, cases(store, id))]
        store.close()
    assert not complaints, "\n".join(complaints)


def test_why_takes_a_bounded_number_of_steps_on_sqlite(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.why.POSITIONS", MOST)
    store = SqliteStore(Settings(url=f"sqlite:///{tmp_path}/jobs.db", synchronous="off"), clock=clock)
    store.schema.migrate()
    sqlite.fill(store, clock, SCALE)
    register(store, tasks=[TASK, PAUSED_TASK])
    steps = sqlite.Steps(store)
    [newest] = (row["newest"] for row in store.db.read("why", id=0))
    place: dict[str, Any] = {"tasks": [TASK, PAUSED_TASK], "queues": None, "priority": -1, "id": newest}
    acts: dict[str, tuple[int, sqlite.Act]] = {
        "why": (30_000, lambda: why(store, str(newest))),
        "ahead": (20_000, lambda: store.ahead(**place, due_at=stored(clock.now), most=MOST)),
        "waiting": (60_000, lambda: store.reads.waiting(most=MOST)),
        "why_queue": (120_000, lambda: why_queue(store, QUEUE, window=MOST)),
    }
    complaints = []
    for told in ("crowded", "busy"):
        if told == "busy":
            monkeypatch.setattr(sqlite, "BACKLOG", 20_000)
            sqlite.crowd_the_front(store, clock)
        for name, (allowed, act) in acts.items():
            spent = steps.of(act)
            assert spent, "nothing was counted"
            if spent > allowed:
                complaints.append(f"{told}: {name} takes {spent} steps, more than {allowed}")
    store.close()
    assert not complaints, "\n".join(complaints)
