"""The web server with a worker in the same process, as deployments stop it."""

from __future__ import annotations

import signal

import httpx2
import pytest

from tests.adopt.systems.database import Database
from tests.examples.claim_check.application import Start, status, submit
from tests.examples.claim_check.standin import StandIn
from tests.waiting import wait_until


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_stops_the_server_and_its_worker_which_gives_back_what_it_runs(
    number: signal.Signals, start: Start, sql: Database, standin: StandIn
) -> None:
    server = start("serve", "--port", "0", HOLDFAST_GRACE="0")
    with httpx2.Client(base_url=server.said("http://")) as client:
        done = submit(client, text="a claim")
        wait_until(lambda: status(client, done)["status"] == "done", "it to be done")
        runs = submit(client, text="another [[slow 60]]")
        wait_until(lambda: standin.calls == 2, "it to run")
    server.send_signal(number)
    assert server.wait(20) == 0, server.log
    row = sql.row("select status, attempts, claim_id from analysis_jobs where id = :id", id=runs["job_id"])
    assert row == {"status": "queued", "attempts": 0, "claim_id": None}, server.log


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_server_without_a_worker_ends_in_order_too(start: Start) -> None:
    server = start("serve", "--port", "0", "--no-worker")
    with httpx2.Client(base_url=server.said("http://")) as client:
        assert client.get("/health").json() == {"status": "healthy"}
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0, server.log
