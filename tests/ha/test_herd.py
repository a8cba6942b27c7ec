"""Many idle workers: what a lone job costs does not grow with them, none of them is needed, and they are quiet."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from statistics import median

import psycopg
import pytest

from holdfast.model.job import NewJob
from holdfast.model.peers import LATE
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.postgres.store import PostgresStore
from tests.ha.servers import Scene, told
from tests.servers import own_postgres
from tests.waiting import wait_until

WORKERS = 24
ROUNDS = 5
QUIET = 3.0  # seconds without anyone beginning to listen somewhere else: by then all know their place
SETTLING = 180.0  # seconds for so many workers to start on a busy machine

APP = """
import asyncio, time
from pathlib import Path
from holdfast import Holdfast

hf = Holdfast()

@hf.task
async def lone(seconds: float = 0.0) -> None:
    with open(Path(__file__).parent / "starts", "a") as ledger:
        ledger.write(f"{time.monotonic()}\\n")
    await asyncio.sleep(seconds)
"""

# What a worker sends, by words that only that statement has.
KINDS = {
    "claim": "skip locked", "drop": "delete from .*leases", "succeed": "state = 'succeeded'", "look": "barring",
    "survey": "pg_stat_get_xact|open_lane|^(BEGIN|COMMIT)", "listen": "listen", "notify": "pg_notify",
    "insert": "insert into .*jobs",
}  # fmt: skip


class Herd:
    """Idle workers, and what they and others send to the server."""

    def __init__(self, scene: Scene, db: psycopg.Connection[tuple[object, ...]], store: PostgresStore) -> None:
        self.scene = scene
        self.db = db
        self.store = store

    def sent(self) -> Counter[str]:
        """Statements so far, by kind."""
        row = self.db.execute("select pg_read_file('log')", prepare=False).fetchone()
        assert row is not None
        statements = re.split(r"^.*?LOG:  (?:statement|execute [^:]*): ", str(row[0]), flags=re.MULTILINE)[1:]
        counted: Counter[str] = Counter()
        for statement in statements:
            text = re.split(r"^\d{4}-\d\d-\d\d \S+ \S+ \[", statement, maxsplit=1, flags=re.MULTILINE)[0]
            if "pg_read_file" not in text and "pg_backend_pid" not in text:
                kinds = (kind for kind, words in KINDS.items() if re.search(words, text, re.DOTALL))
                counted["drop" if re.match("delete from .*leases", text) else next(kinds, text[:60])] += 1
        return counted

    def await_quiet(self) -> None:
        """Until each worker knows its place."""
        since, before = time.monotonic(), self.sent()["listen"]
        deadline = since + SETTLING
        while time.monotonic() < since + QUIET:
            time.sleep(0.2)
            if (now := self.sent()["listen"]) != before:
                since, before = time.monotonic(), now
            assert time.monotonic() < deadline, "they never come to rest"

    def starts(self) -> list[float]:
        ledger = self.scene.home / "starts"
        return [float(line) for line in ledger.read_text().split()] if ledger.exists() else []

    def registered(self) -> set[int]:
        return {worker.pid for worker in self.store.workers.all()}

    def first_on(self, channel: int) -> int:
        """The process that is first to look when a job is told of there."""
        ids = sorted((worker.id, worker.pid) for worker in self.store.workers.all())
        return ids[channel % len(ids)][1]

    def start_after(self, channel: int, meanwhile: Callable[[], None]) -> float:
        """Seconds until the start of a job that is told of on this channel alone, once something was done."""
        before = len(self.starts())
        meanwhile()
        with psycopg.connect(self.scene.url, options="-c holdfast.notifies=on") as quiet:
            quiet.execute("insert into holdfast.jobs (queue, task, args) values ('default', 'lone', '{}')")
        enqueued = time.monotonic()
        self.db.execute("select pg_notify(%s, 'q')", (self.store.wakeups.channels[channel],))
        wait_until(lambda: len(self.starts()) > before, "the job starts", timeout=60)
        return self.starts()[-1] - enqueued


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Herd]:
    with own_postgres() as server:
        scene = Scene(tmp_path_factory.mktemp("herd"), server.url, APP)
        scene.run("migrate")
        with (
            psycopg.connect(server.url, autocommit=True) as db,
            closing(open_store(Settings(url=server.url))) as store,
        ):
            assert isinstance(store, PostgresStore)
            db.execute("alter role current_user set log_statement = 'all'")
            db.execute("set log_statement = 'none'")
            try:
                for _ in range(WORKERS):
                    scene.start()
                listening = "select count(*) from holdfast.workers where open"
                wait_until(
                    lambda: db.execute(listening).fetchone() == (WORKERS,), "all of them listen", timeout=SETTLING
                )
                herd = Herd(scene, db, store)
                herd.await_quiet()
                yield herd
            finally:
                scene.close()


def plain(herd: Herd) -> None:
    herd.store.enqueue(NewJob(task="lone", args=b"{}"))


def keyed(herd: Herd) -> None:
    herd.store.enqueue(NewJob(task="lone", args=b"{}", key=f"{time.monotonic()}"))


def on_a_callers_transaction(herd: Herd) -> None:
    with psycopg.connect(herd.scene.url) as connection:
        herd.store.enqueue_on(connection, NewJob(task="lone", args=b"{}"))


def delayed(herd: Herd) -> None:
    herd.store.enqueue(NewJob(task="lone", args=b"{}", delay=1.0))


def by_plain_sql(herd: Herd) -> None:
    herd.db.execute("insert into holdfast.jobs (queue, task, args) values ('default', 'lone', '{}')")


def one_of_many(herd: Herd) -> None:
    list(herd.store.enqueue_many([NewJob(task="lone", args=b"{}")]))


@pytest.mark.parametrize(
    "enqueue", [plain, keyed, on_a_callers_transaction, delayed, by_plain_sql, one_of_many], ids=lambda f: f.__name__
)
def test_a_lone_job_costs_few_statements_however_many_workers_are_idle(
    herd: Herd, enqueue: Callable[[Herd], None]
) -> None:
    """Counted are claims, and what else workers send for the job; not their regular looks, which come anyway."""
    before, starts = herd.sent(), len(herd.starts())
    enqueue(herd)
    wait_until(lambda: len(herd.starts()) > starts, "the job starts")
    time.sleep(1.0)  # whoever else looks does so by then
    sent = herd.sent() - before
    told(f"one job, {enqueue.__name__}, {WORKERS} idle workers", **sent)
    assert len(herd.starts()) == starts + 1
    assert sent["claim"] + sent["succeed"] + sent["drop"] + sent["listen"] <= 8


def test_idle_workers_send_few_statements(herd: Herd) -> None:
    before, began = herd.sent(), time.monotonic()
    time.sleep(60)
    sent = herd.sent() - before
    a_minute = sent.total() / WORKERS / (time.monotonic() - began) * 60
    told(f"{WORKERS} idle workers, statements a minute each", all=round(a_minute, 2), **sent)
    assert a_minute <= 4, sent


def test_a_job_starts_soon_if_the_worker_that_should_look_first_is_frozen(herd: Herd) -> None:
    """From the commit to the handler. The median: on a busy machine a single start may take as long by itself."""
    took = []
    for channel in range(1, 1 + ROUNDS):
        frozen = herd.first_on(channel)
        try:
            took.append(herd.start_after(channel, lambda pid=frozen: os.kill(pid, signal.SIGSTOP)))  # type: ignore[misc]
        finally:
            os.kill(frozen, signal.SIGCONT)
    told("start with the first worker frozen, s", median=round(median(took), 3), longest=round(max(took), 3))
    assert median(took) >= LATE, "it was the first to look"
    assert median(took) < 0.2


def test_a_job_starts_soon_if_the_worker_that_should_look_first_was_just_killed(herd: Herd) -> None:
    took = []
    for channel in range(1, 1 + ROUNDS):
        herd.await_quiet()
        victim = herd.first_on(channel)
        took.append(herd.start_after(channel, lambda pid=victim: os.kill(pid, signal.SIGKILL)))  # type: ignore[misc]
        wait_until(lambda pid=victim: pid not in herd.registered(), "it is found dead")  # type: ignore[misc]
    told("start with the first worker just killed, s", median=round(median(took), 3), longest=round(max(took), 3))
    assert median(took) < 0.2


def test_many_jobs_at_once_wake_many_workers(herd: Herd) -> None:
    """One INSERT, so one wake-up, of more jobs than one worker has slots for: whoever is full wakes others. The jobs
    last long enough that no worker could run two after the other meanwhile."""
    herd.await_quiet()
    count, starts, lasting = 1_000, len(herd.starts()), 8
    began = time.monotonic()
    herd.db.execute(
        "insert into holdfast.jobs (queue, task, args) select 'default', 'lone', json_build_object('seconds', %s::int) "
        "from generate_series(1, %s)",
        (lasting, count),
    )
    wait_until(lambda: len(herd.starts()) >= starts + count, "all of them start", timeout=60)
    took = herd.starts()[starts + count - 1] - began
    told(f"{count} jobs by one INSERT, all started after, s", took=round(took, 2))
    assert took < lasting
