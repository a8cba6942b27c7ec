"""What a campaign found: as JSON for machines, as a page for people, with the shortest history that shows a fault."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.chaos.checker import RULES, History, Violation

SHOWN = 5  # violations of one rule
CLOSE = 3.0  # seconds between a fault and what happened to a job, to be told together


def report(history: History, violations: list[Violation], figures: dict[str, Any], **about: Any) -> dict[str, Any]:
    evidence = history.evidence
    faults = Counter(event["fault"] for event in evidence.events if event["what"] == "fault" and "again" not in event)
    ends = [event for event in evidence.events if event["what"] == "ended" and event["role"] == "worker"]
    return {
        **about,
        "engine": evidence.engine,
        "verdict": "broken" if violations else "held",
        "jobs": len(history.jobs),
        "versions": len(evidence.versions),
        "tasks": len({versions[0].task for versions in history.jobs.values()}),
        "states": dict(Counter(history.last(job).state for job in history.jobs)),
        "claims": sum(len(claims) for claims in history.claims.values()),
        "attempts": dict(Counter(row["outcome"] for row in evidence.attempts)),
        "enqueues": dict(Counter(asked.answer for asked in evidence.enqueues)),
        "actions": dict(Counter(f"{a.fields['verb']} {a.answer}" for a in evidence.actions)),
        "faults": dict(faults),
        "fault count": sum(faults.values()),
        "worker ends": dict(Counter(str(event["status"]) for event in ends)),
        "rules": len(RULES),
        "violations": [v._asdict() for v in violations],
        "figures": figures,
    }  # fmt: skip


def shortest(history: History, violations: list[Violation]) -> str | None:
    """Of the jobs that something is wrong with, the one with the shortest history."""
    jobs = {v.job for v in violations if v.job is not None and v.job in history.jobs}
    return min(jobs, key=lambda job: len(history.jobs[job]), default=None)


def timeline(history: History, job: str) -> list[str]:
    """All that is known of one job, in order, with the faults at that time."""
    told: list[tuple[float, str]] = []
    before: dict[str, Any] = {}
    for version in history.jobs[job]:
        changed = {k: v for k, v in version.row.items() if v != before.get(k) and k not in ("args", "result")}
        told.append((version.at, f"{version.op} {json.dumps(changed, default=str)}"))
        before = version.row
    for claim in history.claims[job]:
        for line in claim.told:
            more = {k: v for k, v in line.items() if k not in ("what", "job", "at", "task")}
            told.append((line["at"], f"  handler: {line['what']} {json.dumps(more)}"))
    told += [(line["at"], f"  stray: {line}") for line in history.stray if line["job"] == job]
    for action in history.evidence.actions:
        if action.fields.get("job") == job:
            told.append(
                (action.at, f"  people: {action.fields['verb']} -> {action.answer} {action.told.get('state', '')}")
            )
    moments = [at for at, _ in told]
    for event in history.evidence.events:
        close = any(abs(event["at"] - at) < CLOSE for at in moments)
        if close and event["what"] in ("fault", "over", "ended"):
            more = {k: v for k, v in event.items() if k not in ("what", "at")}
            told.append((event["at"], f"    {event['what']}: {json.dumps(more)}"))
    told += [
        (line.at, f"    log of {line.worker}: {line.text}")
        for line in history.evidence.log
        if f"ob {job} " in line.text
    ]
    return [
        f"{datetime.fromtimestamp(at, UTC):%H:%M:%S.%f} {text}" for at, text in sorted(told, key=lambda one: one[0])
    ]


def page(found: dict[str, Any], story: list[str]) -> str:
    """The report for people."""
    head = f"{found['engine']}, seed {found['seed']}, {found['seconds']:.0f} s, commit {found['commit']}"
    lines = [
        f"{head}: {found['verdict'].upper()}",
        f"  {found['jobs']} jobs of {found['tasks']} tasks, {found['claims']} claims, {found['versions']} row versions",
        f"  ended: {told(found['states'])}",
        f"  attempts that did not succeed: {told(found['attempts'])}",
        f"  enqueues: {told(found['enqueues'])}; actions of people: {sum(found['actions'].values())}",
        f"  {found['fault count']} faults: {told(found['faults'])}",
        f"  workers ended: {told(found['worker ends'])}",
    ]
    for name, value in found["figures"].items():
        if isinstance(value, dict) and "p50" in value:
            shares = ", ".join(f"{share} {value[share]}" for share in ("p50", "p90", "p99", "max"))
            lines.append(f"  {name}: {shares} ({value['count']})")
        elif isinstance(value, int | float):
            lines.append(f"  {name}: {value:.1f}")
    by_rule: dict[str, list[dict[str, Any]]] = {}
    for violation in found["violations"]:
        by_rule.setdefault(violation["rule"], []).append(violation)
    for name, some in by_rule.items():
        lines.append(f"  BROKEN {name}: {len(some)}")
        lines += [f"    job {v['job']}: {v['text']}" for v in some[:SHOWN]]
    if story:
        lines += ["  The shortest of these histories:", *(f"    {line}" for line in story)]
    return "\n".join(lines)


def told(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def commit_of(source: Path) -> str:
    asked = ["git", "-C", str(source), "describe", "--always", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or "unknown"
