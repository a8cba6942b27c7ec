"""A notification is a hint: whoever may connect to the database may send any, and a worker that hears it does nothing
but look for jobs that were enqueued."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.model.lifecycle import State
from holdfast.store.postgres.store import PostgresStore
from tests.crash.fleet import Fleet, wait_until
from tests.servers import a_role

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

LONGEST = 7999  # bytes: the server sends no longer ones
BODIES = [
    "", " ", "?", "\n", "not json", "{}", "[]", "null", "1e999", '"', "0" * LONGEST, "[" * LONGEST,
    '["default","quick"]', '["default","quick",0,0]', '[null,null,null]', '["default","quick","0"]',
    '["default","quick",101]', '["default","quick",-32769]', f'["default","quick",{10**40}]', '["default","quick",0.5]',
    '["\\u0000","quick",0]', '["default\\u0000","quick",0]', '["\\ud800","quick",0]', '["default","no such task",0]',
    '["default","quick",0]', '["default","quick",100]', '["no such queue","quick",0]', "default", "'; select 1; --",
    json.dumps(["x" * 7900, "quick", 0]), "\N{PILE OF POO}" * (LONGEST // 4), "-1", str(2**63), "9" * 400,
]  # fmt: skip


def jobs_in_words(fleet: Fleet, ids: list[str]) -> Iterator[str]:
    """What a worker is told of a job by its claim, as somebody might write it."""
    for id in ids:
        job = fleet.job(id)
        fence = job.fence or str(uuid.uuid4())
        yield id
        yield fence
        yield json.dumps([time.time(), fence, int(id), job.queue, job.task, 0, 3, None]) + '\n{"number": 7}'
        yield json.dumps({"id": int(id), "fence": fence, "task": job.task, "queue": job.queue, "args": {}})


def test_forged_notifications_run_nothing_and_stop_nobody(fleet: Fleet) -> None:
    assert isinstance(fleet.store, PostgresStore)
    store, schema = fleet.store, fleet.settings.schema
    [later] = fleet.enqueue("quick", delay=3600.0)
    [paused] = fleet.enqueue("quick")
    store.pause(paused)
    worker = fleet.start(processes=1)
    wait_until(lambda: "listening" in fleet.log_of(worker), what="it listens")
    [done] = fleet.enqueue("quick")
    wait_until(lambda: fleet.job(done).state is State.SUCCEEDED)
    before = fleet.jobs()
    rights = (f'usage on schema "{schema}"', f'select on all tables in schema "{schema}"')
    with a_role(fleet.settings.url, *rights) as url, psycopg.connect(url, autocommit=True) as stranger:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            stranger.execute(f"insert into \"{schema}\".jobs (queue, task, args) values ('q', 't', '[]')".encode())
        bodies = [*BODIES, *jobs_in_words(fleet, [later, paused, done])]
        letters = ["", *"abcdefghijklmnopqrstuvwxyz", "\x01", "é"]
        for channel in (store.channel, store.channels[0], f"{store.channel}:finished"):
            for body in bodies:
                payloads = [(letter + body).encode()[:LONGEST].decode(errors="ignore") for letter in letters]
                stranger.execute("select pg_notify(%s, p) from unnest(%s::text[]) p", (channel, payloads))
    [id] = fleet.enqueue("quick")
    wait_until(lambda: fleet.job(id).state is State.SUCCEEDED, 10.0, "the next job, long before the next poll")
    assert [job for job in fleet.jobs() if job.id != id] == before, "no job was touched"
    assert [trace.job for trace in fleet.traces("start")] == [done, id], "nothing ran that was not due"
    log = fleet.log_of(worker)
    assert log.count("listening") == 1, "it never had to listen anew"
    assert "WARNING" not in log
    assert "ERROR" not in log
    fleet.stop(worker)
