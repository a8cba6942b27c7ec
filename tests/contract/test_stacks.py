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
    assert store.stack_requests.unanswered() == []
    with theirs.stack_requests.asking(held.id, held.fence) as question:
        assert store.stack_requests.unanswered() == [(held.id, held.fence)]
        assert theirs.stack_requests.look(question) == (None, None, True, State.RUNNING)
        store.stack_requests.answer(held.id, held.fence, "here")
        assert store.stack_requests.unanswered() == []
        answer, at, running, _ = theirs.stack_requests.look(question)
        assert (answer, running, at is not None) == ("here", True, True)
    assert store.db.read("stack_answer", id=question) == []


def test_two_who_ask_at_once_both_get_an_answer(store: Store) -> None:
    held = a_running_job(store)
    with store.stack_requests.asking(held.id, held.fence) as one:
        with store.stack_requests.asking(held.id, held.fence) as two:
            assert store.stack_requests.unanswered() == [(held.id, held.fence)]
            store.stack_requests.answer(held.id, held.fence, "here")
            assert store.stack_requests.look(two).answer == "here"
        assert store.stack_requests.look(one).answer == "here"


def test_an_answer_with_another_fence_answers_nothing(store: Store) -> None:
    held = a_running_job(store)
    with store.stack_requests.asking(held.id, held.fence) as question:
        store.stack_requests.answer(held.id, str(uuid.uuid4()), "somewhere else")
        assert store.stack_requests.look(question).answer is None


def test_whoever_waits_sees_that_the_attempt_is_over(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    with store.stack_requests.asking(held.id, held.fence) as question:
        store.attempts.release(ref(held))
        assert store.stack_requests.look(question)[2:] == (False, State.QUEUED)
        [again] = claim(store).jobs
        assert store.stack_requests.look(question)[2:] == (False, State.RUNNING)
        store.attempts.succeed(ref(again))
        store.operator.delete(str(held.id))
        assert store.stack_requests.look(question)[2:] == (False, None)


def test_questions_that_nobody_took_back_are_forgotten(store: Store, clock: Clock) -> None:
    held = a_running_job(store)
    store.db.write("ask_stack", id=str(uuid.uuid4()), job_id=held.id, fence=held.fence)  # by a process that was killed
    clock.advance(FORGOTTEN + 1)
    with store.stack_requests.asking(99, held.fence):
        pass
    assert store.stack_requests.unanswered() == []
