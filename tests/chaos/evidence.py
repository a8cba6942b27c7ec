"""What a campaign has left behind, as plain values: for the checker, which knows nothing else. Imports nothing of
Holdfast: tables are read by their documented columns, everything else from logs."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.chaos.writing import read

TABLES = {  # read when all is over
    "jobs": ("id", "state", "task", "error_code"),
    "leases": ("fence", "worker"),
    "workers": ("id", "pid"),
    "attempts": (
        "job_id", "fence", "life", "number", "worker", "outcome", "started_at", "ended_at", "error_code",
        "error_message",
    ),
    "steps": ("job_id", "name", "life", "attempt", "ended_at", "result"),
    "rollups": ("grain", "queue", "task", "what", "detail", "n"),
    "deltas": ("queue", "task", "what", "detail", "n", "began", "waited_ms", "ran_ms", "rescued", "origin", "error"),
}  # fmt: skip
LEDGER = "select job, fence, attempt, token from chaos_ledger"
FINISHED = ("succeeded", "failed", "cancelled")


class Database(Protocol):
    engine: str

    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...

    def table(self, name: str) -> str: ...


class Happening(NamedTuple):
    """Something that is counted."""

    queue: str
    task: str
    what: str
    detail: str = ""


class Version(NamedTuple):
    """A row of `jobs` as it was committed."""

    seq: int
    at: float
    op: str  # insert, update, delete
    job: str
    row: dict[str, Any]

    @property
    def state(self) -> str:
        return str(self.row["state"])

    @property
    def fence(self) -> str | None:
        return self.row.get("fence")

    @property
    def attempt(self) -> int:
        return int(self.row["attempt"])

    @property
    def life(self) -> int:
        return int(self.row["life"])

    @property
    def task(self) -> str:
        return str(self.row["task"])

    @property
    def finished(self) -> bool:
        return self.state in FINISHED


@dataclass
class Asked:
    """An enqueue, or what people did: asked at `at`, answered at `until` with ok, fail or info (nobody knows)."""

    at: float
    fields: dict[str, Any]
    answer: str = "info"
    until: float = float("inf")
    told: dict[str, Any] = field(default_factory=dict)


class Line(NamedTuple):
    """Of a worker's log."""

    worker: str
    at: float
    text: str  # with what follows it: a traceback


@dataclass
class Evidence:
    engine: str = "sqlite"
    versions: list[Version] = field(default_factory=list)
    enqueues: list[Asked] = field(default_factory=list)
    actions: list[Asked] = field(default_factory=list)
    effects: list[dict[str, Any]] = field(default_factory=list)
    ledger: list[tuple[str, str, int, str]] = field(default_factory=list)  # job, fence, attempt, token
    attempts: list[dict[str, Any]] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    leases: list[dict[str, Any]] = field(default_factory=list)
    workers: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)  # of the fleet: starts, ends, faults
    log: list[Line] = field(default_factory=list)
    counted: dict[str, Counter[Happening]] | None = None  # by grain
    left: list[int] = field(default_factory=list)  # processes that live on when all is over

    @property
    def settled(self) -> float:
        """From when on pauses are ended by the campaign itself."""
        return min((event["at"] for event in self.events if event["what"] == "quiet"), default=float("inf"))


def instant(value: Any) -> float | None:
    """Seconds since the epoch; a text without a time zone is UTC."""
    if value is None:
        return None
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def gather(database: Database, home: Path, left: list[int]) -> Evidence:
    tables = {name: _table(database, name) for name in TABLES}
    found = database.rows("select seq, at, op, job, version from chaos_audit order by seq")
    return Evidence(
        engine=database.engine,
        versions=[
            Version(seq, instant(at) or 0.0, op, str(job), row if isinstance(row, dict) else json.loads(row))
            for seq, at, op, job, row in found
        ],
        enqueues=[asked for path in sorted(home.glob("producer-*.jsonl")) for asked in pairs(read(path))],
        actions=[asked for path in sorted(home.glob("people-*.jsonl")) for asked in pairs(read(path))],
        effects=read(home / "effects.jsonl"),
        ledger=[(str(j), str(f), int(a), str(t)) for j, f, a, t in database.rows(LEDGER)],
        attempts=tables["attempts"],
        steps=tables["steps"],
        leases=tables["leases"],
        workers=tables["workers"],
        events=read(home / "events.jsonl"),
        log=[line for path in sorted(home.glob("worker-*.log")) for line in log_lines(path)],
        counted=counted(tables["rollups"], tables["deltas"]),
        left=left,
    )  # fmt: skip


def counted(rollups: list[dict[str, Any]], deltas: list[dict[str, Any]]) -> dict[str, Counter[Happening]]:
    """What the counters say, by grain: of histograms only how much is in them, and of errors how many there were."""
    found: dict[str, Counter[Happening]] = {grain: Counter() for grain in ("minute", "hour", "total")}
    for row in rollups:
        if row["grain"] not in found:  # for charts: the same again
            continue
        detail = "" if row["what"] in ("wait", "run", "error") else row["detail"]
        found[row["grain"]][Happening(row["queue"], row["task"], row["what"], detail)] += row["n"]
    for row in deltas:  # not folded yet
        for what, detail, there in (
            (row["what"], row["detail"], row["what"]), ("started", "", row["began"]),
            ("restarted", row["origin"], row["origin"]),
            ("rescued", "", row["rescued"]), ("error", "", row["error"]),
            ("wait", "", row["waited_ms"] is not None), ("run", "", row["ran_ms"] is not None),
        ):  # fmt: skip
            for grain in found if there else ():
                found[grain][Happening(row["queue"], row["task"], what, detail)] += row["n"]
    return found


def _table(database: Database, name: str) -> list[dict[str, Any]]:
    columns = TABLES[name]
    found = database.rows(f"select {', '.join(columns)} from {database.table(name)}")
    return [
        {c: str(v) if c in ("id", "job_id", "fence") else v for c, v in zip(columns, row, strict=True)} for row in found
    ]


def pairs(logged: list[dict[str, Any]]) -> list[Asked]:
    """Each invocation with its answer. One that never came: nobody knows."""
    asked: dict[int, Asked] = {}
    for line in logged:
        if line["what"] == "invoke":
            asked[line["op"]] = Asked(line["at"], line)
        elif line["what"] in ("ok", "fail", "info"):
            known = asked[line["op"]]
            known.answer, known.until, known.told = line["what"], line["at"], line
    return list(asked.values())


def log_lines(path: Path) -> list[Line]:
    """The records of a log: a line that begins with a time, and those that follow it."""
    worker = path.stem.partition("-")[2]
    found: list[tuple[float, list[str]]] = [(0.0, [])]
    for line in path.read_text(errors="replace").splitlines():
        try:
            at = datetime.fromisoformat(line[:29]).timestamp()  # 2026-11-18 13:35:22.973+00:00
        except ValueError:
            found[-1][1].append(line)
        else:
            found.append((at, [line]))
    return [Line(worker, at, "\n".join(lines)) for at, lines in found if lines]
