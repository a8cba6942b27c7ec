"""PL/pgSQL keeps the plan of its first call, which may have been for one row. Every function of an adopted table stays
linear all the same: after calls with one row, 6,000 rows take no more than their share of what 100 took."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from holdfast.model.outcome import Outcome
from holdfast.store.base import Store
from tests.adopt.postgres import Side, adopt, claim, settle

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

SMALL, LARGE = 100, 6000
SLACK = 3.0  # times its share that a large call may take, on a busy machine; a quadratic one takes more


def test_every_function_stays_linear_after_a_first_call_with_one_row(kept: Store, side: Side) -> None:
    adopt(kept, side)
    rounds(kept, side, 1)
    taken = [(rounds(kept, side, SMALL), rounds(kept, side, LARGE)) for _ in range(2)]
    shares = {}
    for what in taken[0][0]:
        small, large = (min(round[size][what] for round in taken) for size in (0, 1))
        shares[what] = large / max(small, 0.002) / (LARGE / SMALL)
    assert {what: share for what, share in shares.items() if share > SLACK} == {}


def rounds(store: Store, side: Side, rows: int) -> dict[str, float]:
    """Seconds that each kind of call took, with so many rows at once."""
    side.sql("truncate {s}.audits restart identity")
    settle(store)
    taken: dict[str, float] = {}

    def timed(what: str, call: Callable[[], object]) -> None:
        began = time.perf_counter()
        call()
        taken[what] = time.perf_counter() - began

    timed("insert", lambda: side.sql("insert into {s}.audits (url) select n from generate_series(1, %s) n", rows))
    timed("settle new rows", lambda: store.adopted.settle("audits", rows))
    held = claim(store, rows)  # before it is timed: arguments are the same
    assert len(held) == rows
    store.exchange([Outcome("release", one.id, one.fence) for one in held], None)
    side.sql("update {s}.audits set url = url || '!'")
    timed("claim with new arguments", lambda: held.__setitem__(slice(None), claim(store, rows)))
    assert len(held) == rows
    timed("beat", lambda: store.adopted.beat("audits"))
    results = [Outcome("succeed", one.id, one.fence, result=b'{"score": 1}') for one in held]
    timed("succeed", lambda: store.exchange(results, None))
    timed("update", lambda: side.sql("update {s}.audits set status = 'pending'"))
    timed("settle changes", lambda: store.adopted.settle("audits", rows))
    timed("sweep", lambda: store.adopted.sweep("audits", None, rows + 1))
    timed("sweep jobs", lambda: store.adopted.sweep("audits", "job:", 2 * rows))
    timed("delete", lambda: side.sql("delete from {s}.audits"))
    settle(store)
    return taken
