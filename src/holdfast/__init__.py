"""Durable background jobs in the database you already have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.adopting import Adopted
    from holdfast.app import Holdfast
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
        OutcomeUnknown,
        Refused,
        RequestRefused,
        ResultMisfit,
        Retry,
        RightMissing,
        RowLocked,
        SchemaOutdated,
        ServerUnavailable,
        Snooze,
        StoreError,
        StoreUnavailable,
        TooManyConnections,
        UnknownTask,
        ValueRefused,
        WaitTimeout,
        WorkerNotFound,
    )
    from holdfast.job import Job
    from holdfast.model.access import Access, ApiKey
    from holdfast.model.alerts import Alert
    from holdfast.model.audit import AuditRecord, BulkOperation
    from holdfast.model.content_key import content_key
    from holdfast.model.cron import CronRecord
    from holdfast.model.drain import Drain
    from holdfast.model.filter import BadFilter
    from holdfast.model.health import Health, HealthMetrics
    from holdfast.model.isolation import Limits
    from holdfast.model.job import (
        AttemptRecord,
        BulkPreview,
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
        TaskSummary,
        WorkerStatus,
    )
    from holdfast.model.lifecycle import State
    from holdfast.model.metrics import Metrics, PendingWork, QueueDepth, RunTimes
    from holdfast.model.polling import Polling
    from holdfast.model.retry import Exponential
    from holdfast.model.stack import Stack
    from holdfast.model.text import BadName
    from holdfast.model.why import QueueWhy, Reason, ReasonCount, Why
    from holdfast.redact import Secret
    from holdfast.settings import QueueSettings, Settings
    from holdfast.tasks.around import AttemptInfo
    from holdfast.tasks.context import JobContext
    from holdfast.tasks.current import JobInfo
    from holdfast.tasks.decorator import TaskDecorator
    from holdfast.tasks.resources import Resource
    from holdfast.tasks.task import AsyncTask, Bound, Enqueuer, SyncTask, Task
    from holdfast.waiters import Updates
    from holdfast.worker.worker import Worker

__all__ = [
    "Access",
    "Adopted",
    "Alert",
    "ApiKey",
    "AsyncTask",
    "AttemptInfo",
    "AttemptRecord",
    "AuditRecord",
    "BadArguments",
    "BadFilter",
    "BadName",
    "BadSettings",
    "Bound",
    "BulkOperation",
    "BulkPreview",
    "Cancel",
    "Changed",
    "Crashed",
    "CronRecord",
    "Drain",
    "Enqueuer",
    "ErrorGroup",
    "Exponential",
    "Fail",
    "Finding",
    "Health",
    "HealthMetrics",
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
    "Metrics",
    "NotFinished",
    "OutcomeUnknown",
    "Page",
    "Pause",
    "PendingWork",
    "Polling",
    "Processed",
    "Progress",
    "QueueDepth",
    "QueueSettings",
    "QueueSummary",
    "QueueWhy",
    "Reason",
    "ReasonCount",
    "Refused",
    "RequestRefused",
    "Resource",
    "ResultMisfit",
    "Retry",
    "RightMissing",
    "RowLocked",
    "RunTimes",
    "SchemaOutdated",
    "Secret",
    "ServerUnavailable",
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
    "TaskSummary",
    "TooManyConnections",
    "UnknownTask",
    "Updates",
    "ValueRefused",
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
    "Access": "model.access",
    "Adopted": "adopting",
    "Alert": "model.alerts",
    "ApiKey": "model.access",
    "AsyncTask": "tasks.task",
    "AttemptInfo": "tasks.around",
    "AttemptRecord": "model.job",
    "AuditRecord": "model.audit",
    "BadFilter": "model.filter",
    "BadName": "model.text",
    "Bound": "tasks.task",
    "BulkOperation": "model.audit",
    "BulkPreview": "model.job",
    "Changed": "model.job",
    "CronRecord": "model.cron",
    "Drain": "model.drain",
    "Enqueuer": "tasks.task",
    "ErrorGroup": "model.job",
    "Exponential": "model.retry",
    "Finding": "doctor.finding",
    "Health": "model.health",
    "HealthMetrics": "model.health",
    "Holdfast": "app",
    "Job": "job",
    "JobContext": "tasks.context",
    "JobInfo": "tasks.current",
    "JobRecord": "model.job",
    "LastError": "model.job",
    "Level": "doctor.finding",
    "Limits": "model.isolation",
    "Metrics": "model.metrics",
    "Page": "model.job",
    "Pause": "model.job",
    "PendingWork": "model.metrics",
    "Polling": "model.polling",
    "Processed": "model.job",
    "Progress": "model.job",
    "QueueDepth": "model.metrics",
    "QueueSettings": "settings",
    "QueueSummary": "model.job",
    "QueueWhy": "model.why",
    "Reason": "model.why",
    "ReasonCount": "model.why",
    "Resource": "tasks.resources",
    "RunTimes": "model.metrics",
    "Secret": "redact",
    "Settings": "settings",
    "Stack": "model.stack",
    "State": "model.lifecycle",
    "StepRecord": "model.job",
    "SyncTask": "tasks.task",
    "Task": "tasks.task",
    "TaskDecorator": "tasks.decorator",
    "TaskSummary": "model.job",
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

    def __dir__() -> list[str]:
        """For shells that complete names: most are imported when they are first asked for."""
        return __all__
