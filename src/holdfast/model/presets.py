"""Presets: settings and tables of five kinds of systems that many teams have built by hand, by name.

A preset sets what it names; arguments, variables and files override single values of it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Preset(NamedTuple):
    settings: dict[str, Any]
    task: dict[str, Any]  # options of each task that doesn't give them itself
    table: dict[str, Any] | None = None  # the mapping of its table, as `hf.adopt(**table)` takes it


_ONE_AT_A_TIME = {"claim_size": 1, "concurrency": 1, "threads": 1}
# A job goes back to the queue at once when its worker is told to stop, and a crash counts as an attempt like any other.
_PLAIN = {"quarantine_after": 0, "grace": 0.0}


def _every(seconds: float) -> dict[str, Any]:
    """Poll in this interval, however long nothing is found."""
    return {"poll_base": seconds, "poll_max": seconds, "poll_multiplier": 1.0, "poll_grace": 0}


PRESETS: dict[str, Preset] = {
    "site-audit": Preset(
        settings={**_every(5.0), **_ONE_AT_A_TIME, **_PLAIN, "lease": 300.0, "heartbeat": 30.0},
        task={"max_attempts": 3, "retry": 0.0},
        table={
            "table": "audits",
            "states": {"queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed"},
            "created_at": "created_at",
            "started_at": "processing_started_at",
            "worker": "processing_worker_id",
            "heartbeat_at": "last_heartbeat",
            "lease": 300.0,
            "attempts": "retry_count",
            "counting": "at_failure",
            "max_attempts": 3,
        },
    ),
    "recording": Preset(
        settings={
            "poll_base": 5.0, "poll_max": 30.0, "poll_multiplier": 1.5, "poll_grace": 2,
            **_ONE_AT_A_TIME, **_PLAIN, "lease": 300.0, "heartbeat": 30.0,
            "grace": 3600.0,  # what runs is finished
        },
        task={"max_attempts": 3, "retry": 0.0},
        table={
            "table": "execution_jobs",
            "states": {"queued": "queued", "running": "running", "succeeded": "completed", "failed": "failed"},
            "created_at": "created_at",
            "started_at": "started_at",
            "worker": "worker_id",
            "version": "version",
            "updated_at": "updated_at",
            "lease": 300.0,
            "max_attempts": 3,
            "payload": ["id", "recording_id", "csv_data", "config"],
        },
    ),
    "claim-check": Preset(
        settings={**_every(1.5), "after_job_delay": 0.5, **_ONE_AT_A_TIME, **_PLAIN, "lease": 600.0},
        task={"max_attempts": 3, "retry": 0.0},
        table={
            "table": "analysis_jobs",
            "states": {"queued": "queued", "running": "running", "succeeded": "done", "failed": "failed"},
            "created_at": "created_at",
            "updated_at": "updated_at",
            "attempts": "attempts",
            "counting": "at_claim",
            "max_attempts": 3,
            "claimed_at": "claimed_at",
            "lease": 600.0,
            "renew": False,
            "fence": "claim_id",
            "error_code": "last_error_code",
            "error_message": "last_error_message",
            "key": "cache_key",
            "token": "job_token",
            "results": {
                "bs_score": "bs_score", "result_json": "result_json", "model_used": "model_used",
                "perplexity_latency_ms": "perplexity_latency_ms",
            },
            "payload": ["id", "input_type", "input_value", "normalized_input", "cache_key", "attempts", "request_id"],
        },
    ),
    "crawl": Preset(
        settings={**_every(5.0), "claim_size": 1, "quarantine_after": 0, "lease": 120.0, "heartbeat": 10.0},
        task={"max_attempts": 3, "retry": 0.0, "isolation": "process"},
        table={
            "table": "crawl_jobs",
            "states": {
                "queued": "pending", "running": "processing", "succeeded": "completed", "failed": "failed",
                "paused": "paused", "cancelled": "cancelled",
            },
            "created_at": "created_at",
            "worker": "worker_id",
            "heartbeat_at": "last_heartbeat",
            "lease": 120.0,
            "attempts": "retry_count",
            "counting": "at_recovery",
            "max_attempts": "max_retries",
            "error_message": "error_message",
            "counts": {"table": "crawl_states", "id": "crawl_id", "pending": "total_pending"},
        },
    ),
    "docgen": Preset(
        settings={**_every(15.0), "claim_size": 50, "concurrency": 8, "threads": 8, **_PLAIN, "lease": 120.0},
        task={"max_attempts": 4, "retry": (60.0, 300.0, 900.0)},
    ),
}  # fmt: skip
