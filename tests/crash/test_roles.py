"""A worker that is no more than a worker to the database runs what those enqueue that may only enqueue; and those, and
who may only look, make it run or change nothing else, whatever SQL they write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.model.job import NewJob
from holdfast.model.lifecycle import State
from holdfast.store.postgres.store import PostgresStore
from tests.crash.fleet import Fleet, wait_until
from tests.roles.places import Roles, roles_of

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

SECRET = "hunter2"


@pytest.fixture
def roles(fleet: Fleet) -> Iterator[Roles]:
    with roles_of(fleet.settings) as roles:
        yield roles


def test_a_worker_runs_whatever_an_enqueuer_may_enqueue(fleet: Fleet, roles: Roles) -> None:
    fleet.door = roles.login("worker", "worker").url
    enqueuer = roles.login("enqueuer", "enqueuer")
    store = roles.store(enqueuer)
    worker = fleet.start()
    job = NewJob(task="quick", args=b'{"number": 1}')
    ids = [store.enqueue(job).id]
    first = store.enqueue(NewJob(task="nap", args=b'{"seconds": 0}', key="k", delay=600))
    again = store.enqueue(NewJob(task="nap", args=b'{"seconds": 0}', key="k", priority=7))
    assert (again.id, again.created, fleet.job(first.id).priority) == (first.id, False, 7)
    ids += [done.id for chunk in store.enqueue_many([job] * 30) for done in chunk]
    with psycopg.connect(enqueuer.url) as connection:
        ids.append(store.enqueue_on(connection, job).id)
        connection.execute(
            f"insert into \"{roles.schema}\".jobs (queue, task, args) values ('q', 'quick', '{{}}')".encode()
        )
    fleet.await_states(succeeded=33, queued=1)
    assert {fleet.job(id).result for id in ids} == {b"1"}
    assert "ERROR" not in fleet.log_of(worker)
    assert "WARNING" not in fleet.log_of(worker)
    fleet.stop(worker)


BOTH = """
update {s}.jobs set state = 'queued', ready_at = now()
update {s}.jobs set fence = gen_random_uuid()
update {s}.jobs set holds_key = null
update {s}.jobs set priority = 100
update {s}.jobs set ready_at = now() where state = 'queued'
update {s}.jobs set cancel_requested = true
update {s}.jobs set args = '{"number": 666}'
update {s}.jobs set result = '1', state = 'succeeded', finished_at = now()
delete from {s}.jobs
truncate {s}.jobs
select id from {s}.jobs for update
select id from {s}.jobs for key share
do $$begin lock table {s}.jobs; end$$
insert into {s}.jobs (id, queue, task, args) values (999, 'default', 'quick', '{}')
insert into {s}.jobs (queue, task, args, state, fence, ready_at) values ('q', 'quick', '{}', 'running', gen_random_uuid(), null)
insert into {s}.jobs (queue, task, args, fence) values ('q', 'quick', '{}', gen_random_uuid())
insert into {s}.jobs (queue, task, args, attempt) values ('q', 'quick', '{}', -5)
insert into {s}.jobs (queue, task, args, result, state, ready_at) values ('q', 'quick', '{}', '1', 'succeeded', null)
insert into {s}.jobs (queue, task, args, created_at) values ('q', 'quick', '{}', '9000-01-01')
insert into {s}.jobs (queue, task, args) values ('q', 'quick', '{}') returning args
insert into {s}.jobs (queue, task, args, key, holds_key) values ('q', 'hold', '{}', 'k', true) on conflict (task, key) where holds_key do update set priority = 100
merge into {s}.jobs j using (select 1) s on true when matched then update set priority = 100
insert into {s}.leases values (gen_random_uuid(), 'me', now() + interval '1 d', 1, '{1}')
update {s}.leases set expires_at = now() - interval '1 d'
delete from {s}.leases
insert into {s}.workers (id, name, host, pid, tasks, slots, lease, started_at, seen_at) values ('w', 'w', 'h', 1, '{quick}', 1, 20, now(), now())
update {s}.workers set seen_at = now() - interval '1 d'
delete from {s}.workers
insert into {s}.attempts (job_id, fence, life, number, outcome, ended_at) values (1, gen_random_uuid(), 1, 1, 'errored', now())
insert into {s}.steps values (1, 's', 1, 1, now(), '1')
insert into {s}.pending values (1)
insert into {s}.crons values ('quick', '* * * * *', 'UTC', 'none', 'default', 0, 3, null, now(), null, 'quick')
insert into {s}.pauses (kind, name, created_at) values ('queue', 'default', now())
delete from {s}.pauses
insert into {s}.stacks (id, job_id, fence, asked_at) values (gen_random_uuid(), 1, gen_random_uuid(), now())
update {s}.meta set oldest_code = 99
select nextval('{s}.jobs_id_seq')
select setval('{s}.jobs_id_seq', 1)
select {s}.wake()
create function {s}.mine() returns void language sql as ''
create table {s}.mine (n int)
create trigger mine before insert on {s}.jobs for each row execute function suppress_redundant_updates_trigger()
create trigger mine before insert on {s}.jobs for each row execute function {s}.wake()
create policy mine on {s}.jobs using (true)
create rule mine as on insert to {s}.jobs do instead nothing
create index mine on {s}.jobs (task)
create or replace function {s}.wake() returns trigger language plpgsql as 'begin return null; end'
alter function {s}.wake() owner to current_user
alter table {s}.jobs disable trigger all
alter table {s}.jobs owner to current_user
drop table {s}.jobs
drop trigger jobs_wake on {s}.jobs
comment on table {s}.jobs is 'mine'
set role "{schema}_worker"
set role "{schema}_owner"
set session authorization "{schema}_login_worker"
grant "{schema}_owner" to current_user
select pg_terminate_backend(pid) from pg_stat_activity where usename = '{schema}_login_worker'
select pg_cancel_backend(pid) from pg_stat_activity where usename = '{schema}_login_worker'
""".strip().splitlines()  # noqa: E501
READER = """
insert into {s}.jobs (queue, task, args) values ('default', 'quick', '{}')
select {s}.give_up_keys('{hold}', '{k}', '{infinity}', '{true}')
select {s}.raise_priorities('{hold}', '{k}', '{100}')
select {s}.retry_keys('{hold}', '{k}', '{now}', '{100}')
""".strip().splitlines()
ENQUEUER = """
grant all on {s}.jobs to current_user
select args from {s}.jobs
select result, error_message, checkpoint, fence from {s}.jobs
select * from {s}.jobs
select id from {s}.jobs where args::text like '%hunter%'
copy {s}.jobs to stdout
select * from {s}.leases
select * from {s}.attempts
select * from {s}.workers
select {s}.argument('{}', '{a}')
insert into {s}.jobs (queue, task, args) select 'q', 'quick', args from {s}.jobs
""".strip().splitlines()

# Those that are not refused, and change nothing all the same.
IN_VAIN = """
select pg_notify('holdfast:{schema}', 'q'), pg_notify('holdfast:{schema}:0', 'l["default", "quick", 0]')
select pg_notify('holdfast:{schema}:finished', 'f1'), pg_notify('holdfast:{schema}', 'r')
create temporary table jobs as select id, task, key, holds_key, state, priority, finished_at from {s}.jobs limit 0
insert into pg_temp.jobs (task, key, holds_key, state) values ('hold', 'k', true, 'failed')
set search_path = pg_temp, {s}
""".strip().splitlines()
IN_VAIN_BY_READERS = ["grant all on {s}.jobs to current_user"]  # a warning: no rights to grant
IN_VAIN_BY_ENQUEUERS = """
select {s}.give_up_keys('{hold,quick}', '{k,later}', '{infinity,infinity}', '{true,true}')
select {s}.retry_keys('{hold,quick}', '{k,later}', '{now,now}', '{100,100}')
select {s}.raise_priorities('{hold,quick}', '{k,no such}', '{100,100}')
select {s}.raise_priorities(array_agg(task), array_agg(coalesce(key, '')), array_agg(100::smallint)) from {s}.jobs where key is null
""".strip().splitlines()  # noqa: E501
REFUSED_VALUES = """
insert into {s}.jobs (queue, task, args, ready_at) values ('q', 'quick', '{}', null)
insert into {s}.jobs (queue, task, args, max_attempts) values ('q', 'quick', '{}', 0)
insert into {s}.jobs (queue, task, args, ready_at) values ('q', 'quick', '{}', 'infinity')
insert into {s}.jobs (queue, task, args, priority) values ('q', 'quick', '{}', 101)
insert into {s}.jobs (queue, task, args, key, holds_key) values ('q', 'hold', '{}', 'k', true)
""".strip().splitlines()


BEATS = {"leases": ("expires_at", "held"), "workers": ("seen_at", "open", "polling", "memory")}


def kept(roles: Roles) -> dict[str, Any]:
    """All that is kept, but what a worker that lives writes every few seconds."""
    found = roles.contents()
    for table, beats in BEATS.items():
        found[table] = [{name: row[name] for name in row if name not in beats} for row in found[table]]
    counted = [*found.pop("deltas"), *(row for row in found.pop("rollups") if row["grain"] == "total")]
    found["counted"] = Counter[tuple[str, ...]]()  # wherever it stands: the worker adds it up now and then
    for row in counted:
        found["counted"][row["queue"], row["task"], row["what"]] += row["n"]
    return found


def refusal(forger: psycopg.Connection[Any], attempt: bytes) -> str | None:
    try:
        forger.execute(attempt)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def test_forgers_run_nothing_and_change_nothing(fleet: Fleet, roles: Roles, tmp_path: Path) -> None:
    assert isinstance(fleet.store, PostgresStore)
    fleet.door = roles.login("worker", "worker").url
    logins = {role: roles.login(role, role).url for role in ("reader", "enqueuer")}
    worker = fleet.start()
    door = tmp_path / "door"
    [later] = fleet.enqueue("quick", delay=3600.0)
    running = fleet.store.enqueue(NewJob(task="hold", args=json.dumps({"until": str(door)}).encode(), key="k"))
    fleet.store.enqueue(NewJob(task="quick", args=b"{}", key="later", delay=3600.0))
    [paused] = fleet.enqueue("quick", delay=3600.0)
    fleet.store.operator.pause(paused)
    fleet.await_starts(1)
    before = kept(roles)

    def filled(text: str) -> bytes:
        return text.replace("{s}", f'"{roles.schema}"').replace("{schema}", roles.schema).encode()

    for role, url in logins.items():
        with psycopg.connect(url, autocommit=True) as forger:
            for attempt in [*IN_VAIN, *(IN_VAIN_BY_ENQUEUERS if role == "enqueuer" else IN_VAIN_BY_READERS)]:
                forger.execute(filled(attempt))
            for attempt in [*BOTH, *(READER if role == "reader" else ENQUEUER)]:
                assert refusal(forger, filled(attempt)) == "42501", (role, attempt)
            for attempt in REFUSED_VALUES if role == "enqueuer" else []:
                with pytest.raises(psycopg.errors.IntegrityError):
                    forger.execute(filled(attempt))
        assert kept(roles) == before, role
    assert [trace.job for trace in fleet.traces("start")] == [running.id], "nothing else ran"
    with psycopg.connect(logins["reader"], autocommit=True) as ear:
        for channel in (
            fleet.store.wakeups.channel,
            *fleet.store.wakeups.channels,
            f"{fleet.store.wakeups.channel}:finished",
        ):
            ear.execute(f'listen "{channel}"'.encode())
        store = roles.store(roles.login("another", "enqueuer"))
        nobodys = NewJob(task="nobodys", args=json.dumps({"password": SECRET}).encode())
        store.enqueue(nobodys)
        store.enqueue(replace(nobodys, key=SECRET))
        list(store.enqueue_many([nobodys] * 2))
        heard = [word.payload for word in ear.notifies(timeout=2.0, stop_after=3)]
    assert heard
    assert not [payload for payload in heard if SECRET in payload]
    door.touch()
    wait_until(lambda: fleet.job(running.id).state is State.SUCCEEDED)
    assert fleet.job(later).state is State.QUEUED
    fleet.stop(worker)
