"""What becomes of a job whose worker went silent. A pure decision; the store writes it down."""

from __future__ import annotations

import msgspec

from holdfast.model.lifecycle import State
from holdfast.model.outcome import Error

# How long a suspect waits for a worker that can run it alone, by how often in a row it was there at a crash. Once may
# be chance (a deployment, a machine lost): it hardly waits. Three times: it waits as long as it takes.
LAPSE = {1: 1.0, 2: 60.0}


def alone_for(suspicion: int) -> float:
    """Seconds a suspect keeps its worker to itself; who lives that long may have company again. Once suspected, hardly
    any: a whole host may have died, and everything it held is to run again soon. Then longer each time, so that even
    a slow poison is at last alone when it acts."""
    return LAPSE[1] if suspicion <= 1 else 10.0 * 6.0 ** min(suspicion - 2, 6)


class Verdict(msgspec.Struct, frozen=True):
    state: State
    attempt: int
    crashes: int
    suspicion: int
    suspect: bool
    lapse: float | None
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
    """A job that was alone with its worker crashed it: charged and counted. One in company is a suspect: uncharged,
    and next to be run alone, so that a poison job blames itself and not its neighbours. A stored request is honoured
    where the job would have gone back to the queue; a cancel always (R2.5). `cause`: how its runner process ended; the
    worker it belonged to lives on to tell, and will run a suspect alone, so that has more time to wait for it."""
    told = cause or "its worker went silent"
    if company:
        attempt, suspicion, charged = attempt - 1, suspicion + 1, False
        error = Error("LOST", f"{told} while it ran among others")
    else:
        crashes, charged = crashes + 1, True
        error = Error("CRASHED", f"{told} while it ran")
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
    # Once under suspicion, always alone, until an attempt ends in any other way.
    suspect = state is State.QUEUED and (company or suspicion > 0)
    lapse = LAPSE.get(suspicion + (cause is not None)) if suspect else None
    return Verdict(state, attempt, crashes, suspicion, suspect, lapse, charged, error)
