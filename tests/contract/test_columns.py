"""The columns of a job are stated once, in store/columns.py: it says what both databases have."""

from __future__ import annotations

from holdfast.model.job import ClaimedJob, JobRecord, NewJob
from holdfast.store.base import Store
from holdfast.store.columns import CLAIMED, COLUMNS, GIVEN, LISTED


def test_the_table_of_columns_is_what_the_schema_has(store: Store) -> None:
    found, _ = store.schema.catalogue()
    of_jobs = [thing for thing in found if thing.kind == "column" and thing.table.removeprefix("holdfast_") == "jobs"]
    names = {thing.name for thing in of_jobs} - {"counted"}  # SQLite's own: a mark on rows that were inserted in bulk
    assert names == {column.name for column in COLUMNS}


def test_what_is_read_claimed_and_given_are_the_fields_of_the_values() -> None:
    assert {column.name for column in LISTED} == set(JobRecord.__struct_fields__)
    claimed = ["expires_in" if column.name == "expires_at" else column.name for column in CLAIMED]
    assert [claimed[0], "fence", *claimed[1:]] == list(ClaimedJob.__struct_fields__)
    assert {column.name for column in COLUMNS if column.enqueued is GIVEN} <= set(NewJob.__struct_fields__)
