"""What programs read of us keeps its shape: the keys of every JSON document, fixed here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.settings import Settings
from holdfast.store import open_store
from tests.cli.shell import Shell
from tests.factories import BOOM, a_queued_job, a_running_job, ref

JOB = """id queue task state priority attempt max_attempts life crashes suspicion pause_requested cancel_requested
created_at run_at started_at finished_at failed_at expires_at fence worker key holds_key correlation_id tags args result
checkpoint pending done total note error_code error_message error_fingerprint asked_at
asked_by asked_why progressed_at rate progress held_by source source_id"""
DEPTH = "due scheduled running failed pending pending_running capped oldest_due_at oldest_due_seconds workers paused"

# command -> the keys of its document, or of each of its rows
SHAPES = {
    "jobs list": JOB,
    "jobs list state:failed": JOB,
    "jobs list --group-by error": "id jobs tasks first_at last_at error_code error_message example",
    "jobs count": "jobs",
    "jobs show 1": JOB + " attempts steps audit",
    "jobs retry state:failed --dry-run": "verb jobs capped",
    "jobs retry 1": "verb changed refused asked",
    "jobs set 2 priority=2": "verb changed refused asked",
    "queues list": "queue drain " + DEPTH,
    "tasks list": "task " + DEPTH,
    "audit": "id at by verb what parameters reason changed asked refused ended_at",
    "keys list": "name role created_at created_by",
    "pauses": "kind name by reason until since jobs capped",
    "workers": "id name host pid queues tasks slots lease started_at seen_at crons stop_requested_at "
    "stop_requested_by stop_reason state running leases lease_ends_at healthy polling memory version",
    "config": "name value source",
    "enqueue double n=1 --app app:hf": "id task created state",
    "drain app:hf": "jobs failed attempts",
    "enqueue double n=2 --app app:hf --key k": "id task created state",
}
ATTEMPT = "job_id fence life number worker outcome started_at ended_at error_code error_message traceback output"
PAUSED = "by reason until since"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    directory: Path = tmp_path_factory.mktemp("shapes")
    settings = Settings(url=f"sqlite:///{directory}/jobs.db")
    store = open_store(settings)
    store.schema.migrate()
    store.attempts.fail(ref(a_running_job(store)), BOOM)
    a_queued_job(store)
    store.pauses.add("queue", "default", by="ops", reason="because")
    store.credentials.add_key("ci", "viewer")
    store.workers.register(id="w~1", name="w", host="h", pid=1, queues=None, tasks=["greet"], slots=3)
    yield Shell(directory, settings)
    store.close()


@pytest.mark.parametrize("command", SHAPES)
def test_a_document_has_these_keys(shell: Shell, command: str) -> None:
    found = shell.json(*command.split())
    rows = found if isinstance(found, list) else [found]
    assert rows
    for row in rows:
        assert set(row) == set(SHAPES[command].split()), command
    if command == "jobs show 1":
        assert [set(attempt) for attempt in found["attempts"]] == [set(ATTEMPT.split())]
    if command == "queues list":
        assert set(found[0]["paused"]) == set(PAUSED.split())


def test_jsonl_is_a_row_a_line_and_json_one_document(shell: Shell) -> None:
    lines = shell("jobs", "list", "-o", "jsonl").stdout.splitlines()
    assert len(lines) == len(shell.json("jobs", "list")) >= 2
    assert all(line.startswith("{") for line in lines)


def test_nothing_is_coloured_or_folded_where_nobody_looks(shell: Shell) -> None:
    del shell.environment["COLUMNS"]
    long = "x" * 150
    shell("queues", "pause", long, NO_COLOR="")
    table = shell("queues", "list", NO_COLOR="").stdout
    assert long in table
    assert "\x1b" not in table
