"""Workers of ours are killed beside foreign workers of three kinds, in a SQLite file: no row is run by two at once, and
in every snapshot each row agrees with its job."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.model.lifecycle import State
from tests.adopt.sqlite_table import audits_in
from tests.waiting import wait_until

ENOUGH = 60  # runs of each side
KILLS = 4

OURS = """
import sys, uuid
from holdfast.settings import Settings
from holdfast.store.sqlite.store import SqliteStore
from tests.factories import claim, ref, wants
store = SqliteStore(Settings(url=f"sqlite:///{sys.argv[1]}", synchronous="off"))
me = f"ours-{uuid.uuid4()}"
while True:
    for job in store.attempts.claim(wants(3, tasks=("audits",), worker=me, lease=0.4)).jobs:
        id = job.args.split(b'"id": ')[1].split(b",")[0].decode()
        with store.user_connections.transaction() as db:
            if db.execute("select fence from holdfast_jobs where id = ?", (job.id,)).fetchone() != (job.fence,):
                continue
            db.execute("insert into runs (audit, fence, worker) values (?, ?, ?)", (id, job.fence, me))
        try:
            store.attempts.succeed(ref(job), b'{"score": 1}')
        except Exception as error:
            if "HF1303" not in str(error):
                raise
    store.rescues.rescue()
"""
FOREIGN = """
import sqlite3, sys, time, uuid
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
style, me = sys.argv[2], f"theirs-{uuid.uuid4()}"
while True:
    row = db.execute("select id, version, updated_at from audits where status = 'pending' limit 1").fetchone()
    if row is None:
        time.sleep(0.005)
        continue
    id, version, updated_at = row
    claim = "update audits set status = 'processing', processing_worker_id = ?, version = version + 1, " \\
            "last_heartbeat = strftime('%Y-%m-%d %H:%M:%f', 'now'), updated_at = random() where id = ? and "
    condition, value = {"status": ("status = ?", "pending"), "version": ("version = ?", version),
                        "updated_at": ("updated_at is ?", updated_at)}[style]
    if db.execute(claim + condition, (me, id, value)).rowcount == 0:
        continue
    db.execute("insert into runs (audit, fence, worker) values (?, ?, ?)", (id, str(uuid.uuid4()), me))
    time.sleep(0.01)  # its work
    db.execute("update audits set status = 'completed' where id = ? and processing_worker_id = ?", (id, me))
"""


def started(path: Path, code: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code, str(path), *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2])


@pytest.mark.parametrize("style", ["status", "version", "updated_at"])
def test_nothing_runs_twice_at_once_and_every_snapshot_agrees(tmp_path: Path, style: str) -> None:
    with audits_in(tmp_path) as audits:
        audits.adopt(lease=60)
        audits.sql.execute(
            "create table runs (n integer primary key, audit integer, fence text, worker text, unique (audit, fence))"
        )
        ours = [started(audits.path, OURS) for _ in range(2)]
        theirs = started(audits.path, FOREIGN, style)
        snapshots = kills = 0

        def runs_of(side: str) -> int:
            text = "select count(*) from runs where worker like ?"
            return int(audits.sql.execute(text, (f"{side}%",)).fetchone()[0])

        def done() -> bool:
            nonlocal snapshots, kills
            assert audits.mismatches() == []
            snapshots += 1
            assert theirs.poll() is None, theirs.stderr and theirs.stderr.read().decode()
            for n, process in enumerate(ours):
                assert process.poll() is None, process.stderr and process.stderr.read().decode()
                if runs_of("ours") > ENOUGH * (kills + 1) / KILLS and kills < KILLS and kills % 2 == n:
                    os.kill(process.pid, signal.SIGKILL)
                    process.communicate()
                    kills += 1
                    ours[n] = started(audits.path, OURS)
            left = audits.sql.execute("select count(*) from audits where status <> 'completed'").fetchone()[0]
            if kills == KILLS and runs_of("theirs") > ENOUGH:
                return bool(left == 0)
            for _ in range(20 - left):
                audits.insert()
            return False

        try:
            wait_until(done, timeout=90)
        finally:
            for process in (*ours, theirs):
                process.kill()
                process.communicate()
        # Only a run of a killed worker of ours may be followed by another one of the same row.
        again = audits.sql.execute("select audit, count(*) from runs group by audit having count(*) > 1").fetchall()
        lost = audits.sql.execute(
            "select count(*) from holdfast_attempts where outcome in ('lost', 'crashed')"
        ).fetchone()[0]
        assert len(again) <= lost
        states = {job[0] for job in audits.sql.execute("select state from holdfast_jobs").fetchall()}
        assert states == {State.SUCCEEDED}
        assert audits.owed() == 0


def test_a_transaction_of_ours_that_is_cut_off_leaves_row_and_job_as_they_were(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from holdfast.settings import Settings
from holdfast.store.sqlite.store import SqliteStore
store = SqliteStore(Settings(url=f"sqlite:///{sys.argv[1]}", synchronous="off"))
with store.db.transaction() as tx:
    tx.rows("cancel", ids=[1], by=None, reason=None)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    with audits_in(tmp_path) as audits:
        audits.adopt()
        id = audits.insert()
        process = started(audits.path, code)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert (audits.word(id), audits.job(id).state) == ("pending", State.QUEUED)
        assert sqlite3.connect(audits.path).execute("pragma integrity_check").fetchone() == ("ok",)
        assert len(audits.claim()) == 1
