"""Statements of the PostgreSQL store under EXPLAIN, on a crowded table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from holdfast.store.postgres.connect import PLANS
from holdfast.store.postgres.store import PostgresStore
from tests.plans.crowd import COLUMNS, DUE, HELD_UNDER_A_LEASE, KINDS, PAUSED_QUEUE, PAUSED_TASK, QUEUE, TASK, selected

Connection = psycopg.Connection[tuple[Any, ...]]

WORDS = {
    "n": "n",
    "past": "now() - interval '1 day' + n * interval '1 millisecond'",
    "future": "now() + interval '1 day' + n * interval '1 millisecond'",
    "fence": f"md5((n / {HELD_UNDER_A_LEASE})::text)::uuid",
}
_PARAMETER = re.compile(r"%\((\w+)\)s")


def fill(connection: Connection, store: PostgresStore, scale: int) -> None:
    """A crowd of `scale` times 1,600 jobs. Statistics are left as they are: none."""
    schema = f'"{store.db.settings.schema}"'
    for table in ("jobs", "leases", "attempts", "workers", "pauses"):
        connection.execute(f"alter table {schema}.{table} set (autovacuum_enabled = off)".encode())
    columns = ", ".join(COLUMNS)
    for kind in KINDS.values():
        connection.execute(
            f"insert into {schema}.jobs ({columns}, args) select {selected(kind, **WORDS)}, '{{}}' "
            f"from generate_series(1, {kind.share * scale}) n".encode()
        )
    due = "now() - interval '1 minute'"
    connection.execute(
        f"insert into {schema}.jobs (task, queue, priority, run_at, ready_at, args) "
        f"select '{TASK}', '{QUEUE}', n - 2, {due}, {due}, '{{}}' from generate_series(1, {DUE}) n".encode()
    )
    connection.execute(
        f"insert into {schema}.leases (fence, worker, expires_at, held, job_ids) "
        f"select fence, 'w' || min(id), now() + interval '1 hour', count(*), array_agg(id) "
        f"from (select fence, id from {schema}.jobs where state = 'running' limit 1000) r group by fence".encode()
    )
    for kind_, name in (("queue", PAUSED_QUEUE), ("task", PAUSED_TASK)):
        store.pauses.add(kind_, name)


@dataclass(frozen=True)
class Plan:
    """What a statement did: every node of its plan, and the pages it touched in all."""

    nodes: list[dict[str, Any]]
    pages: int
    milliseconds: float

    def scans(self, table: str) -> list[dict[str, Any]]:
        return [node for node in self.nodes if node.get("Relation Name") == table and "Scan" in node["Node Type"]]

    def rows(self, table: str) -> int:
        """Rows of a table that were looked at, the ones thrown away included."""
        return sum(
            round((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
            for node in self.scans(table)
        )

    def whole_table(self, table: str) -> list[str]:
        return [node["Node Type"] for node in self.scans(table) if node["Node Type"] == "Seq Scan"]


def explain(connection: Connection, text: str, parameters: dict[str, Any], mode: str) -> Plan:
    """Run a statement as the store would, as a prepared one, and roll it back."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        if match[1] not in names:
            names.append(match[1])
        return f"${names.index(match[1]) + 1}"

    statement = _PARAMETER.sub(numbered, text).replace("%%", "%")
    values = psycopg.ClientCursor(connection).mogrify(
        ", ".join(["%s"] * len(names)), [parameters[name] for name in names]
    )
    call = f"execute examined({values})" if names else "execute examined"
    with connection.transaction(force_rollback=True):
        for name, value in {**PLANS, "plan_cache_mode": mode}.items():
            connection.execute(f"set local {name} = {value}".encode())
        connection.execute(f"prepare examined as {statement}".encode())
        try:
            explained = connection.execute(f"explain (analyze, buffers, format json) {call}".encode()).fetchone()
        finally:
            if connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS:
                connection.execute("deallocate examined")
    assert explained is not None
    [answer] = explained[0]
    top = answer["Plan"]
    pages = top["Shared Hit Blocks"] + top["Shared Read Blocks"]
    return Plan(list(_nodes(top)), pages, answer["Execution Time"])


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from _nodes(child)
