"""A mapping as people write it down can be read back."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.mapping import Mapping, mapping_of, plain_name
from holdfast.model.mapping_text import as_python, as_toml

STATES = {"queued": ["pending", "new"], "running": "processing", "succeeded": "done", "failed": "failed"}


class App:
    def adopt(self, table: str, **given: Any) -> Mapping:
        return mapping_of(table, given)


def from_toml(text: str) -> Mapping:
    [(name, given)] = tomllib.loads(text)["adopt"].items()
    return mapping_of(name, given)


def from_python(text: str) -> Mapping:
    names: dict[str, Any] = {"hf": App()}
    exec(text, names)
    [found] = [value for value in names.values() if isinstance(value, Mapping)]
    return found


@pytest.mark.parametrize(
    ("table", "given"),
    [
        ("audits", {}),
        ("public.audits", {"heartbeat_at": "last_heartbeat", "lease": 60.0, "max_attempts": "max_retries"}),
        ('"My Schema"."Class"', {"name": "class", "queue": "slow", "payload": ["id", "url"], "notify": False}),
        ("crawl_jobs", {"counts": {"table": "crawl_states", "id": "job_id", "pending": "total_pending"}}),
        ("analysis", {"results": {"score": "bs_score", "raw json": "*"}, "priority": 5}),
    ],
)
def test_it_is_read_back_as_it_was(table: str, given: dict[str, Any]) -> None:
    mapping = mapping_of(table, {"states": STATES, **given})
    assert from_toml(as_toml(mapping)) == mapping
    assert from_python(as_python(mapping)) == mapping


def test_a_settings_file_is_short() -> None:
    given = {"states": STATES, "heartbeat_at": "last_heartbeat", "status": "".join(["sta", "tus"])}
    mapping = mapping_of("audits", given)
    assert as_toml(mapping) == (
        '[adopt.audits]\nheartbeat_at = "last_heartbeat"\n\n[adopt.audits.states]\nqueued = ["pending", "new"]\n'
        'running = "processing"\nsucceeded = "done"\nfailed = "failed"\n'
    )
    assert as_python(mapping).startswith('audits = hf.adopt(\n    "audits",\n    states={"queued": ["pending", "new"]')


# Names as a catalogue may have them: anything but control characters, which are refused as names of queues.
HOSTILE = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"]), min_size=1, max_size=20)


@given(table=HOSTILE, column=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), word=HOSTILE)
def test_no_name_breaks_out_of_it(table: str, column: str, word: str) -> None:
    written = '"' + table.replace('"', '""') + '"'
    states = {"queued": f"{word}1", "running": f"{word}2", "succeeded": f"{word}3", "failed": f"{word}4"}
    given = {"states": states, "status": column, "results": {column + "!": "*"}}
    mapping = mapping_of(written, given)
    assert mapping.name == table
    assert from_toml(as_toml(mapping)) == mapping
    assert from_python(as_python(mapping)) == mapping


@pytest.mark.parametrize(
    ("table", "name"),
    [("audits", "audits"), ("a.b", "b"), ('"a.b"', "a.b"), ('a."b""c"', 'b"c'), ('"x"."y.z"', "y.z")],
)
def test_the_name_of_a_table_is_the_last_part(table: str, name: str) -> None:
    assert plain_name(table) == name
