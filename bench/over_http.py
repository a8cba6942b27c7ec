"""What HTTP costs: one client submits jobs and looks at them over one connection, beside the same calls in Python."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from bench.app import PAD, hf, noop
from bench.raw import rate
from bench.workers import APP, environment

BODY = json.dumps({"args": {"pad": PAD}})
HEADERS = {"Content-Type": "application/json"}


def over_http(jobs: int) -> dict[str, float]:
    """Calls a second."""
    id = noop.enqueue(PAD).id
    with _connected() as connection:

        def ask(method: str, path: str, body: str | None = None) -> int:
            connection.request(method, path, body, HEADERS if body else {})
            with connection.getresponse() as answer:
                answer.read()
            assert answer.status in (200, 202), f"{method} {path}: {answer.status}"
            return answer.status

        def submit() -> int:
            return ask("POST", "/v1/tasks/noop/jobs", BODY)

        submit()  # the connections are there
        return {
            "submit": rate(jobs, lambda: [submit() for _ in range(jobs)]),
            "enqueue": rate(jobs, lambda: [noop.enqueue(PAD) for _ in range(jobs)]),
            "status": rate(jobs, lambda: [ask("GET", f"/v1/jobs/{id}") for _ in range(jobs)]),
            "job": rate(jobs, lambda: [hf.job(id) for _ in range(jobs)]),
        }


@contextmanager
def _connected() -> Iterator[http.client.HTTPConnection]:
    command = [sys.executable, "-m", "holdfast", "serve", APP, "--no-worker", "--port", "0"]
    with subprocess.Popen(  # noqa: S603 - our own program
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            said = server.stdout.readline()
            place = urlsplit(said.partition(" on ")[2].partition("/v1;")[0])
            assert place.hostname, f"the benchmark's server did not start: {said}"
            connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
            yield connection
            connection.close()
        finally:
            server.terminate()
