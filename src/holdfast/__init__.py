"""Durable background jobs in the database you already have."""

from holdfast.client import Holdfast
from holdfast.errors import (
    BadArguments,
    BadSettings,
    Cancel,
    Fail,
    HoldfastError,
    JobFailed,
    JobNotFound,
    LeaseLost,
    Refused,
    Retry,
    SchemaOutdated,
    Snooze,
    StoreError,
    StoreUnavailable,
    UnknownTask,
    WaitTimeout,
)
from holdfast.handle import Job
from holdfast.model.lifecycle import State
from holdfast.model.limits import Limits
from holdfast.model.retry import Exponential
from holdfast.redact import Secret
from holdfast.work.context import JobContext, JobInfo

__all__ = [
    "BadArguments",
    "BadSettings",
    "Cancel",
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
]
