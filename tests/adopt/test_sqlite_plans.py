"""What is done for one row of an adopted table takes no more steps beside 2,000 others than alone, and what is done for
many grows as they do: no trigger, claim, projection, beat, sweep or settle reads all of the user's table, or all jobs,
for each row. Never analysed, and analysed: SQLite plans by what it knows of a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.model.outcome import Outcome
from tests.adopt.sqlite_table import audits_in
from tests.factories import BOOM, ref
from tests.plans.test_sqlite import Steps

FEW, MANY = 50, 2000
SLACK = 1.5  # a tree of 2,000 rows is deeper than one of a few
CROWD = ("pending", "completed", "failed", "paused", "cancelled")


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
def test_one_row_takes_as_many_steps_in_a_crowd_as_alone(tmp_path: Path, analysed: bool) -> None:
    alone = for_one(tmp_path / "alone", 1, analysed)
    assert dearer(alone, for_one(tmp_path / "crowd", MANY, analysed)) == {}


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
def test_many_rows_take_their_share_of_steps(tmp_path: Path, analysed: bool) -> None:
    few = for_all(tmp_path / "few", FEW, analysed)
    many = for_all(tmp_path / "many", MANY, analysed)
    assert dearer({what: steps * MANY // FEW for what, steps in few.items()}, many) == {}


def test_a_trigger_that_reads_all_jobs_is_seen(tmp_path: Path) -> None:
    alone = for_one(tmp_path / "alone", 1, analysed=False)
    crowd = for_one(tmp_path / "crowd", MANY, analysed=False, without="holdfast_jobs_source")
    assert {"insert", "say paused", "delete"} <= dearer(alone, crowd).keys()


def dearer(before: dict[str, int], now: dict[str, int]) -> dict[str, tuple[int, int]]:
    assert before.keys() == now.keys()
    return {what: (before[what], now[what]) for what in now if now[what] > SLACK * before[what] + 200}


def for_one(directory: Path, crowd: int, analysed: bool, without: str | None = None) -> dict[str, int]:
    """Steps that are spent on one row beside a crowd, of which none is due."""
    directory.mkdir()
    with audits_in(directory) as audits:
        audits.adopt()
        rows = [(CROWD[n % len(CROWD)],) for n in range(crowd)]
        audits.sql.executemany("insert into audits (url, status, due) values ('', ?, '2999-01-01 00:00:00')", rows)
        if analysed:
            audits.sql.execute("analyze")
        if without is not None:
            audits.sql.execute(f"drop index {without}")
        store = audits.store
        store.adopted.settle("audits")  # it looks at the schema once
        theirs, ours = Steps(audits.sql), Steps(store)
        taken: dict[str, int] = {}

        def they(what: str, statement: str) -> None:
            taken[what] = theirs.of(lambda: audits.sql.execute(statement))

        def we(what: str, act: Callable[[], object]) -> None:
            taken[what] = ours.of(act)

        they("insert", "insert into audits (id, url) values (9001, '')")
        they("insert one that runs", "insert into audits (id, url, status) values (9002, '', 'processing')")
        they("heartbeat", "update audits set last_heartbeat = current_timestamp where id = 9002")
        they("say completed", "update audits set status = 'completed' where id = 9002")
        they("write another column", "update audits set url = 'b' where id = 9001")
        they("move", "update audits set due = '2020-01-01 00:00:00', urgency = 9 where id = 9001")
        they("say paused", "update audits set status = 'paused' where id = 9001")
        they("say pending", "update audits set status = 'pending' where id = 9001")
        [held] = audits.claim()
        store.attempts.release(ref(held))
        we("change", lambda: store.operator.change(str(held.id), priority=3))
        we("pause", lambda: store.operator.pause(str(held.id)))
        we("resume", lambda: store.operator.resume(str(held.id)))
        we("claim", lambda: taken.update(claimed=len(audits.claim())))
        claim = audits.claimed(9001)
        we("checkpoint", lambda: store.attempts.checkpoint(claim, b"1", 2, 3))
        they("overruled", "update audits set status = 'pending' where id = 9001")
        they("ask", "update audits set status = 'cancelled' where id = 9001")
        they("take back", "update audits set status = 'processing' where id = 9001")
        we("reschedule", lambda: store.attempts.reschedule(claim, 0, BOOM))
        audits.claim()
        we("succeed", lambda: store.attempts.succeed(audits.claimed(9001), b'{"score": 1}'))
        audits.update(9001, status="pending")
        audits.claim()
        we("fail", lambda: store.attempts.fail(audits.claimed(9001), BOOM))
        we("retry", lambda: store.operator.retry(audits.job(9001).id))
        we("cancel", lambda: store.operator.cancel(audits.job(9001).id))
        we("settle nothing", lambda: store.adopted.settle("audits"))
        audits.update(9001, status="pending")
        they("rekey", "update audits set id = 9003 where id = 9001")
        they("delete", "delete from audits where id = 9003")
        assert audits.mismatches() == []
    return taken


def for_all(directory: Path, rows: int, analysed: bool) -> dict[str, int]:
    """Steps that are spent on so many rows at once."""
    directory.mkdir()
    with audits_in(directory) as audits:
        audits.adopt()
        store = audits.store
        insert = (
            "insert into audits (url) select value from (with recursive n (value) as "
            f"(select 1 union all select value + 1 from n where value < {rows}) select value from n)"
        )
        audits.sql.execute(insert)
        if analysed:
            audits.sql.execute("analyze")
            audits.sql.execute("delete from audits")
            audits.sql.execute(insert)
        store.adopted.settle("audits")
        theirs, ours = Steps(audits.sql), Steps(store)
        taken: dict[str, int] = {}

        def they(what: str, statement: str) -> None:
            taken[what] = theirs.of(lambda: audits.sql.execute(statement))

        def we(what: str, act: Callable[[], object]) -> None:
            taken[what] = ours.of(act)

        they("move", "update audits set due = '2020-01-01 00:00:00'")
        audits.sql.execute("update holdfast_jobs set args = '{}'")
        we("claim", lambda: audits.claim(rows))
        running = [job for job in store.reads.jobs(limit=rows + 1) if job.state == "running"]
        assert len(running) == rows
        we("beat", lambda: store.adopted.beat("audits"))
        done = [Outcome("succeed", int(job.id), str(job.fence), result=b'{"score": 1}') for job in running]
        we("succeed", lambda: store.exchange(done, None))
        we("sweep", lambda: store.adopted.sweep("audits", None, rows + 1))
        they("say pending", "update audits set status = 'pending'")
        audits.sql.execute("update holdfast_jobs set owed = 1")
        we("settle", lambda: store.adopted.settle("audits", rows))
        audits.sql.execute("delete from holdfast_jobs")
        we("sweep strays", lambda: store.adopted.sweep("audits", None, rows + 1))
        they("say processing", "update audits set status = 'processing'")
        we("hear", lambda: store.adopted.beat("audits"))
        they("delete", "delete from audits")
        assert audits.mismatches() == []
    return taken
