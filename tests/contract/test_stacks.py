"""A question travels to the holder of a job, and its answer back."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from holdfast.model.lifecycle import State
from holdfast.store.base import Store
from holdfast.store.stack_requests import FORGOTTEN
from tests.factories import Clock, a_running_job, claim, ref


def test_the_holder_sees_the_question_and_whoever_asked_the_answer(stores: Callable[..., Store], store: Store) -> None:
    held, theirs = a_running_job(store), stores()
    assert store.stack_asks() == []
    with theirs.asking_stack(held.id, held.fence) as question:
        assert store.stack_asks() == [(held.id, held.fence)]
        assert theirs.stack_answer(question) == (None, None, True, State.RUNNING)
        store.answer_stack(held.id, held.fence, "here")
        assert store.stack_asks() == []
        answer, at, running, _ = theirs.stack_answer(question)
        assert (answer, running, at is not None) == ("here", True, True)
    assert store.read("stack_answer", id=question) == []


def test_two_who_ask_at_once_both_get_an_answer(store: Store) -> None:
    held = a_running_job(store)
    with store.asking_stack(held.id, held.fence) as one:
        with store.asking_stack(held.id, held.fence) as two:
            assert store.stack_asks() == [(held.id, held.fence)]
            store.answer_stack(held.id, held.fence, "here")
            assert store.stack_answer(two).answer == "here"
        assert store.stack_answer(one).answer == "here"


def test_an_answer_with_another_fence_answers_nothing(store: Store) -> None:
    held = a_running_job(store)
    with store.asking_stack(held.id, held.fence) as question:
        store.answer_stack(held.id, str(uuid.uuid4()), "somewhere else")
        assert store.stack_answer(question).answer is None


def test_whoever_waits_sees_that_the_attempt_is_over(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    with store.asking_stack(held.id, held.fence) as question:
        store.release(ref(held))
        assert store.stack_answer(question)[2:] == (False, State.QUEUED)
        [again] = claim(store).jobs
        assert store.stack_answer(question)[2:] == (False, State.RUNNING)
        store.succeed(ref(again))
        store.delete(str(held.id))
        assert store.stack_answer(question)[2:] == (False, None)


def test_questions_that_nobody_took_back_are_forgotten(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    store.write("ask_stack", id=str(uuid.uuid4()), job_id=held.id, fence=held.fence)  # by a process that was killed
    clock.advance(FORGOTTEN + 1)
    with store.asking_stack(99, held.fence):
        pass
    assert store.stack_asks() == []
