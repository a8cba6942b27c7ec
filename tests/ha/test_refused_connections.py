"""More handlers want a transaction than the server has connections: they wait, and nobody's attempt is charged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ha.pgbouncer import a_pgbouncer, needs_pgbouncer
from tests.ha.servers import a_scene, ask, do, seconds, told
from tests.servers import ROLES_PASSWORD, as_role, own_postgres

JOBS = 200


@pytest.mark.parametrize("pool", [10, 60], ids=["in line", "refused by the server"])
def test_transactions_that_find_no_connection_wait(tmp_path: Path, pool: int) -> None:
    """A pool that fits the server meets no refusal; one that is too large is refused, and waits."""
    with own_postgres(max_connections=30) as server, a_scene(tmp_path, server.url) as scene:
        do(server.url, f"create role app login password '{ROLES_PASSWORD}' in role pg_read_all_data, pg_write_all_data",
           "grant all on schema holdfast to app", "grant usage on all sequences in schema holdfast to app",
           "grant execute on all functions in schema holdfast to app")  # fmt: skip
        scene.enqueue(server.url, "hold", JOBS, seconds=0.05)
        # It leaves the three reserved connections to us.
        scene.start(url=as_role(server.url, "app"), concurrency=JOBS, handler_connections=pool)
        took = seconds(lambda: scene.await_done(server.url, JOBS))
        told(
            f"{JOBS} coroutines with transactions, max_connections=30, handler_connections={pool}",
            seconds=round(took, 1), charged=scene.charged(server.url), reruns=scene.ran().total() - JOBS,
        )  # fmt: skip
        assert scene.states(server.url) == {"succeeded": JOBS}
        assert scene.charged(server.url) == 0
        assert ask(server.url, "select count(*) from paid") == JOBS
        assert scene.ran().total() == JOBS, "none of them began twice"


@needs_pgbouncer
def test_a_pooler_that_takes_no_more_clients_is_asked_again(tmp_path: Path) -> None:
    with (
        own_postgres() as server,
        a_pgbouncer(server.url, "transaction", max_client_conn=18) as pooler,
        a_scene(tmp_path, server.url) as scene,
    ):
        scene.enqueue(server.url, "hold", JOBS, seconds=0.05)
        scene.start(url=pooler.url, prepare=0, listen=0, concurrency=JOBS, handler_connections=40)
        took = seconds(lambda: scene.await_done(server.url, JOBS))
        told(
            f"{JOBS} coroutines with transactions, PgBouncer with max_client_conn=18, handler_connections=40",
            seconds=round(took, 1), charged=scene.charged(server.url), reruns=scene.ran().total() - JOBS,
        )  # fmt: skip
        assert "no more connections allowed" in pooler.log()
        assert scene.states(server.url) == {"succeeded": JOBS}
        assert scene.charged(server.url) == 0
        assert ask(server.url, "select count(*) from paid") == JOBS
