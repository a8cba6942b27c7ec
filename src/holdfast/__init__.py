"""Durable background jobs in the database you already have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import Holdfast, TaskDecorator
    from holdfast.doctor.finding import Finding, Level
    from holdfast.errors import (
        BadArguments,
        BadSettings,
        Cancel,
        Crashed,
        Fail,
        HoldfastError,
        JobFailed,
        JobNotFound,
        LeaseLost,
        NotFinished,
        Refused,
        Retry,
        SchemaOutdated,
        Snooze,
        StoreError,
        StoreUnavailable,
        UnknownTask,
        WaitTimeout,
        WorkerNotFound,
    )
    from holdfast.job import Job
    from holdfast.model.audit import AuditRecord
    from holdfast.model.content_key import content_key
    from holdfast.model.cron import CronRecord
    from holdfast.model.isolation import Limits
    from holdfast.model.job import (
        AttemptRecord,
        Changed,
        ErrorGroup,
        JobRecord,
        LastError,
        Page,
        Pause,
        Processed,
        Progress,
        QueueSummary,
        StepRecord,
        WorkerStatus,
    )
    from holdfast.model.lifecycle import State
    from holdfast.model.retry import Exponential
    from holdfast.model.stack import Stack
    from holdfast.model.why import QueueWhy, Reason, ReasonCount, Why
    from holdfast.redact import Secret
    from holdfast.settings import Settings
    from holdfast.tasks.around import AttemptInfo
    from holdfast.tasks.context import JobContext
    from holdfast.tasks.current import JobInfo
    from holdfast.tasks.resources import Resource
    from holdfast.tasks.task import AsyncTask, Bound, Enqueuer, SyncTask, Task
    from holdfast.waiters import Updates
    from holdfast.worker.worker import Worker

__all__ = [
    "AsyncTask",
    "AttemptInfo",
    "AttemptRecord",
    "AuditRecord",
    "BadArguments",
    "BadSettings",
    "Bound",
    "Cancel",
    "Changed",
    "Crashed",
    "CronRecord",
    "Enqueuer",
    "ErrorGroup",
    "Exponential",
    "Fail",
    "Finding",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobContext",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "JobRecord",
    "LastError",
    "LeaseLost",
    "Level",
    "Limits",
    "NotFinished",
    "Page",
    "Pause",
    "Processed",
    "Progress",
    "QueueSummary",
    "QueueWhy",
    "Reason",
    "ReasonCount",
    "Refused",
    "Resource",
    "Retry",
    "SchemaOutdated",
    "Secret",
    "Settings",
    "Snooze",
    "Stack",
    "State",
    "StepRecord",
    "StoreError",
    "StoreUnavailable",
    "SyncTask",
    "Task",
    "TaskDecorator",
    "UnknownTask",
    "Updates",
    "WaitTimeout",
    "Why",
    "Worker",
    "WorkerNotFound",
    "WorkerStatus",
    "content_key",
]

# Each name is imported when it is first asked for. All of them together take several times as long as Python takes to
# start, and a worker is to hear signals before that.
_HOMES = {
    "AsyncTask": "tasks.task",
    "AttemptInfo": "tasks.around",
    "AttemptRecord": "model.job",
    "AuditRecord": "model.audit",
    "Bound": "tasks.task",
    "Changed": "model.job",
    "CronRecord": "model.cron",
    "Enqueuer": "tasks.task",
    "ErrorGroup": "model.job",
    "Exponential": "model.retry",
    "Finding": "doctor.finding",
    "Holdfast": "app",
    "Job": "job",
    "JobContext": "tasks.context",
    "JobInfo": "tasks.current",
    "JobRecord": "model.job",
    "LastError": "model.job",
    "Level": "doctor.finding",
    "Limits": "model.isolation",
    "Page": "model.job",
    "Pause": "model.job",
    "Processed": "model.job",
    "Progress": "model.job",
    "QueueSummary": "model.job",
    "QueueWhy": "model.why",
    "Reason": "model.why",
    "ReasonCount": "model.why",
    "Resource": "tasks.resources",
    "Secret": "redact",
    "Settings": "settings",
    "Stack": "model.stack",
    "State": "model.lifecycle",
    "StepRecord": "model.job",
    "SyncTask": "tasks.task",
    "Task": "tasks.task",
    "TaskDecorator": "app",
    "Updates": "waiters",
    "Why": "model.why",
    "Worker": "worker.worker",
    "WorkerStatus": "model.job",
    "content_key": "model.content_key",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
        value = globals()[name] = getattr(home, name)
        return value
