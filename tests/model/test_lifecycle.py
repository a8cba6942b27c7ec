from __future__ import annotations

from holdfast.model.lifecycle import FINISHED, IN_PLACE, REQUESTS, TRANSITIONS, UNFINISHED, State


def test_there_are_six_states_and_each_is_finished_or_not() -> None:
    assert [state.value for state in State] == ["queued", "running", "succeeded", "failed", "paused", "cancelled"]
    assert set(State) == FINISHED | UNFINISHED
    assert not FINISHED & UNFINISHED


def test_the_table_is_that_of_the_requirements() -> None:  # section 2
    edges = {(start, end) for starts, ends in TRANSITIONS.values() for start in starts for end in ends}
    assert {(start.value, end.value) for start, end in edges} == {
        ("queued", "running"), ("queued", "paused"), ("queued", "cancelled"),
        ("running", "succeeded"), ("running", "queued"), ("running", "failed"), ("running", "paused"),
        ("running", "cancelled"),
        ("paused", "queued"), ("paused", "cancelled"),
        ("failed", "queued"), ("failed", "cancelled"),
        ("cancelled", "queued"),
    }  # fmt: skip


def test_success_is_final() -> None:
    assert not any(State.SUCCEEDED in starts for starts, _ in TRANSITIONS.values())


def test_every_state_can_be_reached_from_the_first() -> None:
    reached = {State.QUEUED}
    while more := {
        end for starts, ends in TRANSITIONS.values() if starts & reached for end in ends if end not in reached
    }:
        reached |= more
    assert reached == set(State)


def test_requests_are_verbs_of_the_table_and_nothing_in_place_moves() -> None:
    assert set(TRANSITIONS) >= REQUESTS
    assert not set(TRANSITIONS) & set(IN_PLACE)
