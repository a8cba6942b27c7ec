"""Durable background jobs in the database you already have."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.app import Holdfast
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
    from holdfast.model.isolation import Limits
    from holdfast.model.job import ErrorGroup, WorkerStatus
    from holdfast.model.lifecycle import State
    from holdfast.model.retry import Exponential
    from holdfast.redact import Secret
    from holdfast.tasks.around import AttemptInfo
    from holdfast.tasks.context import JobContext
    from holdfast.tasks.current import JobInfo

__all__ = [
    "AttemptInfo",
    "AuditRecord",
    "BadArguments",
    "BadSettings",
    "Cancel",
    "Crashed",
    "ErrorGroup",
    "Exponential",
    "Fail",
    "Holdfast",
    "HoldfastError",
    "Job",
    "JobContext",
    "JobFailed",
    "JobInfo",
    "JobNotFound",
    "LeaseLost",
    "Limits",
    "NotFinished",
    "Refused",
    "Retry",
    "SchemaOutdated",
    "Secret",
    "Snooze",
    "State",
    "StoreError",
    "StoreUnavailable",
    "UnknownTask",
    "WaitTimeout",
    "WorkerNotFound",
    "WorkerStatus",
    "content_key",
]

# Each name is imported when it is first asked for. All of them together take several times as long as Python takes to
# start, and a worker is to hear signals before that.
_HOMES = {
    "AuditRecord": "model.audit",
    "AttemptInfo": "tasks.around",
    "ErrorGroup": "model.job", "Exponential": "model.retry", "Holdfast": "app", "Job": "job",
    "JobContext": "tasks.context", "JobInfo": "tasks.current", "Limits": "model.isolation", "Secret": "redact",
    "State": "model.lifecycle", "content_key": "model.content_key",
    "WorkerStatus": "model.job",
}  # fmt: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = import_module(f"{__name__}.{_HOMES.get(name, 'errors')}")
        value = globals()[name] = getattr(home, name)
        return value
