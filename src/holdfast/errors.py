"""Every exception of Holdfast. Imports nothing of ours.

Errors that people meet begin with a number (`HF1302`) that docs/errors.md explains, and say what happened and what to
do. A class has the number of its usual case; where it covers several, whoever raises it names another (`number=`). The
ones a handler raises to steer its own job (`Retry`, `Fail`, `Snooze`, `Cancel`) are at the end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

UNGUARDED = "HF1115"  # an application used the database while it was imported to run its jobs


class HoldfastError(Exception):
    """The base of everything Holdfast raises on purpose."""

    number = "HF1001"

    def __init__(self, message: str, *, number: str | None = None) -> None:
        super().__init__(message)
        if number is not None:
            self.number = number

    @property
    def message(self) -> str:
        """What happened and what to do, without the number."""
        return str(self.args[0])

    def __str__(self) -> str:
        return f"{self.number} {self.message}"


class JobNotFound(HoldfastError):
    """There is no job with this id in this database."""

    number = "HF1301"


class Refused(HoldfastError):
    """This verb is not possible from the state the job is in."""

    number = "HF1302"


class LeaseLost(HoldfastError):
    """The job was taken over by someone else; what this attempt still writes is dropped."""

    number = "HF1303"


class UnknownTask(HoldfastError):
    """No task of this name is declared in this application."""

    number = "HF1201"


class BadArguments(HoldfastError):
    """The arguments of a task don't fit its signature, or can't be kept as JSON."""

    number = "HF1202"


class BadSettings(HoldfastError):
    """A setting has a value that can't work."""

    number = "HF1101"


class StoreError(HoldfastError):
    """The database refused a statement for a reason that trying again won't change."""

    number = "HF3001"


class StoreUnavailable(StoreError):
    """The database can't be reached or is too busy just now; trying again may help."""

    number = "HF3002"


class TooManyConnections(StoreUnavailable):
    """The server, or a pooler in front of it, has no connection left for us just now."""

    number = "HF3405"


class OutcomeUnknown(StoreUnavailable):
    """The connection broke while a commit was under way: it may have happened or not."""

    number = "HF3003"


class RowLocked(StoreUnavailable):
    """Someone else's open transaction holds a lock on a row we need."""

    number = "HF3004"


class ValueRefused(StoreError):
    """The database refused a value for what it is: the same again would be refused again."""

    number = "HF3005"


class RightMissing(StoreError):
    """The database does not allow this user, or its policies don't allow it, what was asked."""

    number = "HF3006"


class SchemaOutdated(StoreError):
    """The schema in the database and this version of Holdfast don't fit together."""

    number = "HF2101"


class JobFailed(HoldfastError):
    """The job that was waited for failed or was cancelled. `code` is what the job failed with."""

    number = "HF1304"

    def __init__(self, message: str, *, code: str | None = None, job_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.job_id = job_id


class WaitTimeout(HoldfastError, TimeoutError):
    """The job had not finished when the time given to `wait` was over; it goes on all the same."""

    number = "HF1305"


class Crashed(HoldfastError):
    """An attempt ended with its process, or with its worker: what `on_error` is called with. `code` is that of the
    attempt: CRASHED, LOST (others ran there, too) or QUARANTINED."""

    number = "HF1312"

    def __init__(self, message: str, *, code: str = "CRASHED") -> None:
        super().__init__(message)
        self.code = code


class Steer(Exception):
    """What a handler raises to decide its own job's fate; not an error of Holdfast's."""


class Retry(Steer):
    """Try again after this long (seconds or timedelta). The attempt is charged; none left: the job fails."""

    def __init__(self, reason: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(reason or "the handler asked for another attempt")
        self.after = _seconds("Retry(after=…)", after)


class Fail(Steer):
    """Fail the job now, for good, without further attempts."""

    def __init__(self, reason: str, *, code: str = "FAILED") -> None:
        super().__init__(reason)
        self.code = code


class Snooze(Steer):
    """Give the job back until later (seconds or timedelta). The attempt is not charged."""

    def __init__(self, after: float | timedelta) -> None:
        super().__init__(f"snoozed for {after}")
        self.after = _seconds("Snooze(…)", after) or 0.0


class Cancel(Steer):
    """End the job as cancelled."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


def _seconds(what: str, value: Any) -> float | None:
    if value is None:
        return None
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not 0 <= seconds < 1e10:
        raise ValueError(f"{what} needs a delay of 0 or more seconds, not {value!r}")
    return seconds
