"""A notification is a hint: whoever may connect to the database may send any, and a worker that hears it does nothing
but look for jobs that were enqueued."""

from __future__ import annotations

import json
import random
import re
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


def random_payloads(seed: int) -> list[str]:
    """Of any characters and lengths, and numbers of any size."""
    chance = random.Random(seed)
    anything = [chr(c) for c in (*range(1, 0x300), *range(0x2000, 0x2070), 0xFFFD, 0xFFFF, 0x1F4A9, 0x10FFFF)]
    texts = ["".join(chance.choices(anything, k=chance.choice((1, 10, 1000, LONGEST // 4)))) for _ in range(20)]
    numbers = [str(chance.choice((-1, 1)) * 10 ** chance.randrange(40) + chance.random()) for _ in range(10)]
    lanes = [json.dumps([text[:50], "quick", chance.randrange(-200, 200)]) for text in texts]
    return [letter + body for body in (*texts, *numbers, *lanes) for letter in ("", chance.choice("qldfrws"))]


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
    store.operator.pause(paused)
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
        for channel in (store.wakeups.channel, store.wakeups.channels[0], f"{store.wakeups.channel}:finished"):
            for body in bodies:
                payloads = [(letter + body).encode()[:LONGEST].decode(errors="ignore") for letter in letters]
                stranger.execute("select pg_notify(%s, p) from unnest(%s::text[]) p", (channel, payloads))
        for number, channel in enumerate(
            [store.wakeups.channel, *store.wakeups.channels, f"{store.wakeups.channel}:{10**18}"]
        ):
            payloads = [text.encode()[:LONGEST].decode(errors="ignore") for text in random_payloads(number)]
            stranger.execute("select pg_notify(%s, p) from unnest(%s::text[]) p", (channel, payloads))
    [id] = fleet.enqueue("quick")
    wait_until(lambda: fleet.job(id).state is State.SUCCEEDED, 10.0, "the next job, long before the next poll")
    assert [job for job in fleet.jobs() if job.id != id] == before, "no job was touched"
    assert [trace.job for trace in fleet.traces("start")] == [done, id], "nothing ran that was not due"
    log = fleet.log_of(worker)
    assert log.count("listening") == 1, "it never broke off: every connection to listen on begins with this line"
    warnings = re.findall(r"^\S+ \S+ WARNING (.{30})", log, re.MULTILINE)
    assert len(warnings) == len(set(warnings)), "each is said once"
    assert "ignored a notification that" in log
    assert "ERROR" not in log
    fleet.stop(worker)
