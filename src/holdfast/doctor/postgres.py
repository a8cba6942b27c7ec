"""Checks of a PostgreSQL server, and of the connections to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.doctor.finding import Finding, Thresholds, error, ok, warning
from holdfast.model.durations import short_duration
from holdfast.model.text import plural
from holdfast.settings import Settings
from holdfast.store.base import Store

CONNECTIONS = 8  # that one worker opens at most, not counting its handlers


def version(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    [server] = store.db.read("server")
    yield ok("HF4003", f"PostgreSQL {server['version']}")  # a server that is too old would have been refused


def pooler(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    # With `prepare` on, a store could not be opened behind such a pooler.
    if not store.db.shares_sessions():
        yield ok("HF4305", "connections keep their sessions")
    elif settings.listen:
        yield warning("HF4305", "a pooler in transaction mode stands in between, and listen is on")
    else:
        yield ok("HF4305", "a pooler in transaction mode stands in between; prepare and listen are off")


def connections(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    [server] = store.db.read("server")
    now = store.reads.now()
    workers = sum(worker.alive(now) for worker in store.workers.all())
    bounds = [("the server", server["connections"], server["used"])]
    # -1: no limit of its own.
    bounds += [("the database", server["database_limit"], server["used_of_database"])] * (server["database_limit"] >= 0)
    bounds += [("this user", server["role_limit"], server["used_of_role"])] * (server["role_limit"] >= 0)
    where, limit, used = min(bounds, key=lambda bound: bound[1] - bound[2])
    they = "worker needs" if workers == 1 else "workers need"
    need, handlers = workers * CONNECTIONS, workers * max(1, settings.processes) * settings.handler_connections
    said = (
        f"{used} of {limit} connections of {where} are used; {workers} {they} up to {need}, and up to {handlers} "
        "for handlers' transactions"
    )
    least = min(bound[1] for bound in bounds)
    if need > least:
        yield error("HF4304", said)
    elif need + handlers > least or limit - used < thresholds.free_connections:
        yield warning("HF4304", said)
    else:
        yield ok("HF4304", said)


def primaries(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    found = store.db.writable()
    if len(found) > 1:
        yield error("HF4306", f"{len(found)} servers take writes: {', '.join(found)}")
    else:
        yield ok("HF4306", "one server takes writes: " + ", ".join(found))


def horizon(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    pins = store.db.read("horizon", seconds=thresholds.transaction, transactions=thresholds.slot_age)
    [server] = store.db.read("server")
    if hidden := server["hidden"]:
        whose = f"{hidden} {plural('session', hidden)} of other users"
        yield warning("HF4301", f"could not be looked at: {whose}", "Run the doctor as a role with pg_read_all_stats.")
    elif not pins:
        yield ok("HF4301", "nothing pins the vacuum horizon")
    for pin in pins:
        yield warning("HF4301", _pin(pin), _unpin(pin))


def _pin(pin: dict[str, Any]) -> str:
    if pin["kind"] == "replication slot":
        lag = f", {pin['transactions']:,} transactions behind" if pin["transactions"] is not None else ""
        return f"replication slot {pin['name']} is {pin['state']}{lag}"
    age = short_duration(pin["seconds"])
    if pin["kind"] == "prepared transaction":
        return f"prepared transaction {pin['name']!r} of {pin['owner']} waits since {age}"
    program = pin["application"] or "an unnamed program"
    return f"pid {pin['name']} ({program}, user {pin['owner']}) is {pin['state']}, in one transaction since {age}"


def _unpin(pin: dict[str, Any]) -> str:
    if pin["kind"] == "replication slot":
        return f"If nobody reads from it any more: select pg_drop_replication_slot('{pin['name']}')"
    if pin["kind"] == "prepared transaction":
        return f"Decide it: commit prepared '{pin['name']}' or rollback prepared '{pin['name']}'"
    return f"End it where it is open, or: select pg_terminate_backend({pin['name']})"


def bloat(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    tables = store.db.read("bloat", schema=settings.schema)
    bloated = [t for t in tables if t["dead"] > thresholds.dead_rows and t["dead"] > t["live"] / 2]
    if not bloated:
        yield ok("HF4302", f"{sum(t['dead'] for t in tables):,} dead rows in our tables")
    for table in bloated:
        name = f'"{settings.schema}".{table["name"]}'
        yield warning(
            "HF4302", f"table {table['name']} has {table['dead']:,} dead rows and {table['live']:,} live ones",
            f"Look for a pinned horizon (HF4301), then: vacuum {name}",
        )  # fmt: skip


def autovacuum(store: Store, settings: Settings, thresholds: Thresholds) -> Iterator[Finding]:
    [server] = store.db.read("server")
    if not server["autovacuum"]:
        yield error("HF4303", "autovacuum is off on the server", "Run: alter system set autovacuum = on; then reload")
        return
    off = [table["name"] for table in store.db.read("bloat", schema=settings.schema) if not table["autovacuum"]]
    if not off:
        yield ok("HF4303", "autovacuum is on")
    for name in off:
        fix = f'Run: alter table "{settings.schema}".{name} reset (autovacuum_enabled)'
        yield error("HF4303", f"autovacuum is off for table {name}", fix)
