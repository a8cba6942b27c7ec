"""A first mapping of a table that nobody has mapped: by the names and kinds of its columns, and by its status words.

It says of each choice whether it is certain or a guess, so that a person can correct it before anything is done."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.harmless import UNSAFE
from holdfast.model.lifecycle import State
from holdfast.model.mapping import FITS, INSTANTS, NEEDED, Mapping, mapping_of
from holdfast.model.table import Table, TableColumn

# Meaning -> names that columns with it usually have, the commonest first. In the order in which a table is read.
NAMES: dict[str, tuple[str, ...]] = {
    "created_at": ("created_at", "inserted_at", "created", "created_on", "created_date", "date_created", "enqueued_at"),
    "run_at": (
        "run_at", "scheduled_at", "scheduled_for", "not_before", "due_at", "due", "run_after", "scheduled_after",
        "available_at", "next_run_at", "next_attempt_at", "next_retry_at", "process_after", "eta",
    ),
    "priority": ("priority", "prio"),
    "attempts": (
        "attempts", "attempt", "attempt_count", "retry_count", "retries", "tries", "try_count", "failures",
        "failure_count", "num_attempts",
    ),
    "max_attempts": ("max_attempts", "max_tries", "attempts_max", "max_retries", "retry_limit"),
    "worker": (
        "worker_id", "worker", "locked_by", "claimed_by", "processing_worker_id", "processed_by", "owner_worker",
        "worker_name", "leased_by",
    ),
    "heartbeat_at": ("heartbeat_at", "last_heartbeat", "last_heartbeat_at", "heartbeat", "heartbeated_at"),
    "lease_until": ("lease_until", "locked_until", "lease_expires_at", "leased_until", "lock_expires_at"),
    "claimed_at": ("claimed_at", "locked_at", "lock_at", "reserved_at", "leased_at", "picked_at"),
    "started_at": ("started_at", "processing_started_at", "start_time", "begun_at", "started"),
    "finished_at": ("finished_at", "completed_at", "ended_at", "done_at", "processed_at", "end_time", "finished"),
    "fence": ("fence", "claim_id", "claim_token", "lock_token", "lease_id", "lease_token", "correlation_id"),
    "version": ("version", "lock_version", "row_version"),
    "updated_at": ("updated_at", "modified_at", "updated", "last_modified", "updated_on"),
    "error_code": ("error_code", "last_error_code"),
    "error_message": ("error_message", "last_error_message", "error", "last_error", "failure_reason", "error_text"),
    "key": ("dedup_key", "idempotency_key", "unique_key", "cache_key", "request_hash"),
    "token": ("job_token", "status_token", "token"),
}  # fmt: skip
RESULTS = ("result", "result_json", "results", "output", "result_data")
STATUS = ("status", "state", "job_status", "job_state", "processing_status")
# By these a reader of the table would call it something else as often as not.
UNSURE = {
    "created", "due", "eta", "attempt", "started", "finished", "processed_at", "processed_by", "correlation_id",
    "version", "updated", "token", "cache_key", "start_time", "end_time", "error", "output",
}  # fmt: skip
LEASES = ("heartbeat_at", "lease_until", "claimed_at")  # one of them, the most telling first

# State -> words, the commonest first; those after the bar are guesses.
WORDS: dict[State, tuple[tuple[str, ...], tuple[str, ...]]] = {
    State.QUEUED: (
        ("pending", "queued", "waiting", "new", "todo", "enqueued"),
        ("ready", "submitted", "created", "open", "scheduled", "requested", "retry", "retrying"),
    ),
    State.RUNNING: (
        ("processing", "running", "in_progress", "active"),
        ("started", "working", "inprogress", "executing", "claimed", "locked", "busy"),
    ),
    State.SUCCEEDED: (
        ("completed", "done", "succeeded", "success", "finished"),
        ("complete", "successful", "processed", "ok"),
    ),
    State.FAILED: (("failed", "error", "dead"), ("failure", "errored", "failed_permanently")),
    State.PAUSED: (("paused", "on_hold"), ("held", "hold", "suspended")),
    State.CANCELLED: (("cancelled", "canceled", "aborted"), ("killed", "discarded")),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One thing that the proposal says, and why."""

    meaning: str  # a field of a mapping, or `states.queued`
    value: str  # a column, or words
    why: str
    sure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    mapping: Mapping | None  # None: `missing` says what a person has to say
    choices: tuple[Choice, ...]
    missing: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()  # words that mean nothing to us: their rows are not jobs


def status_column(table: Table) -> TableColumn | None:
    """The column that says what a row's work has come to."""
    fitting = [column for column in table.columns if column.kind in FITS["status"] and not column.generated]
    for name in STATUS:
        for column in fitting:
            if _plain(column.name) == name:
                return column
    ending = [column for column in fitting if _plain(column.name).endswith(("_status", "_state"))]
    return max(ending, key=lambda column: len(_placed(column.words or ())), default=None)


def propose(table: Table, words: dict[str, int], written: str = "") -> Proposal:
    """A mapping for this table. `words`: how many rows have each word in its status column. `written`: how people write
    the table's name, if not as it stands in the catalogue."""
    choices: list[Choice] = []
    missing: list[str] = []
    given: dict[str, Any] = {}
    if len(table.primary_key) != 1:
        if not table.unique or not (single := [key for key in table.unique if len(key) == 1]):
            missing.append(f"{table.name} has no column that names one row: give it a primary key of one column")
        else:
            given["id"] = single[0][0]
            choices.append(Choice(meaning="id", value=given["id"], why="it is unique", sure=False))
    status = status_column(table)
    states: dict[str, list[str]] = {}
    if status is None:
        missing.append(f"{table.name} has no column of text that looks like a status: name it with status=…")
    else:
        sure = _plain(status.name) in STATUS[:2]
        choices.append(Choice(meaning="status", value=status.name, why="by its name", sure=sure))
        given |= {"status": status.name} if status.name != "status" else {}
        for choice in _states(status, words):
            state = choice.meaning.removeprefix("states.")
            states.setdefault(state, []).append(choice.value)
            choices.append(choice)
        if unsaid := [state.value for state in NEEDED if state not in states]:
            there = ", ".join(map(repr, dict.fromkeys([*(status.words or ()), *words])))
            missing.append(
                f"none of the words of {status.name} is known to mean {' or '.join(unsaid)} (they are {there}): "
                "say which with states={…}"
            )
    for choice in _columns(table, taken={column.name for column in (status,) if column is not None}):
        if choice.meaning == "results":
            given["results"] = {choice.value: "*"}
        else:
            given[choice.meaning] = choice.value
        choices.append(choice)
    choices += _unseen(given)
    given |= {choice.meaning: choice.value for choice in choices if choice.meaning == "counting"}
    given["states"] = {state: found[0] if len(found) == 1 else found for state, found in states.items()}
    known = {word for found in states.values() for word in found}
    seen = dict.fromkeys([*(status.words or () if status is not None else ()), *words])
    return Proposal(
        mapping=None if missing else mapping_of(written or table.name, {**given, "name": _shown(table.name)}),
        choices=tuple(choices),
        missing=tuple(missing),
        left_alone=tuple(word for word in seen if word not in known),
    )


# -- columns ----------------------------------------------------------------------------------------------------------


def _columns(table: Table, taken: set[str]) -> Iterator[Choice]:
    taken |= set(table.primary_key)
    lease = ""
    for meaning, names in NAMES.items():
        kinds = FITS.get(meaning, ("text", "uuid", "bytes"))
        if kinds == INSTANTS and not table.schema:
            kinds += ("text",)  # SQLite has no type for instants
        found = _named(table, names, kinds, taken)
        if not found:
            continue
        column = found[0]
        taken.add(column.name)
        if meaning in LEASES:
            if lease:
                continue  # a lease has one form; this column stays what it is to the table's other users
            lease = column.name
        why = f"by its name and type {column.type}"
        if len(found) > 1:
            why += f"; {' and '.join(other.name for other in found[1:])} could be it, too"
        if meaning == "max_attempts" and "retr" in _plain(column.name):
            why += "; Holdfast reads it as the number of attempts, the first included"
        sure = why.endswith(column.type) and _plain(column.name) not in UNSURE
        yield Choice(meaning=meaning, value=column.name, why=why, sure=sure)
    results = _named(table, RESULTS, ("json", "text"), taken)
    if results:
        sure = results[0].kind == "json" and len(results) == 1 and _plain(results[0].name) not in UNSURE
        yield Choice(meaning="results", value=results[0].name, why="takes the whole result, as JSON", sure=sure)


def _named(table: Table, names: tuple[str, ...], kinds: tuple[str, ...], taken: set[str]) -> list[TableColumn]:
    """Columns of these names that can hold it, in the order of the names."""
    free = [c for c in table.columns if c.kind in kinds and c.name not in taken and not c.generated]
    return [column for name in names for column in free if _plain(column.name) == name]


def _unseen(given: dict[str, Any]) -> Iterator[Choice]:
    """What no table says of itself."""
    if attempts := given.get("attempts"):
        plain = _plain(attempts)
        if "retr" in plain:
            value, why = "at_recovery", f"{attempts} counts retries: nothing is counted before the second attempt"
        elif "fail" in plain:
            value, why = "at_failure", f"{attempts} counts failures: an attempt is counted when it has failed"
        else:
            value, why = "at_claim", f"{attempts} counts attempts from when they begin"
        yield Choice(meaning="counting", value=value, why=why, sure=False)
    if any(lease in given for lease in LEASES):
        why = "no table says after how many seconds a silent worker is taken for dead"
        yield Choice(meaning="lease", value="300", why=why, sure=False)


# -- words ------------------------------------------------------------------------------------------------------------


def _states(status: TableColumn, words: dict[str, int]) -> Iterator[Choice]:
    """Words for states, the one to write first, from what is allowed and what is there; then, if any text may be
    written, words for states that no row has reached yet."""
    default = re.match(r"\(?'([^']+)'", status.default or "")
    seen = dict.fromkeys([*(status.words or ()), *words, *([default[1]] if default else [])])
    placed = _placed(seen)
    found: dict[State, list[str]] = {}
    for word, (state, _) in placed.items():
        found.setdefault(state, []).append(word)
    for state in State:
        ranked = sorted(found.get(state, ()), key=lambda word: placed[word][1])
        for word in ranked:
            sure = placed[word][1] < len(WORDS[state][0])
            origin = "the column allows it" if word in (status.words or ()) else f"{words.get(word, 0):,} rows have it"
            written = "; it is the one that Holdfast writes" if len(ranked) > 1 and word == ranked[0] else ""
            yield Choice(meaning=f"states.{state}", value=word, why=origin + written, sure=sure and len(ranked) == 1)
        if not ranked and state in NEEDED and status.words is None:
            word = _invented(state, [word for words in found.values() for word in words])
            yield Choice(meaning=f"states.{state}", value=word, why="no row has a word for it yet", sure=False)


def _placed(words: Iterable[str]) -> dict[str, tuple[State, int]]:
    """The words that are known: the state of each, and how common it is for that."""
    known = {
        word: (state, place)
        for state, (common, rare) in WORDS.items()
        for place, word in enumerate((*common, *rare))
    }  # fmt: skip
    return {word: known[_plain(word)] for word in words if _plain(word) in known}


def _invented(state: State, beside: list[str]) -> str:
    """A word for a state in the manner of the words that are there: PENDING, PROCESSING; queued, running, done."""
    first = {State.QUEUED: "pending", State.RUNNING: "processing", State.SUCCEEDED: "completed", State.FAILED: "failed"}
    if any(_plain(word) in ("queued", "running", "done") for word in beside):
        first |= {State.QUEUED: "queued", State.RUNNING: "running", State.SUCCEEDED: "done"}
    word = first[state]
    if beside and all(word.isupper() for word in beside):
        return word.upper()
    return word.capitalize() if beside and all(word.istitle() for word in beside) else word


def _shown(name: str) -> str:
    """A table may have any name; that of a queue is made of characters to read."""
    return re.sub(UNSAFE, "_", name)


def _plain(name: str) -> str:
    """`createdAt`, `Created_At`, `CREATED AT` and `CreatedAt__c` as `created_at`."""
    name = re.sub(r"__c$", "", name)
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[\s_-]+", "_", name).strip("_").lower()
