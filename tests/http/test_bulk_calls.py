"""A server is killed in the middle of a verb on many jobs; a real worker carries it on."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx2

from holdfast import Holdfast
from holdfast.settings import Settings
from tests.http.test_server import APP, serving
from tests.waiting import PATIENCE, wait_until

JOBS = 5_000  # ten steps
SLOWLY = """
import time
from holdfast.store.bulk_calls import BulkCall

record = BulkCall.record

def slowly(*args):
    time.sleep(0.2)
    record(*args)

BulkCall.record = slowly  # it can be killed in the middle
"""


def test_a_worker_carries_on_what_a_killed_server_had_begun(settings: Settings, tmp_path: Path) -> None:
    app = Holdfast(settings.url, schema=settings.schema, pinned=True)
    app.migrate()
    schema = {"HOLDFAST_SCHEMA": settings.schema}
    with app, serving(tmp_path, "--no-worker", url=settings.url, app=APP + SLOWLY, **schema) as server:

        @app.task
        def add(a: int) -> None: ...

        app.enqueue_stream(add.using(delay=3600).bind(n) for n in range(JOBS))

        def cancel() -> None:
            body = {"filter": "task:add", "expected": JOBS, "reason": "ordered twice"}
            with suppress(httpx2.HTTPError), server.client() as client:
                client.post("/v1/bulk/cancel", json=body)

        asking = threading.Thread(target=cancel)
        asking.start()
        wait_until(lambda: any(call.changed for call in app.audit()))
        server.process.kill()
        server.process.wait()
        asking.join(PATIENCE)
        [call] = app.audit()
        assert 0 < call.changed < JOBS, "it was killed in the middle"
        assert call.ended_at is None

        log = tmp_path / "worker.log"
        with log.open("wb") as said:
            worker = subprocess.Popen(
                [sys.executable, "-m", "holdfast", "worker", "app:hf"], cwd=tmp_path, stdout=said, stderr=said,
                env={**os.environ, "HOLDFAST_URL": settings.url, **schema},
            )  # fmt: skip
        try:
            wait_until(lambda: app.audit()[0].ended_at or worker.poll() is not None, timeout=4 * PATIENCE)
        finally:
            worker.terminate()
            worker.wait(PATIENCE)
        [call] = app.audit()
        assert (call.changed, call.refused, call.reason) == (JOBS, 0, "ordered twice"), log.read_text()
        assert app.count("state:cancelled") == JOBS
