"""A first mapping of a table that nobody has mapped."""

from __future__ import annotations

import pytest

from holdfast.model.lifecycle import State
from holdfast.model.mapping import Mapping
from holdfast.model.proposal import Proposal, propose, status_column
from holdfast.model.table import Table, TableColumn


def column(name: str, kind: str = "text", **more: object) -> TableColumn:
    return TableColumn(name=name, type=kind, kind=kind, **more)  # type: ignore[arg-type]


def table(name: str, *columns: TableColumn, key: tuple[str, ...] = ("id",), **more: object) -> Table:
    return Table(**{"schema": "public", "name": name, "columns": columns, "primary_key": key, **more})  # type: ignore[arg-type]


def instants(*names: str) -> list[TableColumn]:
    return [column(name, "instant") for name in names]


AUDITS = table(
    "audits",
    column("id", "uuid"), column("url"), column("status", default="'pending'::text"), column("retry_count", "integer"),
    column("processing_worker_id"), column("report", "json"),
    *instants("created_at", "processing_started_at", "last_heartbeat"),
)  # fmt: skip
ANALYSIS = table(
    "analysis_jobs",
    column("id", "uuid"), *instants("created_at", "updated_at", "claimed_at"),
    column("status", words=("queued", "running", "done", "failed")), column("input_value"), column("cache_key"),
    column("job_token", "uuid"), column("attempts", "integer"), column("claim_id", "uuid"), column("last_error_code"),
    column("last_error_message"), column("result_json", "json"),
)  # fmt: skip
CRAWLS = table(
    "crawl_jobs",
    column("id", "integer"), column("status"), column("worker_id"), column("retry_count", "integer"),
    column("max_retries", "integer"), column("error_message"), *instants("last_heartbeat"),
)  # fmt: skip
RECORDS = table(
    "Request__c",
    column("Id"), column("Status__c"), column("Attempts__c", "number"), column("Priority__c", "number"),
    column("CorrelationId__c"), column("Error__c"), column("RequestHash__c"),
    *instants("LockedUntil__c", "ScheduledAfter__c", "CreatedDate"),
    key=("Id",),
)  # fmt: skip


def mapped(proposal: Proposal) -> Mapping:
    assert proposal.mapping is not None, proposal.missing
    return proposal.mapping


def guesses(proposal: Proposal) -> set[str]:
    return {choice.meaning for choice in proposal.choices if not choice.sure}


def test_a_table_that_only_its_page_has_written_to() -> None:
    """Only waiting rows are there: the words of the other states are guessed in the manner of the first."""
    found = propose(AUDITS, {"pending": 12})
    mapping = mapped(found)
    assert mapping.states == {
        "queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed",
    }  # fmt: skip
    assert mapping.heartbeat_at == "last_heartbeat"
    assert mapping.started_at == "processing_started_at"
    assert mapping.worker == "processing_worker_id"
    assert (mapping.attempts, mapping.counting) == ("retry_count", "at_recovery")
    assert guesses(found) == {"states.running", "states.succeeded", "states.failed", "counting", "lease"}
    assert (mapping.name, mapping.queue, mapping.table) == ("audits", "audits", "audits")


def test_words_that_a_check_allows_are_certain() -> None:
    found = propose(ANALYSIS, {"queued": 1})
    mapping = mapped(found)
    assert mapping.states == {"queued": "queued", "running": "running", "succeeded": "done", "failed": "failed"}
    assert (mapping.claimed_at, mapping.heartbeat_at, mapping.fence) == ("claimed_at", None, "claim_id")
    assert (mapping.error_code, mapping.error_message) == ("last_error_code", "last_error_message")
    assert (mapping.results, mapping.token, mapping.key) == ({"result_json": "*"}, "job_token", "cache_key")
    assert (mapping.attempts, mapping.counting) == ("attempts", "at_claim")
    assert guesses(found) == {"key", "counting", "lease"}
    assert not found.left_alone


def test_words_that_mean_nothing_to_us_are_left_alone() -> None:
    live = {"pending": 3, "running": 1, "completed": 9, "failed": 1, "paused": 1, "canceled": 2, "draft": 40}
    found = propose(CRAWLS, live)
    assert mapped(found).states == {
        "queued": "pending", "running": "running", "succeeded": "completed", "failed": "failed", "paused": "paused",
        "cancelled": "canceled",
    }  # fmt: skip
    assert found.left_alone == ("draft",)
    assert mapped(found).max_attempts == "max_retries"
    assert "max_attempts" in guesses(found)


def test_names_and_words_of_another_manner() -> None:
    found = propose(RECORDS, {"QUEUED": 4, "FAILED": 1})
    mapping = mapped(found)
    assert mapping.states == {"queued": "QUEUED", "running": "RUNNING", "succeeded": "DONE", "failed": "FAILED"}
    assert (mapping.lease_until, mapping.run_at) == ("LockedUntil__c", "ScheduledAfter__c")
    assert (mapping.created_at, mapping.priority, mapping.status) == ("CreatedDate", "Priority__c", "Status__c")
    assert (mapping.fence, mapping.error_message, mapping.key) == ("CorrelationId__c", "Error__c", "RequestHash__c")


def test_of_two_words_for_a_state_the_common_one_is_written_and_that_is_a_guess() -> None:
    found = propose(CRAWLS, {"retry": 2, "pending": 1, "success": 1, "done": 1})
    assert mapped(found).states["queued"] == ["pending", "retry"]
    assert mapped(found).word(State.SUCCEEDED) == "done"
    assert {"states.queued", "states.succeeded"} <= guesses(found)


def test_a_lease_has_one_form() -> None:
    two = table("jobs", column("id"), column("status"), *instants("heartbeat_at", "locked_until", "locked_at"))
    mapping = mapped(propose(two, {}))
    assert (mapping.heartbeat_at, mapping.lease_until, mapping.claimed_at) == ("heartbeat_at", None, None)


def test_a_column_of_another_kind_is_not_taken_for_what_its_name_says() -> None:
    odd = table("jobs", column("id"), column("status"), column("run_at", "json"), column("attempts"))
    mapping = mapped(propose(odd, {}))
    assert (mapping.run_at, mapping.attempts) == (None, None)


def test_sqlite_has_no_type_for_instants() -> None:
    kept = table("jobs", column("id"), column("status"), column("created_at"), column("locked_at"), schema="")
    mapping = mapped(propose(kept, {}))
    assert (mapping.created_at, mapping.claimed_at) == ("created_at", "locked_at")


@pytest.mark.parametrize(
    ("broken", "words", "says"),
    [
        (table("t", column("id"), column("status"), key=()), {}, "primary key"),
        (table("t", column("id"), column("kind")), {}, "status=…"),
        (table("t", column("id"), column("status", "integer")), {}, "status=…"),
        (table("t", column("id"), column("status", words=("a", "b"))), {"a": 1}, "states={…}"),
    ],
)
def test_what_only_a_person_can_say_is_asked_for(broken: Table, words: dict[str, int], says: str) -> None:
    found = propose(broken, words)
    assert found.mapping is None
    assert any(says in sentence for sentence in found.missing)


def test_a_unique_column_names_a_row_where_no_primary_key_does() -> None:
    without = table("t", column("ref"), column("status"), key=(), unique=(("a", "b"), ("ref",)))
    assert mapped(propose(without, {})).id == "ref"


def test_of_several_columns_that_end_alike_the_one_with_words_is_the_status() -> None:
    several = table("t", column("id"), column("mail_status"), column("sync_state", words=("pending", "done", "failed")))
    chosen = status_column(several)
    assert chosen is not None
    assert chosen.name == "sync_state"


def test_words_that_nobody_knows_are_named() -> None:
    status = TableColumn(name="state", type="text", kind="text", words=("NEW", "PRINTING", "PRINTED"))
    id = TableColumn(name="id", type="integer", kind="integer")
    [said] = propose(Table(schema="", name="orders", columns=(id, status), primary_key=("id",)), {}).missing
    assert said.startswith("none of the words of state is known to mean running or succeeded or failed")
    assert "'NEW', 'PRINTING', 'PRINTED'" in said
