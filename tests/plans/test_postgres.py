"""No statement on a worker's or a producer's path reads more of PostgreSQL's tables when they grow:
with a crowd of every state around a few due jobs, custom and generic plans, never analysed and analysed."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from holdfast.model.filter import Filter
from holdfast.model.job import NewJob, Wants
from holdfast.model.outcome import Outcome, returned
from holdfast.settings import Settings
from holdfast.store.base import Ref
from holdfast.store.postgres.claim_floors import NarrowLook
from holdfast.store.postgres.exchange import ENDINGS, given_lanes, lane_wanted, wanted
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.reads import parameters
from tests.factories import claim
from tests.plans.crowd import (
    DUE,
    FILTER,
    LANE_TASKS,
    LANES,
    LAYOUTS,
    PAUSED_QUEUE,
    PAUSED_TASK,
    QUEUE,
    TASK,
    UNSERVED,
    WANTED,
)
from tests.plans.postgres import Connection, Plan, explain, fill
from tests.servers import own_postgres
from tests.waiting import wait_until

MODES = ("force_custom_plan", "force_generic_plan")
MANY_KEYS = ("give_up_keys", "retry_keys", "enqueue_keyed_many", "keys_held", "raise_priorities")
BACKLOG = 100_000
ONE_LANE = "one-lane"  # a queue with jobs of one task and one priority


@dataclass(frozen=True)
class Case:
    """A statement as the store sends it, and how many jobs and pages it may look at, however many there are."""

    name: str
    text: str
    parameters: dict[str, Any]
    rows: int = 50
    pages: int = 150


@pytest.mark.parametrize(("version", "scale"), [(18, 1000), (16, 60)])
def test_statements_look_at_a_bounded_part_of_a_crowded_table(version: int, scale: int) -> None:
    with own_postgres(version, in_memory=False, autovacuum="off", shared_buffers="512MB", max_wal_size="8GB") as server:
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("set jit = off")
            fill(connection, store, scale)
            complaints = [f"never analysed, {told}" for told in unbounded(connection, cases(connection, store))]
            connection.execute("analyze")
            complaints += [f"analysed, {told}" for told in unbounded(connection, cases(connection, store))]
            with store.db.transaction() as tx:  # store.add_pause would hold what waits
                tx.rows("add_pause", **pause_by_filter())
            complaints += [f"with a pause, {told}" for told in unbounded(connection, cases_of_a_pause(store))]
            with store.db.transaction() as tx:
                tx.rows("drop_pause", kind="filter", name=FILTER)
            # Now many are due: what was learned about the table is wrong.
            crowd_the_front(connection, store)
            ties = ties_read(version)
            told_of = [*claims_where_told(store, ties), *claims_from_floors(store, age=7200, ties=ties)]
            complaints += [f"out of date, {told}" for told in unbounded(connection, told_of)]
            connection.execute("analyze")
            complaints += [f"due, {told}" for told in unbounded(connection, told_of)]
            complaints += [f"busy, {told}" for told in unbounded(connection, busy_cases(store, version))]
        store.close()
    assert not complaints, "\n".join(complaints)


def unbounded(connection: Connection, cases: Iterable[Case]) -> list[str]:
    complaints = []
    for case in cases:
        for mode in MODES:
            plan = explain(connection, case.text, case.parameters, mode)
            complaints += [f"{mode}: {case.name} {told}" for told in complaints_about(case, plan)]
    return complaints


def complaints_about(case: Case, plan: Plan) -> list[str]:
    told = []
    if plan.whole_table("jobs"):
        told.append("reads the whole table")
    if plan.rows("jobs") > case.rows:
        told.append(f"looks at {plan.rows('jobs')} jobs, more than {case.rows}")
    if plan.pages > case.pages:
        told.append(f"touches {plan.pages} pages, more than {case.pages}")
    return told


def cases(connection: Connection, store: PostgresStore) -> list[Case]:
    statements = store.db.statements
    found = connection.execute(
        f'select fence::text, worker, job_ids from "{store.db.settings.schema}".leases order by fence limit 1'.encode()
    ).fetchone()
    assert found is not None
    fence, worker, ids = found
    one = {"id": ids[0], "fence": fence}
    told = {"error_code": "Boom", "error_message": "it broke", "error_fingerprint": "0123456789"}
    ending = {**one, **told, "outcome": "errored", "delay": 5.0, "traceback": None, "output": None, "held_by": None}
    rescue = {
        **one, **told, "state": "queued", "attempt": 1, "crashes": 1, "suspicion": 0,
    }  # fmt: skip
    new = new_job(key="k77")
    keyed = {"jobs": json.dumps([new_job(key=f"{word}{n}", args={}) for word in "ksz" for n in range(5)])}
    nothing = parameters(store.db, Filter(queues=("none",)))
    by_name: dict[str, dict[str, Any]] = {
        "enqueue": new,
        "enqueue_keyed": new,
        "key_given_up": {"task": TASK, "key": "s77", "minus_reuse": -3600.0, "failed": True},
        "retry_key": {"task": TASK, "key": "s77", "run_at": None, "delay": 0.0, "priority": 3},
        "key_held": {"task": TASK, "key": "k77"},
        "raise_priority": {"task": TASK, "key": "k77", "priority": 3},
        "claim_of": {"fence": fence},
        "succeed": {"ids": array(ids), "fence": fence},
        "succeed_with": {"ids": array(ids), "results": ["1"] * len(ids), "fence": fence},
        "succeed_on": {**one, "result": "1", "done": None, "total": None, "note": None},
        "recorded": one,
        "checkpoint": {**one, "checkpoint": "{}", "pending": 1, "done": 1},
        "renew": {"fences": array([fence]), "held": 3, "lease": 20.0},
        "requests": {"held": json.dumps([[id, fence] for id in ids])},
        "drop_leases": {"fences": array([fence])},
        "expired_leases": {"by_expiry": True, "dead": [worker], "limit": 20},
        "leased_jobs": {"ids": array(ids), "fence": fence},
        "rescue": rescue,
        "expire": {"limit": 1000},
        "progress": {**one, "done": 1, "total": 2, "note": "n", "rate": 1.0},
        "step": {**one, "name": "s"},
        "keep_step": {**one, "name": "s", "result": "1"},
        "steps": {"id": 5},
        "list_pending": {"ids": array([5])},
        "pause": {"ids": array([5]), "reason": "r", "by": "b"},
        "resume": {"ids": array([5])},
        "cancel": {"ids": array([5]), "reason": "r", "by": "b"},
        "retry": {"ids": array([5])},
        "delete": {"ids": array([5]), "unfinished": True},
        "list": {"ids": array(ids)},
        "newest": {"before": 10_000},
        "failed_ids": {"limit": 20},
        "failed_depth": {"limit": 20},
        "failed_lately": {"most": 20},
        "running": {"ids": array(ids), "most": 20},
        "get": {"id": 5},
    }
    return [
        *claims(store, limit=10, rows=50, pages=200),
        Case(
            "look",
            statements["look"],
            {**scope(None), "worker": "me", "crons": ["a", "b"], "open": True, "polling": "{}", "memory": None},
            pages=150,
        ),
        Case("survey", statements["survey"], scope(None), pages=150),
        Case("survey of some queues", statements["survey"], scope([QUEUE, ONE_LANE]), pages=150),
        *claims_from_floors(store, age=120),
        *(Case(name, statements[name], parameters) for name, parameters in by_name.items()),
        *(Case(verb, store.exchanging.with_history(verb), ending) for verb in ENDINGS),
        *(Case(name, statements[name], keyed, pages=400) for name in MANY_KEYS),
        Case("every_lane", statements["every_lane"], {"lanes": 100, "most": 20, **scope(None)}, rows=400, pages=400),
        Case("lately", statements["lately"], {"before": 2000, "most": 100, "minus_span": -60.0}, rows=200),
        Case("find", statements["find"], {"before": 2000, "after": 1000, "limit": 50, **nothing}, rows=1000, pages=400),
        Case("find_of", statements["find_of"], {"ids": array(ids), "limit": 50, **nothing}),
        Case("purge_step", statements["purge_step"], retention(), rows=1000),
        Case("purge", statements["purge"], retention() | {"reached": 1000}, rows=2000, pages=4200),
    ]


def pause_by_filter() -> dict[str, Any]:
    return {"kind": "filter", "name": FILTER, "by": None, "reason": None, "until": None, "delay": None}


def one_held() -> dict[str, Any]:
    told = dict.fromkeys(("error_code", "error_message", "error_fingerprint", "outcome", "traceback", "output"))
    return {**told, "id": 5, "fence": str(uuid.UUID(int=5)), "delay": 0.0}


def cases_of_a_pause(store: PostgresStore) -> list[Case]:
    """What it holds is not looked at."""
    statements = store.db.statements
    lane = {"queue": QUEUE, "task": UNSERVED, "priority": 0, "after_at": "2001-01-01", "after_id": 0, "limit": 100}
    ids = {"ids": array(range(5, 15))}
    return [
        *claims(store, limit=10, rows=50, pages=200),
        Case(
            "look",
            statements["look"],
            {**scope(None), "worker": "me", "crons": ["a", "b"], "open": True, "polling": "{}", "memory": None},
            pages=150,
        ),
        Case("standing_filters", statements["standing_filters"], {}),
        Case("ended_holds", statements["ended_holds"], {}),
        Case("held_jobs", statements["held_jobs"], {"held_by": f"pause:{FILTER}", "limit": 20}),
        Case("hold", statements["hold"], {**ids, "held_by": f"pause:{FILTER}", "instead_of": None}),
        Case("let_go", statements["let_go"], {**ids, "held_by": f"pause:{FILTER}"}),
        Case("release", store.exchanging.with_history("release"), {**one_held(), "held_by": f"pause:{FILTER}"}),
        Case("lane_page", statements["lane_page"], lane, rows=250, pages=400),
        Case("pauses", statements["pauses"], {"most": 100}, rows=110, pages=300),
    ]


def ties_read(version: int) -> int:
    """Pages read for jobs that are due at the same moment (see busy_cases)."""
    return 0 if version >= 18 else BACKLOG // 50


def busy_cases(store: PostgresStore, version: int) -> list[Case]:
    """A claim of n jobs looks at some n jobs of each lane, not at the backlog.
    (Before 18, a comparison of rows ends an index scan only behind all that are due at the same moment: here a third of
    the backlog. Their index entries are passed over, not their jobs.)"""
    reach = 10 + 5 + 16
    ties = ties_read(version)
    waiting = {**scope(None), "worker": "me", "crons": ["a", "b"], "open": True, "polling": "{}", "memory": None}
    return [
        *claims(store, limit=10, rows=3 * reach * 2 + 90, pages=600 + ties),
        *claims_in_one_lane(store),
        *claims_where_told(store, ties),
        *claims_from_floors(store, age=7200, ties=ties),
        Case("survey", store.db.statements["survey"], scope(None), rows=50, pages=200),
        Case("look", store.db.statements["look"], waiting, rows=50, pages=300),
        Case("expire", store.db.statements["expire"], {"limit": 10}),
    ]


def crowd_the_front(connection: Connection, store: PostgresStore) -> None:
    jobs = f'"{store.db.settings.schema}".jobs'
    # Among those of the one lane some may not be claimed ahead, and some have expired.
    connection.execute(
        f"insert into {jobs} (task, queue, run_at, ready_at, max_attempts, expires_at, args) "
        f"select '{TASK}', '{ONE_LANE}', now() - interval '1 hour', now() - interval '1 hour', "
        f"case when n % 10 = 0 then 1 else 3 end, case when n % 10 = 1 then now() - interval '1 minute' end, "
        f"'{{}}' from generate_series(1, {BACKLOG}) n".encode()
    )
    connection.execute(
        f"insert into {jobs} (task, queue, priority, run_at, ready_at, args) select '{TASK}', '{QUEUE}', n % 3 - 1, "
        f"now() - interval '1 hour', now() - interval '1 hour', '{{}}' from generate_series(1, {BACKLOG}) n".encode()
    )


def claims(store: PostgresStore, *, limit: int, rows: int, pages: int) -> list[Case]:
    def case(name: str, queues: list[str] | None, held: int, ahead: int = 0) -> Case:
        parameters = claim_parameters(queues, limit - ahead, ahead, held)
        return Case(name, store.db.statements["claim"], parameters, rows, pages)

    return [
        case("claim from any queue", None, 0),
        case("claim from two queues", [QUEUE, PAUSED_QUEUE], 0),
        case("claim with jobs in hand", None, 3),
        case("claim ahead", None, 3, ahead=limit - 1),
        case("claim ahead without a slot", None, 3, ahead=limit),
    ]


def claims_in_one_lane(store: PostgresStore) -> list[Case]:
    """Looked at: the jobs wanted, once more for the update, those in between that expired."""
    return [
        Case(
            f"claim {limit} and {ahead} ahead in one lane", store.db.statements["claim"],
            claim_parameters([ONE_LANE], limit, ahead, held=3), rows=3 * (limit + ahead) + 50,
            pages=20 * (limit + ahead) + 200,
        )
        for limit, ahead in ((10, 0), (10, 90), (0, 10), (100, 1900))
    ]  # fmt: skip


def claims_where_told(store: PostgresStore, ties: int = 0) -> list[Case]:
    """Looked at: the jobs wanted of each lane, a few of each on the way to them, and once more those that are locked,
    then taken."""
    lanes = [(QUEUE, TASK, priority) for priority in (-1, 0, 1)] + [(ONE_LANE, TASK, 0), (QUEUE, PAUSED_TASK, 0)]
    return [
        Case(
            f"{name} {limit} and {ahead} ahead from {len(told)} lanes told of", store.db.statements[name],
            claim_parameters(None, limit, ahead, held=3, told=told),
            rows=(3 * len(told) + 2) * (limit + ahead) + 50 + 10 * len(told),
            pages=20 * (limit + ahead) * len(told) + 200 + ties * (len(told) > 1),
        )
        for limit, ahead in ((10, 0), (0, 10), (100, 100))
        for told, name in ((lanes[:1], "claim_lane"), (lanes[:1], "claim"), (lanes, "claim"))
    ]  # fmt: skip


def claims_from_floors(store: PostgresStore, age: float, ties: int = 0) -> list[Case]:
    """As those; and at new jobs, up to a bound."""
    cases = []
    for limit, ahead in ((10, 0), (0, 10), (100, 100)):
        for lanes in (LANES_OF_DUE[:1], LANES_OF_DUE):
            recent = NarrowLook(dict.fromkeys(lanes, time.time() - age), since=time.time() - age)
            wants = Wants(
                fence=str(uuid.uuid4()), worker="me", tasks=(TASK, PAUSED_TASK), limit=limit, ahead=ahead, lease=20
            )
            case = Case(
                f"claim {limit} and {ahead} ahead from {len(lanes)} floors", store.db.statements["claim"],
                wanted(wants, recent), rows=(3 * len(lanes) + 5) * (limit + ahead) + 150,
                pages=20 * (limit + ahead) * len(lanes) + 300 + ties,
            )  # fmt: skip
            report = Case(f"floors of {len(lanes)} lanes", store.db.statements["floors"], given_lanes(recent))
            cases += [case, report]
    new = {"newest": 0, **scope(None)}
    cases.append(Case("new_lanes", store.db.statements["new_lanes"], new, rows=1000, pages=1100))
    return cases


LANES_OF_DUE = [(QUEUE, TASK, priority) for priority in (-1, 0, 1)] + [(ONE_LANE, TASK, 0), (QUEUE, PAUSED_TASK, 0)]


@pytest.mark.parametrize("version", [18, 16])
def test_a_claim_from_floors_on_reads_no_remains_of_jobs_that_were_claimed(version: int) -> None:
    """A transaction elsewhere holds a snapshot: what claims leave behind can't be cleaned away."""
    with own_postgres(version, autovacuum="off") as server, psycopg.connect(server.url, autocommit=True) as connection:
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        jobs = f'"{store.db.settings.schema}".jobs'
        with psycopg.connect(server.url) as elsewhere:
            elsewhere.execute("set transaction isolation level repeatable read")
            elsewhere.execute("select count(*) from pg_class")
            connection.execute(
                f"insert into {jobs} (task, queue, run_at, ready_at, args) select '{TASK}', '{QUEUE}', at, at, '{{}}' "
                f"from generate_series(1, {BACKLOG}) n, lateral (select now() - interval '1 hour') due (at)".encode()
            )
            connection.execute(f"update {jobs} set state = 'succeeded', ready_at = null".encode())
            store.enqueue(NewJob(task=TASK, queue=QUEUE, args=b"{}"))
            wants = Wants(fence=str(uuid.uuid4()), worker="me", tasks=(TASK,), limit=10, lease=20)
            recent = NarrowLook({(QUEUE, TASK, 0): time.time() - 10}, since=time.time() - 10)
            statements, mode = store.db.statements, "force_generic_plan"
            everywhere = explain(connection, statements["claim"], wanted(wants), mode)
            from_floors = explain(connection, statements["claim"], wanted(wants, recent), mode)
            report = explain(connection, statements["floors"], given_lanes(recent), mode)
        store.close()
    assert everywhere.pages > BACKLOG / 50, "or else this proves nothing"
    assert from_floors.pages + report.pages < 200


@pytest.mark.parametrize("version", [18, 16])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_claim_reads_the_remains_of_jobs_that_were_claimed_once(version: int, lanes: int) -> None:
    """Until vacuum comes by, they stand before what is due. All are due at one moment here (docs/decisions/0018)."""
    with own_postgres(version, autovacuum="off") as server, psycopg.connect(server.url, autocommit=True) as connection:
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        jobs = f'"{store.db.settings.schema}".jobs'
        connection.execute(
            f"insert into {jobs} (task, queue, priority, run_at, ready_at, args) "
            f"select '{TASK}', '{QUEUE}', n % {lanes}, at, at, '{{}}' "
            f"from generate_series(1, {BACKLOG}) n, lateral (select now() - interval '1 hour') due (at)".encode()
        )
        connection.execute(
            f"update {jobs} set state = 'succeeded', ready_at = null where id <= {BACKLOG - 300}".encode()
        )
        for _ in range(2):  # the first look marks what is dead
            once = explain(connection, store.db.statements["survey"], scope([QUEUE]), "force_generic_plan")
        for queues in (None, [QUEUE]):
            for limit, more in ((1, 200), (100, 2000)):
                parameters = claim_parameters(queues, limit, ahead=0, held=3)
                plan = explain(connection, store.db.statements["claim"], parameters, "force_generic_plan")
                assert plan.pages < once.pages + more, (queues, limit)
        assert once.pages > BACKLOG / 200, "or else this proves nothing"
        store.close()


def test_autovacuum_clears_a_claims_way_in_a_large_table() -> None:
    """Few of its pages have something to clean: PostgreSQL would leave indexes as they are."""
    with (
        own_postgres(18, autovacuum_naptime="1s") as server,
        psycopg.connect(server.url, autocommit=True) as connection,
    ):
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        jobs = f'"{store.db.settings.schema}".jobs'
        connection.execute(
            f"insert into {jobs} (task, queue, state, ready_at, attempt, args) "
            f"select '{TASK}', '{QUEUE}', 'succeeded', null, 1, '{{}}' from generate_series(1, {6 * BACKLOG})".encode()
        )
        connection.execute(f"vacuum {jobs}".encode())
        list(store.enqueue_many(NewJob(task=TASK, queue=QUEUE, args=b"{}") for _ in range(4000)))
        held = claim(store, 4000, tasks=(TASK,)).jobs
        store.exchange([returned(job, None) for job in held], None)

        def way() -> int:
            return explain(connection, store.db.statements["survey"], scope([QUEUE]), "force_generic_plan").pages

        assert min(way(), way()) > 20, "or else this proves nothing"
        wait_until(lambda: way() < 12, "vacuum to clean the claim's index", timeout=30)
        store.close()


def claim_parameters(
    queues: list[str] | None, limit: int, ahead: int, held: int, told: Iterable[tuple[str, str, int]] = ()
) -> dict[str, Any]:
    wants = Wants(
        fence=str(uuid.uuid4()), worker="me", tasks=(TASK, PAUSED_TASK), limit=limit, ahead=ahead, lease=20.0,
        queues=None if queues is None else tuple(queues), held=held, told=tuple(told),
    )  # fmt: skip
    return wanted(wants) | (lane_wanted(wants) if len(wants.told) == 1 else {})


@pytest.mark.parametrize("version", [18, 16])
def test_a_claim_from_many_lanes_looks_at_a_multiple_of_what_it_takes(version: int) -> None:
    """Not at so many of each lane. Statistics are those of the layout before, then there are new ones."""
    complaints = []
    with own_postgres(version, autovacuum="off") as server, psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("set jit = off")
        for layout, (due, many) in LAYOUTS.items():
            store = PostgresStore(Settings(url=server.url))
            store.schema.migrate()
            jobs = f'"{store.db.settings.schema}".jobs'
            connection.execute(f"truncate {jobs}".encode())
            connection.execute(
                f"insert into {jobs} (task, queue, priority, run_at, ready_at, args) select '{TASK}' || lane % 10, "
                f"'q' || lane / 20, lane / 10 % 2, at, at, '{{}}' from generate_series(0, {LANES - 1}) lane, "
                f"generate_series(1, {many}) n, "
                f"lateral (select now() - interval '3 days' + ({due}) * interval '1 second') due (at)".encode()
            )
            for statistics in ("before", "now"):
                told = unbounded(connection, [claim_from_many_lanes(store)])
                complaints += [f"{layout}, statistics of {statistics}: {line}" for line in told]
                connection.execute("analyze")
            store.close()
    assert not complaints, "\n".join(complaints)


def claim_from_many_lanes(store: PostgresStore) -> Case:
    wants = Wants(
        fence=str(uuid.uuid4()), worker="me", tasks=tuple(LANE_TASKS), limit=100, ahead=WANTED - 100, lease=20
    )
    return Case(
        f"claim {WANTED} from {LANES} lanes", store.db.statements["claim"], wanted(wants),
        rows=25 * (WANTED + LANES), pages=40 * (WANTED + LANES),
    )  # fmt: skip


def test_a_claim_takes_the_due_jobs_in_the_crowd() -> None:
    """What the plans are about, seen from outside: the few due jobs, and when to come again."""
    with own_postgres(16) as server:
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        with psycopg.connect(server.url, autocommit=True) as connection:
            fill(connection, store, 2)
        claimed = claim(store, 10, tasks=(TASK, PAUSED_TASK))
        assert [job.priority for job in claimed.jobs] == [1, 0, -1]
        assert len(claimed.jobs) == DUE
        assert claimed.next_due is not None
        assert 0 < claimed.next_due < 25 * 3600
        store.close()


def scope(queues: list[str] | None) -> dict[str, Any]:
    return {"tasks": [TASK, PAUSED_TASK], "queues": queues}


def retention() -> dict[str, Any]:
    week = 7 * 86400.0
    return {"after_id": 0, "limit": 1000, "minus_finished": -week, "minus_failed": -week, "minus_youngest": -week}


def new_job(key: str, args: Any = "{}") -> dict[str, Any]:
    return {
        "queue": QUEUE, "task": TASK, "args": args, "priority": 0, "max_attempts": 3, "run_at": None, "delay": 0.0,
        "expires_in": 60.0, "correlation_id": None, "tags": None, "key": key, "reuse": 0.0,
        "after_failure": "new" if key.startswith("k") else "retry", "n": 0,
    }  # fmt: skip


def array(values: Iterable[Any]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


@pytest.mark.parametrize("version", [18, 16])
def test_plans_made_while_the_table_was_empty_serve_when_it_has_grown(version: int) -> None:
    """A worker's connection plans once, often on the day everything is installed; no statistics come to its help."""
    with own_postgres(version, autovacuum="off") as server, psycopg.connect(server.url, autocommit=True) as connection:
        store = PostgresStore(Settings(url=server.url))
        store.schema.migrate()
        every_kind_of_trip(store)
        jobs = f'"{store.db.settings.schema}".jobs'
        connection.execute(
            f"insert into {jobs} (task, queue, run_at, ready_at, args) select '{TASK}', '{QUEUE}', at, at, '{{}}' "
            "from generate_series(1, 20000) n, "
            "lateral (select now() - interval '1 day' + n * interval '1 second') due (at)".encode()
        )
        every_kind_of_trip(store)
        store.close()  # whoever ends tells what it read
        counted = "select seq_tup_read, idx_tup_fetch, n_tup_upd from pg_stat_user_tables where relname = 'jobs'"

        def read() -> tuple[Any, ...]:
            row = connection.execute(counted).fetchone()
            assert row is not None
            return row

        wait_until(lambda: read()[2] > 0)
        by_scan, by_index, _ = read()
    assert by_scan == 0
    assert by_index < 2000, "some for each of the few that were wanted"


def every_kind_of_trip(store: PostgresStore) -> None:
    for told in ((), ((QUEUE, TASK, 0),)):
        wants = Wants(fence=str(uuid.uuid4()), worker="me", tasks=(TASK,), limit=10, lease=20, held=1, told=told)
        jobs = store.attempts.claim(wants).jobs
        verbs = ("succeed", "succeed", *ENDINGS)
        some = [(job.id, job.fence) for job in jobs] or [(1, wants.fence)] * len(verbs)
        outcomes = [
            Outcome(verb, id, fence, None if verb == "succeed" else "errored", b"1" if n else None)  # type: ignore[arg-type]
            for n, ((id, fence), verb) in enumerate(zip(some, verbs, strict=False))
        ]
        store.exchange(outcomes, None, [wants.fence])
    fences, held = [uuid.uuid4().hex], [Ref(id, uuid.uuid4().hex) for id in range(1, 50)]
    store.attempts.renew(fences, held, 20)
    store.look("me", [TASK], None)
