"""The primary dies under load and its standby is promoted: what was acknowledged, what was done, how long it took."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from bench.embedded import EmbeddedPostgres
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.model.job import NewJob
from holdfast.settings import Settings
from holdfast.store import open_store
from tests.ha.servers import LIVE, Standby, a_pair, a_scene, ask, both, counted, do, told
from tests.waiting import wait_until

PACE = 0.01  # seconds between two jobs of the producer
BEFORE, AFTER = 100, 200  # jobs done before the primary dies, and acknowledged after


class Producer:
    """Enqueues one job after the other, and knows which were acknowledged."""

    def __init__(self, url: str, *, max_attempts: int) -> None:
        self._url = url
        self._new = NewJob(task="pay", args=b"{}", max_attempts=max_attempts)
        self.acknowledged: list[int] = []
        self.unknown = 0
        self.errors = 0
        self.last_at = 0.0  # monotonic: when the last one was acknowledged
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with closing(open_store(Settings(url=self._url))) as store:
            while not self._stop.wait(PACE):
                try:
                    self.acknowledged.append(int(store.enqueue(self._new).id))
                    self.last_at = time.monotonic()
                except OutcomeUnknown:
                    self.unknown += 1
                except StoreUnavailable:
                    self.errors += 1

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("synchronous", [True, False], ids=["synchronous", "asynchronous"])
def test_a_failover_under_load(tmp_path: Path, synchronous: bool) -> None:
    with a_pair() as (old, new), a_scene(tmp_path, both(old, new)) as scene:
        if synchronous:
            do(old.url, "alter system set synchronous_standby_names = 'standby'", "select pg_reload_conf()")
            wait_until(lambda: ask(old.url, "select sync_state from pg_stat_replication") == "sync")
        for _ in range(2):
            scene.start()
        # A success that the standby never got is one that its worker does not know to be missing: after a lease that
        # counts as a crash.
        producer = Producer(scene.url, max_attempts=1 if synchronous else 3)
        try:
            wait_until(lambda: states(old)["succeeded"] >= BEFORE, timeout=LIVE)
            if not synchronous:
                fall_behind(new, producer)
            old.stop("immediate")
            died = time.monotonic()
            known = len(producer.acknowledged)
            new.promote()
            promoted = time.monotonic() - died
            wait_until(lambda: len(producer.acknowledged) > known, timeout=LIVE)
            producers = producer.last_at - died
            done = states(new)["succeeded"]
            wait_until(lambda: states(new)["succeeded"] > done, timeout=LIVE)
            workers = time.monotonic() - died
            wait_until(lambda: len(producer.acknowledged) >= known + AFTER, timeout=LIVE)
        finally:
            producer.stop()
        wait_until(lambda: not states(new).keys() - {"succeeded", "failed"}, timeout=LIVE)
        stored = existing(new)
        again = Counter(producer.acknowledged)
        lost = [job for job in again if job not in stored]
        recurring = [job for job, times in again.items() if times > 1]
        doubled = ask(new.url, "select count(*) - count(distinct (job, fence)) from paid")
        told(
            f"{'synchronous' if synchronous else 'asynchronous'} failover",
            acknowledged=len(producer.acknowledged), lost=len(lost) + len(recurring),
            ids_that_named_another_job=len(recurring), charged=scene.charged(new.url), doubled=doubled,
            promoted_after=f"{promoted:.1f} s", producers_back_after=f"{producers:.1f} s",
            workers_back_after=f"{workers:.1f} s",
        )  # fmt: skip
        assert doubled == 0
        assert set(states(new)) == {"succeeded"}
        assert all(worker.poll() is None for worker in scene.workers), "no worker had to be restarted"
        assert ask(new.url, "select count(distinct job) from paid") == len(stored)
        assert ask(new.url, "select count(*) from paid") == len(stored)
        if synchronous:
            assert scene.charged(new.url) == 0
            assert not lost
            assert not recurring
        else:
            assert recurring, "the reason not to use an id as an idempotency key"


def fall_behind(standby: Standby, producer: Producer) -> None:
    """Nothing more reaches the standby; meanwhile jobs are acknowledged."""
    do_there = psycopg.connect(standby.url, autocommit=True)
    with closing(do_there):
        do_there.execute("alter system set primary_conninfo = ''")
        do_there.execute("select pg_reload_conf()")
    wait_until(lambda: not ask(standby.url, "select count(*) from pg_stat_wal_receiver"))
    behind = len(producer.acknowledged) + 50
    wait_until(lambda: len(producer.acknowledged) >= behind, timeout=LIVE)


def states(server: EmbeddedPostgres) -> Counter[str]:
    return counted(server.url, "select state::text, count(*) from holdfast.jobs group by 1")


def existing(server: Standby) -> set[int]:
    with psycopg.connect(server.url) as db:
        return {id for (id,) in db.execute("select id from holdfast.jobs").fetchall()}
