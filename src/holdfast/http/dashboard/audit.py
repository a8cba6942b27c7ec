"""The audit: what operators did, newest first."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.http.dashboard.page import Look
from holdfast.http.dashboard.render import filter_of, query
from holdfast.model.audit import VERBS, AuditRecord

PAGE = 50
PLACES = {"queue": "queues", "task": "queues", "matching": "queues", "cron": "schedules", "worker": "workers"}


class AuditQuery(msgspec.Struct, frozen=True):
    by: str = ""
    verb: str = ""
    what: str = ""
    before: str = ""


def load(look: Look) -> dict[str, Any]:
    asked: AuditQuery = look.query
    found = look.app.audit(
        by=asked.by.strip() or None, verb=asked.verb or None, what=asked.what.strip() or None,
        before=asked.before or None, limit=PAGE + 1,
    )  # fmt: skip
    calls = found[:PAGE]
    return {
        "calls": [(call, place(call)) for call in calls],
        "next": calls[-1].id if len(found) > PAGE else "",
        "asked": msgspec.structs.asdict(asked),
        "filtered": bool(asked.by or asked.verb or asked.what),
        "verbs": VERBS,
    }


def place(call: AuditRecord) -> str:
    """The page that shows what a call was about, from the root; empty: there is none."""
    kind = call.verb.rpartition("_")[2]
    if kind in PLACES and kind != call.verb:
        return PLACES[kind]
    if call.verb in ("schedule", "unschedule"):
        return "schedules"
    if "api_key" in call.verb:
        return ""
    if "table" in call.verb or call.verb == "adopt":
        return "jobs" + query(filter=filter_of(source=call.what))
    if call.what.startswith("id:") and call.what[3:].isdecimal():
        return f"jobs/{call.what[3:]}"
    if call.what.isdecimal():
        return f"jobs/{call.what}"
    return "jobs" + query(filter=call.what) if ":" in call.what else ""
