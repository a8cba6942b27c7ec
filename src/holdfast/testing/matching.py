"""Finds the job that an assertion asks for: compares arguments as they are stored, and options by their effect."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from holdfast.durations import Duration
from holdfast.model.job import JobRecord
from holdfast.model.payload import Unfit, encode
from holdfast.tasks.options import Options, aware, seconds


def matches(given: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(name in given and given[name] == value for name, value in wanted.items())


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Values as they are stored, without those that can't be stored."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        try:
            kept[name] = msgspec.json.decode(encode(value, limit=2**31))
        except Unfit:
            continue
    return kept


def fits(record: JobRecord, options: Options) -> bool:
    """Was the job enqueued with these options?"""
    for name in ("queue", "priority", "max_attempts", "key", "correlation_id"):
        if name in options and getattr(record, name) != options[name]:
            return False
    if "tags" in options and set(record.tags) != set(options["tags"]):
        return False
    if "run_at" in options and record.run_at != aware("run_at", options["run_at"]):
        return False
    if "expires" in options and record.expires_at != record.created_at + _delta(options["expires"]):
        return False
    return "delay" not in options or record.run_at == record.created_at + _delta(options["delay"])


def _delta(value: Duration) -> timedelta:
    return timedelta(seconds=seconds("delay", value))
