"""Every exception of Holdfast. Imports nothing of ours.

An error that users see begins with a number (`HF1302`), which docs/errors.md explains, and says what happened and what
to do. A class has the number of its usual case; where it covers several, the code that raises it passes another
(`number=`). What a handler raises to decide about its own job (`Retry`, `Fail`, `Snooze`, `Cancel`) comes last."""

from __future__ import annotations

from typing import Any

from holdfast.durations import FORMS, Duration, to_seconds

UNGUARDED = "HF1115"  # an application used the database while it was being imported to run its jobs


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


class WorkerNotFound(HoldfastError):
    """There is no worker of this name or id in this database."""

    number = "HF1331"


class Refused(HoldfastError):
    """The job is in a state that does not allow this."""

    number = "HF1302"


class LeaseLost(HoldfastError):
    """Another worker has taken the job over; what this attempt still writes is dropped."""

    number = "HF1303"


class UnknownTask(HoldfastError):
    """No task of this name is declared in this application."""

    number = "HF1201"


class BadArguments(HoldfastError, ValueError):
    """The arguments don't fit the task's signature, or can't be stored as JSON."""

    number = "HF1202"


class BadSettings(HoldfastError):
    """A setting has a value that can't work."""

    number = "HF1101"


class StoreError(HoldfastError):
    """The database refused a statement, and would refuse it again."""

    number = "HF3001"


class StoreUnavailable(StoreError):
    """The database can't be reached or is too busy right now; trying again may help."""

    number = "HF3002"


class TooManyConnections(StoreUnavailable):
    """The server, or a pooler in front of it, has no free connection right now."""

    number = "HF3405"


class OutcomeUnknown(StoreUnavailable):
    """The connection broke during a commit, which may or may not have taken effect."""

    number = "HF3003"


class RowLocked(StoreUnavailable):
    """Another transaction holds a lock on a row we need."""

    number = "HF3004"


class ValueRefused(StoreError):
    """The database refused a value, and would refuse it again."""

    number = "HF3005"


class ResultMisfit(ValueRefused):
    """A job's result does not fit the columns of its row in an adopted table."""

    number = "HF3007"


class RightMissing(StoreError):
    """The database user, or a row-level policy, does not have the right to do this."""

    number = "HF3006"


class SchemaOutdated(StoreError):
    """The schema in the database does not fit this version of Holdfast."""

    number = "HF2101"


class JobFailed(HoldfastError):
    """The awaited job failed or was cancelled. `code` is the code of its error."""

    number = "HF1304"

    def __init__(self, message: str, *, code: str | None = None, job_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.job_id = job_id


class NotFinished(HoldfastError):
    """The job had no result yet when its handle last read it."""

    number = "HF1307"


class WaitTimeout(HoldfastError, TimeoutError):
    """The job did not finish within the time given to `wait`. The job itself is not affected."""

    number = "HF1305"


class RequestRefused(HoldfastError):
    """An HTTP request can't be answered. `status` is the HTTP status of the answer."""

    number = "HF1501"

    def __init__(self, message: str, *, status: int = 400, number: str | None = None) -> None:
        super().__init__(message, number=number)
        self.status = status


class ServerUnavailable(HoldfastError):
    """No answer came from the HTTP API; trying again may help."""

    number = "HF1512"


class Crashed(HoldfastError):
    """An attempt ended because its process or its worker died. `on_error` hooks receive it. `code` is the attempt's:
    CRASHED, LOST (other attempts ran in the same process) or QUARANTINED."""

    number = "HF1312"

    def __init__(self, message: str, *, code: str = "CRASHED") -> None:
        super().__init__(message)
        self.code = code


class Steer(Exception):
    """A handler raises one of these to decide what happens to its own job. Not an error of Holdfast."""


class Retry(Steer):
    """Try again after this long. The attempt counts; if it was the last one, the job fails."""

    code = "RETRY"  # of such an attempt, unless the handler names another

    def __init__(self, reason: str = "", *, after: Duration | None = None, code: str = code) -> None:
        super().__init__(reason or "the handler asked for another attempt")
        self.code = code
        self.after = _seconds("Retry(after=…)", after)


class Fail(Steer):
    """Fail the job now, without further attempts."""

    def __init__(self, reason: str = "", *, code: str = "FAILED") -> None:
        super().__init__(reason or "the handler failed the job, and gave no reason")
        self.code = code


class Snooze(Steer):
    """Give the job back until later. The attempt does not count."""

    def __init__(self, after: Duration) -> None:
        super().__init__(f"snoozed for {after}")
        self.after = _seconds("Snooze(…)", after) or 0.0


class Cancel(Steer):
    """Cancel the job."""

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)


def _seconds(what: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        return to_seconds(value)
    except ValueError:
        raise ValueError(f"{what} needs a delay of 0 or more {FORMS}, not {value!r:.80}") from None
