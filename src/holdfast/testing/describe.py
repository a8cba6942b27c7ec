"""Describes jobs in the messages of failed assertions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.app import Holdfast
from holdfast.model.durations import short_duration
from holdfast.model.job import JobRecord
from holdfast.model.lifecycle import State
from holdfast.model.why import Reason, Why
from holdfast.redact import hide_secrets

UNSAID = (Why.QUEUE_PAUSED, Why.TASK_PAUSED, Why.EXPIRED)  # what the job's own row does not show
SHOWN = 20  # jobs listed in one message


def listed(app: Holdfast, records: Sequence[JobRecord], now: datetime) -> str:
    """One line for each job, the newest last."""
    if not records:
        return "there are no jobs"
    lines = [f"  {told(app, record, now)}" for record in records[-SHOWN:]]
    if len(records) > SHOWN:
        lines.insert(0, f"  … and {len(records) - SHOWN} older ones")
    return "there are:\n" + "\n".join(lines)


def told(app: Holdfast, record: JobRecord, now: datetime) -> str:
    """One job: its call, its queue and its state."""
    args = hide_secrets(msgspec.json.decode(record.args), app._secrets(record.task))
    call = ", ".join(f"{name}={value!r:.100}" for name, value in args.items()) if isinstance(args, dict) else repr(args)
    holds = "".join(f"; {reason.text}" for reason in blocking(app.why(record.id)) if reason.code in UNSAID)
    return f"job {record.id} {record.task}({call}) in queue {record.queue}: {standing(record, now)}{holds}"


def blocking(reasons: Sequence[Reason]) -> list[Reason]:
    """The reasons that keep the kit, a worker that has every task, from running a job."""
    return [reason for reason in reasons if reason.blocks and reason.code not in (Why.NO_WORKER, Why.NO_HANDLER)]


def standing(record: JobRecord, now: datetime) -> str:
    error = f"{record.error_code}: {record.error_message}" if record.error_code else ""
    tries = f"attempt {record.attempt} of {record.max_attempts}"
    match record.state:
        case State.QUEUED:
            wait = (record.run_at - now).total_seconds()
            due = "due now" if wait <= 0 else f"due in {short_duration(wait)} ({record.run_at.isoformat()})"
            return f"queued, {due}" + (f", after {tries}: {error}" if record.attempt and error else "")
        case State.RUNNING:
            return f"running, {tries}, by {record.worker}"
        case State.SUCCEEDED:
            result = None if record.result is None else hide_secrets(msgspec.json.decode(record.result))
            return f"succeeded, {tries}, with {result!r:.100}"
        case State.FAILED:
            return f"failed, {tries}: {error}"
        case _:
            return record.state.value + (f": {error}" if error else "")
