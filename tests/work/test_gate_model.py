"""A model of SQLite's gate: whoever waits for it, and what the holder needs to let go of it. Every schedule of a few
actors is tried, and random ones of many. No state may be without progress; designs that had one are kept here, planted,
as what must be found."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

State = tuple[tuple[str, int], ...]  # how many actors stand where

DONE = "done"
# Where an actor stands -> the pool that it keeps a thread of, by the word for it below.
KEEPS = {
    "tx at the gate": "calls", "tx left": "calls", "tx leaving": "calls", "tx asked": "default", "tx ends": "ends",
    "save at the gate": "calls", "save writes": "calls",
    "user at the gate": "default", "user writes": "default",
    "relayed at the gate": "helpers", "relayed writes": "helpers", "isolated told": "recording",
}  # fmt: skip
# Those that hold the gate.
HOLD = {
    "tx inside", "tx asks", "tx asked", "tx to end", "tx ends", "tx leaving", "save writes", "user writes",
    "relayed writes", "thread writes", "process writes", "isolated inside", "isolated to tell", "isolated told",
    "isolated ends",
}  # fmt: skip


@dataclass(frozen=True)
class Design:
    """Which threads a call of a coroutine runs on (None: one of its own, always there), and how many there are."""

    calls: str | None = "calls"  # checkpoints, and what opens a transaction
    ends: str | None = None  # what commits it or rolls it back
    recording: str | None = None  # what answers a process of its own that is about to commit
    threads: int = 2

    def pool_of(self, place: str) -> str | None:
        kept = KEEPS.get(place)
        return getattr(self, kept) if kept in ("calls", "ends", "recording") else kept


MOVES: dict[str, tuple[str, ...]] = {
    # A handler's transaction in a coroutine. Its block may await something of asyncio's default executor.
    "tx wants": ("tx at the gate",),
    "tx at the gate": ("tx inside",),
    "tx left": ("tx leaving",),
    "tx inside": ("tx asks", "tx to end"),
    "tx asks": ("tx asked",),
    "tx asked": ("tx to end",),
    "tx to end": ("tx ends",),
    # A transaction in a process of its own tells its worker before it commits.
    "isolated wants": ("isolated inside",),
    "isolated inside": ("isolated to tell",),
    "isolated to tell": ("isolated told",),
    "isolated told": ("isolated ends",),
    # What a user has offloaded to the default executor gives up after a while.
    "user at the gate": ("user writes", DONE),
}
# What may happen to an actor besides. Nobody can count on it. (One that is cancelled while a thread opens its
# transaction leaves it to that thread to close it.)
MISHAPS: dict[str, tuple[str, ...]] = {
    "tx wants": (DONE,), "tx at the gate": ("tx left",), "tx inside": ("tx to end",), "tx asks": ("tx to end",),
    "process at the gate": (DONE,), "process writes": (DONE,),
}  # fmt: skip


def moves(place: str) -> tuple[str, ...]:
    """Where an actor goes from here, as soon as what it needs there is free."""
    kind, _, where = place.partition(" ")
    plain = {"wants": f"{kind} at the gate", "at the gate": f"{kind} writes"}
    return () if place == DONE else MOVES.get(place, (plain.get(where, DONE),))


def steps(state: State, design: Design, *, mishaps: bool = True) -> Iterator[State]:
    there = Counter(dict(state))
    busy = Counter[str | None]()
    for place, many in there.items():
        busy[design.pool_of(place)] += many
    held = sum(many for place, many in there.items() if place in HOLD)
    assert held <= 1
    for place in there:
        for to in moves(place) + (MISHAPS.get(place, ()) if mishaps else ()):
            pool = design.pool_of(to)
            if to in HOLD and place not in HOLD and held:
                continue
            if pool is not None and pool != design.pool_of(place) and busy[pool] >= design.threads:
                continue
            after = there.copy()
            after[place] -= 1
            after[to] += 1
            yield tuple(sorted((+after).items()))


def stands_still(state: State, design: Design) -> bool:
    return {place for place, _ in state} != {DONE} and not any(True for _ in steps(state, design, mishaps=False))


def start(**actors: int) -> State:
    return tuple(sorted((f"{kind} wants", many) for kind, many in actors.items() if many))


def stuck(design: Design, **actors: int) -> State | None:
    """A state without progress that some schedule leads to."""
    first = start(**actors)
    seen, left = {first}, [first]
    while left:
        state = left.pop()
        if stands_still(state, design):
            return state
        new = set(steps(state, design)) - seen
        seen |= new
        left += new
    return None


OURS = Design()


def test_no_schedule_of_a_few_leads_to_a_standstill() -> None:
    assert stuck(OURS, tx=3, save=3, thread=1, process=1) is None
    assert stuck(OURS, tx=2, save=3, user=3) is None
    assert stuck(OURS, isolated=2, relayed=3, tx=1, save=2) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_random_schedule_of_many_leads_to_a_standstill(seed: int) -> None:
    chance = random.Random(seed)
    design = Design(threads=chance.choice([1, 2, 6]))
    state = start(
        **{kind: chance.randint(0, 60) for kind in ("tx", "save", "thread", "process", "isolated", "relayed")}
    )
    while {place for place, _ in state} - {DONE}:
        possible = list(steps(state, design))
        assert possible, (seed, state)
        state = chance.choice(possible)


@pytest.mark.parametrize(
    ("planted", "actors"),
    [
        (Design(calls="default", ends="default"), {"tx": 1, "save": 2}),  # all on asyncio's default executor
        (Design(ends="calls"), {"tx": 1, "save": 2}),  # on threads of ours, but the same ones
        (Design(ends="calls"), {"tx": 3}),
        (Design(calls="default"), {"tx": 1, "save": 2}),  # what the holder's block awaits may need them
        (Design(recording="helpers"), {"isolated": 1, "relayed": 2}),
    ],
)
def test_a_design_that_can_stand_still_is_found(planted: Design, actors: dict[str, int]) -> None:
    state = stuck(planted, **actors)
    assert state is not None
    assert any(place in HOLD for place, _ in state), "somebody holds the gate, and can't let go of it"
    assert stuck(OURS, **actors) is None
