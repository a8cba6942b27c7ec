"""Decides what becomes of a job whose process died or whose worker went silent. Pure: the store writes it down."""

from __future__ import annotations

import msgspec

from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error

FREE_LOSSES = 2  # times in a row that a job may lose a process it shares with others before it is charged for that


def runs_isolated(suspicion: int) -> bool:
    """Does the next attempt get a process of its own? Once may be chance: a deployment, a lost host, another job at
    fault. The second time in a row it is worth a process to find out."""
    return suspicion >= FREE_LOSSES


class Verdict(msgspec.Struct, frozen=True):
    state: State
    attempt: int
    crashes: int
    suspicion: int
    charged: bool
    error: Error


def verdict(
    *,
    attempt: int,
    max_attempts: int,
    crashes: int,
    suspicion: int,
    cancel: bool,
    pause: bool,
    company: bool,
    quarantine_after: int,
    cause: str | None = None,
) -> Verdict:
    """A job that was alone in its process crashed it: the attempt is charged, the crash counted. In `company` nobody
    knows whose fault it was: the first two times in a row the attempt is refunded and the job runs again at once, the
    second time in a process of its own. From the third time on it is charged like a crash of its own, so that a poison
    job which is never caught alone ends, too. Enough charged crashes in a row quarantine it. A stored cancel is always
    honoured, a stored pause if the job would go back to the queue. `cause`: how its process ended, if its worker is
    alive and knows."""
    told = cause or "its worker went silent"
    if company and suspicion < FREE_LOSSES:
        attempt, suspicion, charged = attempt - 1, suspicion + 1, False
        error = Error("LOST", f"{told} while it ran among others")
    else:
        crashes, charged = crashes + 1, True
        again = ", which had happened among other jobs before" if company else ""
        error = Error("CRASHED", f"{told} while it ran{again}")
    last = f"; the last time {cause}" if cause else ""
    state = State.QUEUED
    if cancel:
        state = State.CANCELLED
    elif charged and 0 < quarantine_after <= crashes:
        state = State.FAILED
        error = Error("QUARANTINED", f"it ended its worker {crashes} times in a row{last}")
    elif charged and attempt >= max_attempts:
        state = State.FAILED
        error = Error("CRASHED", f"Job crashed and exceeded max retries{last}")
    elif pause:
        state = State.PAUSED
    return Verdict(state, attempt, crashes, suspicion, charged, error)
