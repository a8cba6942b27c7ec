"""What each role may do: every verb of a Store, and every command. The tests try all of it, and the page on database
roles has the table that is made of it here."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from unittest import mock

import psycopg
from msgspec.structs import replace

from holdfast.model.alerts import Finding
from holdfast.model.cron import CronRecord, Step
from holdfast.model.filter import Filter
from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Crash, Outcome
from holdfast.settings import Settings
from holdfast.store import migrate
from holdfast.store.alerts import Alerts, Standing
from holdfast.store.attempts import Attempts
from holdfast.store.audit import Audit, Call
from holdfast.store.base import Ref, Store
from holdfast.store.credentials import Credentials
from holdfast.store.crons import Crons
from holdfast.store.engine import Database, Schema, UserConnections, Wakeups
from holdfast.store.migrate import Migration
from holdfast.store.operator_verbs import OperatorVerbs, Retention
from holdfast.store.pauses import Pauses
from holdfast.store.postgres.roles import ROLES
from holdfast.store.reads import Reads
from holdfast.store.rescues import Rescues
from holdfast.store.rollups import Rollups
from holdfast.store.stack_requests import StackRequests
from holdfast.store.workers import Workers
from tests.factories import BOOM, new_job, wants

Act = Callable[[Store, Settings], object]

# What the roles are for, and which of them may do it.
MIGRATE = "change the tables (`holdfast migrate`)"
RUN = "run jobs: claim, record outcomes, rescue, fire crons, clean up"
STEER = "steer: pause, resume, cancel, retry, change, delete, run a cron, ask for a stack"
OPEN = "serve jobs over HTTP: sign tokens, check, create and revoke API keys"
ENQUEUE = "enqueue: one job, many, with keys, on your own connection, by plain `INSERT`"
READ = "read all there is of jobs: arguments, results, errors, history, workers, pauses, audit"
ASK = "ask for versions and clock, send and hear wake-ups"
MAY: dict[str, tuple[str, ...]] = {
    MIGRATE: ("owner",),
    RUN: ("owner", "worker"),
    STEER: ("owner", "worker"),
    OPEN: ("owner", "worker"),
    ENQUEUE: ("owner", "worker", "enqueuer"),
    READ: ("owner", "worker", "reader"),
    ASK: ROLES,
}


def table() -> str:
    """As it stands on the page."""
    lines = [f"| | {' | '.join(ROLES)} |", "|---" * (1 + len(ROLES)) + "|"]
    lines += [
        f"| {what} | {' | '.join('yes' if role in may else 'no' for role in ROLES)} |" for what, may in MAY.items()
    ]
    return "\n".join(lines)


FENCE = "00000000-0000-4000-8000-000000000002"
AN_ALERT = Finding("job_age", "mail", "it waits", 1.0)
QUESTION = "00000000-0000-4000-8000-000000000009"
RUNNING = Ref(2, FENCE)
HELD = ClaimedJob(2, FENCE, "greet", "default", b"{}", 1, 3, 0, None, None, 0, None)
DUE = datetime(2026, 1, 1, tzinfo=UTC)
LATER = DUE + timedelta(days=1)
WAITING, PAUSED, SUCCEEDED, FAILED, BARRED, MEANT = "1", "3", "4", "5", "6", "7"
CRON = CronRecord(
    name="tick", task="tick", expression="0 0 * * *", timezone="UTC", catch_up="none", queue="default", priority=0,
    max_attempts=3, tags=(), next_at=DUE, now=DUE,
)  # fmt: skip

# A job in each state, and a row in every table.
SCENE = f"""
delete from {{s}}.jobs; delete from {{s}}.leases; delete from {{s}}.attempts; delete from {{s}}.steps;
delete from {{s}}.pending; delete from {{s}}.workers; delete from {{s}}.pauses; delete from {{s}}.crons;
delete from {{s}}.stacks; delete from {{s}}.audit; delete from {{s}}.audit_jobs; delete from {{s}}.bulk_calls;
delete from {{s}}.secrets; delete from {{s}}.api_keys; delete from {{s}}.deltas; delete from {{s}}.rollups;
drop table if exists {{s}}.later; update {{s}}.meta set version = 1;
select setval('{{s}}.jobs_id_seq', 1000);
insert into {{s}}.jobs (id, queue, task, args, key, holds_key) values (1, 'default', 'greet', '{{}}', 'k', true);
insert into {{s}}.jobs (id, queue, task, args, state, ready_at, fence, attempt, started_at, worker)
     values (2, 'default', 'greet', '{{}}', 'running', null, '{FENCE}', 1, now(), 'w1');
insert into {{s}}.jobs (id, queue, task, args, state, ready_at) values (3, 'default', 'greet', '{{}}', 'paused', null);
insert into {{s}}.jobs (id, queue, task, args, state, ready_at, finished_at, key, holds_key, fence)
     values (4, 'default', 'greet', '{{}}', 'succeeded', null, now() - interval '90 d', 'done', true, '{FENCE}');
insert into {{s}}.jobs (id, queue, task, args, state, ready_at, finished_at, failed_at, pending)
     values (5, 'default', 'greet', '{{}}', 'failed', null, now(), now(), 1);
insert into {{s}}.jobs (id, queue, task, args, ready_at, held_by)
     values (6, 'default', 'greet', '{{}}', null, 'gone');
insert into {{s}}.jobs (id, queue, task, args) values (7, 'meant', 'greet', '{{}}');
insert into {{s}}.jobs (id, queue, task, args, state, ready_at, finished_at)
values (8, 'default', 'double', '{{"n": 1}}', 'cancelled', null, now());
update {{s}}.jobs set source = 'audits', source_id = '17' where id = 4;
insert into {{s}}.leases values ('{FENCE}', 'w1', now() + interval '1 h', 1, '{{2}}');
insert into {{s}}.attempts (job_id, fence, life, number, outcome, ended_at)
     values (5, '{uuid.UUID(int=5)}', 1, 1, 'errored', now());
delete from {{s}}.deltas;
insert into {{s}}.deltas (at, n, queue, task, what) values (now(), 1, 'default', 'greet', 'enqueued');
insert into {{s}}.rollups values ('minute', now() - interval '2 d', 'default', 'greet', 'enqueued', '', 1, 0);
insert into {{s}}.steps values (2, 'first', 1, 1, now(), '1');
insert into {{s}}.pending values (5);
insert into {{s}}.workers (id, name, host, pid, tasks, slots, lease, started_at, seen_at)
     values ('w1', 'w1', 'here', 1, '{{greet}}', 1, 20, now(), now());
insert into {{s}}.pauses (kind, name, created_at) values ('filter', 'queue:meant', now());
insert into {{s}}.pauses (kind, name, created_at) values ('queue', 'held', now());
insert into {{s}}.crons
values ('tick', '0 0 * * *', 'UTC', 'none', 'default', 0, 3, '{{}}', '{DUE.isoformat()}', null, 'tick');
insert into {{s}}.stacks (id, job_id, fence, asked_at) values ('{QUESTION}', 2, '{FENCE}', now());
insert into {{s}}.audit (at, by, verb, what, parameters, changed, asked, refused)
     values (now() - interval '90 d', 'ops', 'pause', 'queue:mail', '{{}}', 0, 0, 0);
insert into {{s}}.secrets (signing) values ('00');
insert into {{s}}.api_keys (id, name, role, digest, created_at) values ('{"0" * 12}', 'ci', 'admin', '', now());
"""


def _migrate(store: Store, settings: Settings) -> None:
    """To a later version, which brings a table and changes another."""
    later = Migration(2, "0002_later", "create table @later (n int); alter table @jobs alter column note drop default;")
    ours = [*migrate.migrations("postgres"), later]
    with mock.patch.object(migrate, "migrations", return_value=ours):
        assert store.schema.migrate() == ["0002_later"]


def _enqueue_on(store: Store, settings: Settings) -> None:
    with psycopg.connect(settings.url) as connection:
        assert store.enqueue_on(connection, new_job()).created
        assert store.enqueue_on(connection, new_job(key="new")).created
        assert not store.enqueue_on(connection, new_job(key="k", priority=9)).created
        assert store.enqueue_on(connection, new_job(key="done")).created


async def _aenqueue_on(store: Store, settings: Settings) -> None:
    async with await psycopg.AsyncConnection.connect(settings.url) as connection:
        assert (await store.aenqueue_on(connection, new_job())).created
        assert not (await store.aenqueue_on(connection, new_job(key="k"))).created


def _enqueue_many(store: Store, settings: Settings) -> None:
    jobs = [new_job(), new_job(key="new"), new_job(key="k", priority=9), new_job(key="done"), *[new_job()] * 5]
    done = [job for chunk in store.enqueue_many(jobs) for job in chunk]
    assert [job.created for job in done] == [True, True, False, True, *[True] * 5]
    plain = [int(done[n].id) for n in (0, *range(4, 9))]
    assert plain == sorted(plain)


def _enqueue_keyed(store: Store, settings: Settings) -> None:
    assert store.enqueue(new_job(key="new")).created
    joined = store.enqueue(new_job(key="k", priority=9))
    assert (joined.id, joined.created) == (WAITING, False)
    assert store.enqueue(new_job(key="done")).created


def _succeed_on(store: Store, settings: Settings) -> None:
    with psycopg.connect(settings.url) as connection:
        store.attempts.succeed_on(connection, RUNNING, b"1")


def _checkpoint_on(store: Store, settings: Settings) -> None:
    with psycopg.connect(settings.url) as connection:
        store.attempts.checkpoint_on(connection, RUNNING, b"1", 1)


async def _acheckpoint_on(store: Store, settings: Settings) -> None:
    async with await psycopg.AsyncConnection.connect(settings.url) as connection:
        await store.attempts.acheckpoint_on(connection, RUNNING, b"1", 1)


async def _asucceed_on(store: Store, settings: Settings) -> None:
    async with await psycopg.AsyncConnection.connect(settings.url) as connection:
        await store.attempts.asucceed_on(connection, RUNNING, b"1")


def _ask_for_stack(store: Store, settings: Settings) -> None:
    with store.stack_requests.asking(2, FENCE):
        pass


def _trip(store: Store, settings: Settings) -> None:
    with store.trips() as trips:
        trips.depart([], wants(), [FENCE])
        trips.claimed()
        trips.recorded()


def _snapshot(store: Store, _: Settings) -> None:
    with store.db.snapshot() as tx:
        tx.rows("get", id=1)


def _transaction(store: Store, settings: Settings) -> None:
    with store.db.transaction() as tx:
        tx.rows("unregister", id="w1")


def _user_transaction(store: Store, settings: Settings) -> None:
    with store.user_connections.transaction() as connection:
        connection.execute("select 1")


# Every verb of a Store, what it belongs to, and a call of it in the scene. After a space: more than one call of a verb.
VERBS: dict[str, tuple[str, Act]] = {
    "schema.migrate": (MIGRATE, _migrate),
    "enqueue": (ENQUEUE, lambda s, _: s.enqueue(new_job())),
    "enqueue keyed": (ENQUEUE, _enqueue_keyed),
    "enqueue for a result that is there": (
        ENQUEUE,
        lambda s, _: s.enqueue(new_job(key="done", reuse=float("inf"))),
    ),
    "enqueue_many": (ENQUEUE, _enqueue_many),
    "enqueue_on": (ENQUEUE, _enqueue_on),
    "aenqueue_on": (ENQUEUE, lambda s, settings: asyncio.run(_aenqueue_on(s, settings))),
    "db.transaction": (RUN, _transaction),
    "db.write": (RUN, lambda s, _: s.db.write("drop_pending", limit=5)),
    "trips": (RUN, _trip),
    "exchange": (RUN, lambda s, _: s.exchange([Outcome("succeed", 2, FENCE)], None)),
    "attempts.claim": (RUN, lambda s, _: s.attempts.claim(wants())),
    "attempts.claim told": (RUN, lambda s, _: s.attempts.claim(wants(told=[("default", "greet", 0)]))),
    "claim_of": (RUN, lambda s, _: s.claim_of(FENCE)),
    "attempts.renew": (RUN, lambda s, _: s.attempts.renew([FENCE], [RUNNING], 20.0)),
    "look": (RUN, lambda s, _: s.look("w1", ["greet"], None, ["tick"])),
    "retention.expire": (RUN, lambda s, _: s.retention.expire()),
    "retention.purge": (RUN, lambda s, _: s.retention.purge(0, finished=1, failed=1)),
    "attempts.succeed": (RUN, lambda s, _: s.attempts.succeed(RUNNING, b"1")),
    "attempts.fail": (RUN, lambda s, _: s.attempts.fail(RUNNING, BOOM)),
    "attempts.reschedule": (RUN, lambda s, _: s.attempts.reschedule(RUNNING, 5, BOOM)),
    "attempts.release": (RUN, lambda s, _: s.attempts.release(RUNNING)),
    "attempts.park": (RUN, lambda s, _: s.attempts.park(RUNNING)),
    "attempts.stop": (RUN, lambda s, _: s.attempts.stop(RUNNING)),
    "attempts.succeed_on": (RUN, _succeed_on),
    "attempts.checkpoint_on": (RUN, _checkpoint_on),
    "attempts.acheckpoint_on": (RUN, lambda s, settings: asyncio.run(_acheckpoint_on(s, settings))),
    "attempts.asucceed_on": (RUN, lambda s, settings: asyncio.run(_asucceed_on(s, settings))),
    "attempts.checkpoint": (RUN, lambda s, _: s.attempts.checkpoint(RUNNING, b"1", 1)),
    "attempts.progress": (RUN, lambda s, _: s.attempts.progress(RUNNING, 1, 2, "half")),
    "attempts.keep_step": (RUN, lambda s, _: s.attempts.keep_step(RUNNING, "second", b"1")),
    "attempts.keep_output": (RUN, lambda s, _: s.attempts.keep_output(Ref(4, FENCE), "said")),
    "retention.drop_pending": (RUN, lambda s, _: s.retention.drop_pending()),
    "workers.register": (
        RUN,
        lambda s, _: s.workers.register(id="w2", name="w2", host="here", pid=2, queues=None, tasks=["greet"], slots=1),
    ),
    "workers.unregister": (RUN, lambda s, _: s.workers.unregister("w1")),
    "workers.request_stop": (RUN, lambda s, _: s.workers.request_stop("w1")),
    "workers.forget": (RUN, lambda s, _: s.workers.forget(0.0)),
    "rescues.rescue": (RUN, lambda s, _: s.rescues.rescue(dead=["w1"])),
    "rescues.crashed": (
        RUN,
        lambda s, _: s.rescues.crashed([(RUNNING, Crash("it died", company=False))], "w1", quarantine_after=3),
    ),
    "crons.declare": (RUN, lambda s, _: s.crons.declare(CRON)),
    "crons.rename": (RUN, lambda s, _: s.crons.rename("tock", ["tick"])),
    "crons.fire": (RUN, lambda s, _: s.crons.fire([(CRON, Step(DUE, LATER))])),
    "stack_requests.answer": (RUN, lambda s, _: s.stack_requests.answer(2, FENCE, "here")),
    "pauses.let_go": (RUN, lambda s, _: s.pauses.let_go()),
    "pauses.hold_heads": (RUN, lambda s, _: s.pauses.hold_heads()),
    "operator.await_finish": (STEER, lambda s, _: s.operator.await_finish(WAITING)),
    "operator.pause": (STEER, lambda s, _: s.operator.pause(WAITING)),
    "operator.resume": (STEER, lambda s, _: s.operator.resume(PAUSED)),
    "operator.cancel": (STEER, lambda s, _: s.operator.cancel("2")),
    "operator.replay": (STEER, lambda s, _: s.operator.replay(FAILED, new_job())),
    "operator.retry": (STEER, lambda s, _: s.operator.retry(FAILED)),
    "operator.change": (STEER, lambda s, _: s.operator.change(WAITING, priority=9)),
    "operator.delete": (STEER, lambda s, _: s.operator.delete(SUCCEEDED)),
    "operator.act": (STEER, lambda s, _: s.operator.act("pause", [1], Call("pause", "id:1"))),
    "operator.bulk_some": (
        STEER,
        lambda s, _: s.operator.bulk_some("retry", Filter(ids=(FAILED,)), limit=1, spread=1.0),
    ),
    "operator.bulk": (STEER, lambda s, _: s.operator.bulk("cancel", Filter(queues=("default",)))),
    "pauses.add": (STEER, lambda s, _: s.pauses.add("queue", "default")),
    "pauses.drop": (STEER, lambda s, _: s.pauses.drop("queue", "held")),
    "crons.schedule": (STEER, lambda s, _: s.crons.schedule(replace(CRON, name="made", stored_args=b"{}"))),
    "crons.unschedule": (STEER, lambda s, _: s.crons.unschedule("made")),
    "crons.run": (STEER, lambda s, _: s.crons.run("tick")),
    "stack_requests.asking": (STEER, _ask_for_stack),
    "credentials.signing_secret": (OPEN, lambda s, _: s.credentials.signing_secret()),
    "credentials.add_key": (OPEN, lambda s, _: s.credentials.add_key("another", "viewer")),
    "credentials.key": (OPEN, lambda s, _: s.credentials.key(f"hfk_{'0' * 12}_x")),
    "credentials.all_keys": (OPEN, lambda s, _: s.credentials.all_keys()),
    "credentials.revoke_key": (OPEN, lambda s, _: s.credentials.revoke_key("ci")),
    "db.snapshot": (READ, _snapshot),
    "db.read": (READ, lambda s, _: s.db.read("get", id=1)),
    "reads.get": (READ, lambda s, _: s.reads.get(WAITING)),
    "reads.records": (READ, lambda s, _: s.reads.records([1, 2])),
    "reads.marks": (READ, lambda s, _: s.reads.marks([WAITING, "2"])),
    "reads.of_row": (READ, lambda s, _: s.reads.of_row("audits", "17")),
    "reads.attempts": (READ, lambda s, _: s.reads.attempts(FAILED)),
    "reads.steps": (READ, lambda s, _: s.reads.steps("2")),
    "attempts.step": (READ, lambda s, _: s.attempts.step(RUNNING, "first")),
    "rescues.holds": (READ, lambda s, _: s.rescues.holds(HELD)),
    "attempts.asked": (READ, lambda s, _: s.attempts.asked()),
    "reads.counts": (READ, lambda s, _: s.reads.counts()),
    "reads.failures": (READ, lambda s, _: s.reads.failures()),
    "reads.outcomes": (READ, lambda s, _: s.reads.outcomes()),
    "reads.waiting": (READ, lambda s, _: s.reads.waiting()),
    "ahead": (READ, lambda s, _: s.ahead(tasks=["greet"], queues=None, priority=0, due_at=DUE, id=1, most=5)),
    "alerts.all": (READ, lambda s, _: s.alerts.all()),
    "alerts.standing": (READ, lambda s, _: s.alerts.standing()),
    "alerts.unquiet": (READ, lambda s, _: s.alerts.unquiet(["inf"])),
    "alerts.begin": (RUN, lambda s, _: s.alerts.begin(AN_ALERT)),
    "alerts.fire": (RUN, lambda s, _: s.alerts.fire(1, AN_ALERT)),
    "alerts.end": (
        RUN,
        lambda s, _: (s.alerts.end(Standing(1, "x", "", True)), s.alerts.end(Standing(1, "x", "", False))),
    ),
    "alerts.forget": (RUN, lambda s, _: s.alerts.forget(1.0)),
    "audit.all": (READ, lambda s, _: s.audit.all() + s.audit.all(job="1")),
    "rollups.fold": (RUN, lambda s, _: s.rollups.fold()),
    "rollups.lost_claims": (RUN, lambda s, _: s.rollups.lost_claims(1)),
    "rollups.forget": (RUN, lambda s, _: s.rollups.forget(10)),
    "rollups.overdue": (READ, lambda s, _: s.rollups.overdue(60.0)),
    "rollups.counts": (READ, lambda s, _: s.rollups.counts(DUE, LATER, grain="minute")),
    "rollups.series": (READ, lambda s, _: s.rollups.series("minute", 60.0, DUE, by_queue=True)),
    "rollups.totals": (READ, lambda s, _: s.rollups.totals()),
    "audit.purge": (RUN, lambda s, _: s.audit.purge(kept=1)),
    "pauses.all": (READ, lambda s, _: s.pauses.all()),
    "workers.stop_requested": (READ, lambda s, _: s.workers.stop_requested("w1")),
    "workers.all": (READ, lambda s, _: s.workers.all()),
    "crons.next_tick": (READ, lambda s, _: s.crons.next_tick(["greet"], ["tick"])),
    "crons.due": (READ, lambda s, _: s.crons.due(["greet"], ["tick"], 10)),
    "crons.all": (READ, lambda s, _: s.crons.all(with_workers=True)),
    "reads.error_groups": (READ, lambda s, _: s.reads.error_groups()),
    "reads.oldest": (READ, lambda s, _: s.reads.oldest(Filter(queues=("default",)))),
    "reads.jobs": (READ, lambda s, _: s.reads.jobs(Filter(queues=("default",)))),
    "reads.matching": (READ, lambda s, _: list(s.reads.matching(Filter(queues=("default",))))),
    "reads.count": (READ, lambda s, _: s.reads.count(Filter(queues=("default",)))),
    "reads.count_up_to": (READ, lambda s, _: s.reads.count_up_to(Filter(queues=("default",)), 10)),
    "reads.depths": (READ, lambda s, _: s.reads.depths()),
    "stack_requests.unanswered": (READ, lambda s, _: s.stack_requests.unanswered()),
    "stack_requests.look": (READ, lambda s, _: s.stack_requests.look(QUESTION)),
    "schema.check": (ASK, lambda s, _: s.schema.check()),
    "schema.pending": (ASK, lambda s, _: s.schema.pending()),
    "schema.catalogue": (ASK, lambda s, _: s.schema.catalogue()),
    "reads.newest": (ASK, lambda s, _: s.reads.newest()),
    "reads.now": (ASK, lambda s, _: s.reads.now()),
    "db.writing": (ASK, lambda s, _: s.db.writing()),
    "db.shares_sessions": (ASK, lambda s, _: s.db.shares_sessions()),
    "db.look_around": (ASK, lambda s, _: s.db.look_around()),
    "db.writable": (ASK, lambda s, _: s.db.writable()),
    "wakeups.notify": (ASK, lambda s, _: s.wakeups.notify(["default"])),
    "wakeups.tell": (ASK, lambda s, _: s.wakeups.tell(["default"])),
    "wakeups.hint": (ASK, lambda s, _: s.wakeups.hint("default")),
    "wakeups.listen": (ASK, lambda s, _: s.wakeups.listen(lambda kind, what, turn: None, lambda: True)),
    "user_connections.transaction": (ASK, _user_transaction),
}

# The parts of a Store, by what each is to do.
PARTS: dict[str, type] = {
    "": Store, "db": Database, "schema": Schema, "wakeups": Wakeups, "user_connections": UserConnections,
    "reads": Reads, "attempts": Attempts, "rescues": Rescues, "retention": Retention, "workers": Workers,
    "operator": OperatorVerbs, "pauses": Pauses, "crons": Crons, "stack_requests": StackRequests, "audit": Audit,
    "alerts": Alerts,
    "rollups": Rollups,
    "credentials": Credentials,
}  # fmt: skip

# Of these, what asks the database for nothing, or is what `enqueue_on` and `succeed_on` are made of.
NO_VERBS = {
    "close", "db.close", "wakeups.close", "shown_url", "db.codec", "db.has_several_hosts", "user_connections.permits",
    "user_connections.execute_on", "user_connections.aexecute_on", "schema.drop",  # for stores that tests throw away
}  # fmt: skip

# Every command, what it belongs to, and how it is called in the scene.
COMMANDS: dict[str, tuple[str, str]] = {
    "migrate": (ASK, ""),  # there is nothing to do; that needs no right
    "adopt": (READ, ""),  # it lists them; who may adopt a table is the table's owner's business
    "doctor": (ASK, ""),  # it tells what it could not look at
    "worker": (RUN, "app.py"),
    "drain": (RUN, "app.py"),
    "enqueue": (ENQUEUE, "double n=1 --app app.py --key k"),
    "jobs list": (READ, "queue:default args.n:1"),
    "jobs show": (READ, "5"),
    "jobs output": (STEER, "2 --timeout 0"),
    "jobs count": (READ, "queue:default"),
    "jobs retry": (STEER, "5"),
    "jobs replay": (STEER, "8 --app app.py"),
    "jobs cancel": (STEER, "1"),
    "jobs pause": (STEER, "1"),
    "jobs resume": (STEER, "3"),
    "jobs delete": (STEER, "4 --yes"),
    "jobs set": (STEER, "1 priority=5"),
    "pause": (STEER, "args.n:1"),
    "resume": (STEER, "queue:meant"),
    "queues list": (READ, ""),
    "queues pause": (STEER, "default"),
    "queues resume": (STEER, "held"),
    "tasks list": (READ, ""),
    "tasks pause": (STEER, "greet"),
    "tasks resume": (STEER, "greet"),
    "cron list": (READ, ""),
    "cron pause": (STEER, "tick"),
    "cron resume": (STEER, "tick"),
    "cron run": (STEER, "tick"),
    "cron add": (STEER, "fives double n=1 --cron '5 * * * *' --app app.py"),
    "cron remove": (STEER, "none"),
    "workers": (READ, ""),
    "audit": (READ, ""),
    "keys create": (OPEN, "another --role viewer"),
    "keys list": (OPEN, ""),
    "keys revoke": (OPEN, "ci"),
    "workers stop": (RUN, "w1"),
    "pauses": (READ, ""),
    "stack": (STEER, "2 --timeout 0"),
    "top": (READ, "--once"),
    "why": (READ, "1"),
}

# Commands that need no database, make one of their own, or (`dev`, `serve`, `ui`) ask theirs when somebody asks them.
NO_DATABASE = {
    "bench",
    "completion",
    "config",
    "demo",
    "dev",
    "health",
    "serve",
    "sql install",
    "sql roles",
    "sql upgrade",
    "ui",
}
