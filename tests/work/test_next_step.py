"""What the desk does next, and how long it may wait: pure decisions, without a database, threads or a clock."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.worker.desk import DeskState, Do, LookFor, NextStep, RunnerState, Timers, deadline, next_step

NOW = 100.0
WANTS_LOOK = RunnerState(0, wants_look=True)
FULL = RunnerState(0, room=False, wants_look=True)
QUIET = RunnerState(0)


def state(*runners: RunnerState, **values: Any) -> DeskState:
    return DeskState(now=NOW, runners=runners or (QUIET,), **values)


def until(state: DeskState, *, has_peers: bool = False, **timers: Any) -> float | None:
    return deadline(state, Timers(**timers), has_peers=has_peers)


def test_an_idle_desk_waits_until_somebody_rings() -> None:
    assert next_step(state()) is Do.WAIT
    assert until(state()) is None


def test_what_is_known_least_comes_first() -> None:
    """A success that may not be committed, then crashes, then claims that may have happened; then the rest."""
    everything: dict[str, Any] = {
        "to_verify": True, "crashes_at": NOW, "unknown_claims": True, "expired_jobs": True, "outcomes": True,
    }  # fmt: skip
    steps: list[NextStep] = []
    for name in ("to_verify", "crashes_at", "unknown_claims"):
        steps.append(next_step(state(WANTS_LOOK, **everything)))
        del everything[name]
    steps.append(next_step(state(WANTS_LOOK, **everything)))
    assert steps == [Do.VERIFY, Do.REPORT_CRASHES, Do.RECOVER_CLAIM, LookFor((0,))]


def test_jobs_are_expired_once_they_are_in_the_queue_again() -> None:
    assert next_step(state(expired_jobs=True, outcomes=True)) is Do.RECORD
    assert next_step(state(WANTS_LOOK, expired_jobs=True)) is Do.EXPIRE


def test_crashes_whose_rows_were_locked_are_reported_when_it_is_time() -> None:
    later = state(crashes_at=NOW + 1.0)
    assert (next_step(later), until(later)) == (Do.WAIT, NOW + 1.0)
    assert next_step(replace(later, now=NOW + 1.0)) is Do.REPORT_CRASHES


def test_it_looks_for_those_runners_that_want_a_look_and_have_room() -> None:
    runners = (WANTS_LOOK, RunnerState(1, room=False, wants_look=True), RunnerState(2), RunnerState(3, wants_look=True))
    assert next_step(state(*runners)) == LookFor((0, 3))
    assert next_step(state(FULL)) is Do.WAIT


def test_who_records_also_looks_where_the_last_look_found_something() -> None:
    found = RunnerState(0, found_jobs=True)
    assert next_step(state(found)) is Do.WAIT
    assert next_step(state(found, outcomes=True)) == LookFor((0,))
    assert next_step(state(replace(found, room=False), outcomes=True)) is Do.RECORD


@pytest.mark.parametrize("forbidden", [{"claiming": False}, {"budget": 0}])
def test_nothing_is_claimed_if_that_is_forbidden_and_outcomes_are_recorded_all_the_same(
    forbidden: dict[str, Any],
) -> None:
    assert next_step(state(WANTS_LOOK, **forbidden)) is Do.WAIT
    assert next_step(state(WANTS_LOOK, **forbidden, outcomes=True)) is Do.RECORD
    assert next_step(state(WANTS_LOOK, **forbidden, urgent_leases=True)) is Do.RECORD


def test_who_can_not_get_rid_of_outcomes_claims_nothing() -> None:
    assert next_step(state(WANTS_LOOK, outcomes=True, database_away=True)) is Do.RECORD
    assert next_step(state(WANTS_LOOK, database_away=True)) == LookFor((0,)), "to see whether it is back"
    assert next_step(state(WANTS_LOOK, outcomes=True, one_by_one=True)) is Do.RECORD


def test_spent_leases_wait_for_another_round_trip_unless_none_will_come() -> None:
    assert next_step(state(spent_leases=True)) is Do.WAIT
    assert next_step(state(spent_leases=True, claiming=False)) is Do.RECORD
    assert next_step(state(urgent_leases=True)) is Do.RECORD


def test_a_pause_between_jobs_puts_a_look_off() -> None:
    pausing = state(WANTS_LOOK, not_before=NOW + 0.5)
    assert (next_step(pausing), until(pausing)) == (Do.WAIT, NOW + 0.5)
    quiet = replace(pausing, runners=(QUIET,))
    assert until(quiet, look_at=NOW + 0.1) == NOW + 0.5, "looks that are planned, too"
    assert until(quiet) is None
    assert next_step(replace(pausing, now=NOW + 0.5)) == LookFor((0,))


def test_it_waits_until_the_first_of_all_that_is_planned() -> None:
    names = ("look_at", "due_at", "reserve_at", "wake_peers_at", "unblock_at", "late_at")
    planned: dict[str, Any] = {name: NOW + 1.0 + n for n, name in enumerate(names)}
    for name in names:
        assert until(state(crashes_at=NOW + 99.0), **planned) == planned.pop(name)
    assert until(state(crashes_at=NOW + 99.0)) == NOW + 99.0


def test_a_full_worker_sets_no_timer_for_looks_unless_it_has_peers_to_tell() -> None:
    planned: dict[str, Any] = {"look_at": NOW + 1.0, "due_at": NOW + 2.0}
    assert until(state(FULL), **planned) is None
    assert until(state(FULL), has_peers=True, **planned) == NOW + 1.0


INSTANTS = st.one_of(st.none(), st.floats(NOW - 10, NOW + 10))
RUNNERS = st.lists(
    st.builds(
        RunnerState, st.integers(0, 5), room=st.booleans(), wants_look=st.booleans(), found_jobs=st.booleans(),
    ), min_size=1, max_size=3,
).map(tuple)  # fmt: skip
STATES = st.builds(
    DeskState, now=st.just(NOW), runners=RUNNERS, outcomes=st.booleans(), to_verify=st.booleans(),
    crashes_at=INSTANTS, unknown_claims=st.booleans(), expired_jobs=st.booleans(),
    urgent_leases=st.booleans(), spent_leases=st.booleans(), one_by_one=st.booleans(), database_away=st.booleans(),
    claiming=st.booleans(), budget=st.sampled_from([None, 0, 5]), not_before=st.floats(NOW - 10, NOW + 10),
)  # fmt: skip


@given(STATES)
def test_outcomes_never_wait_and_no_full_runner_is_claimed_for(state: DeskState) -> None:
    step = next_step(state)
    if state.outcomes or state.to_verify or state.unknown_claims:
        assert step is not Do.WAIT
    if isinstance(step, LookFor):
        assert state.may_claim
        assert set(step.runners) <= {runner.number for runner in state.runners if runner.room}


@pytest.mark.parametrize("put_off", [0.0, 5.0])
@given(STATES)
def test_a_crash_or_a_look_that_is_only_put_off_ends_the_wait(put_off: float, state: DeskState) -> None:
    state = replace(state, not_before=NOW + put_off)
    ends = until(state)
    if state.crashes_at is not None:
        assert ends is not None
        assert ends <= state.crashes_at
    if put_off and any(runner.room and runner.wants_look for runner in state.runners):
        assert ends is not None
        assert ends <= NOW + put_off
