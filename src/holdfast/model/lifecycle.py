"""The state machine, stated once. SQL guards itself; this table says what it must guard."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    PAUSED = "paused"
    CANCELLED = "cancelled"


FINISHED = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED})
UNFINISHED = frozenset(State) - FINISHED

_Q, _R, _S, _F, _P, _C = State

# verb -> from, to. A stored request (pause, cancel) can change where a verb leads; every possible state is listed.
TRANSITIONS: dict[str, tuple[frozenset[State], frozenset[State]]] = {
    "claim": (frozenset({_Q}), frozenset({_R})),
    "expire": (frozenset({_Q}), frozenset({_C})),
    # by the holder of the fence
    "succeed": (frozenset({_R}), frozenset({_S})),
    "fail": (frozenset({_R}), frozenset({_F, _C})),
    "reschedule": (frozenset({_R}), frozenset({_Q, _P, _C})),
    "release": (frozenset({_R}), frozenset({_Q, _P, _C})),
    "park": (frozenset({_R}), frozenset({_P, _Q, _C})),
    "stop": (frozenset({_R}), frozenset({_C})),
    # by the watchdog
    "rescue": (frozenset({_R}), frozenset({_Q, _F, _P, _C})),
    # by operators
    "pause": (frozenset({_Q}), frozenset({_P})),
    "resume": (frozenset({_P}), frozenset({_Q})),
    "cancel": (frozenset({_Q, _P, _F}), frozenset({_C})),
    "retry": (frozenset({_F, _C}), frozenset({_Q})),
}

# Requests to a running job are stored in its row; the state changes when they take effect.
REQUESTS = frozenset({"pause", "cancel"})

# Verbs that change a job without moving it, or remove it: the states they are possible in.
IN_PLACE: dict[str, frozenset[State]] = {
    "checkpoint": frozenset({_R}),
    "progress": frozenset({_R}),
    "step": frozenset({_R}),
    "change": frozenset({_Q, _P}),
    "delete": frozenset({_Q, _P, _S, _F, _C}),
}
