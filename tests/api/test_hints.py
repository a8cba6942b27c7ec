"""A call as other job systems have it is refused with the name of what does that here."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import BadArguments, BadSettings, Holdfast

app = Holdfast("sqlite:///never-opened.db")


@app.task
def add(a: int, b: int = 2) -> int:
    return a + b


untyped: Any = add


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"delay": 5}, "delay is an option: add.using(delay=…).enqueue(…)"),
        ({"countdown": 5}, "delay is an option: add.using(delay=…).enqueue(…)"),
        ({"eta": 5}, "run_at is an option: add.using(run_at=…).enqueue(…)"),
    ],
)
def test_an_option_among_the_arguments(given: dict[str, Any], hint: str) -> None:
    with pytest.raises(BadArguments, match="got an unexpected keyword argument") as refused:
        untyped.enqueue(1, **given)
    assert refused.value.message.endswith(hint)


def test_an_argument_of_the_task_is_no_option() -> None:
    @app.task
    def later(delay: int) -> None: ...

    with pytest.raises(BadArguments) as refused:
        later.bind(1, colour=1)  # type: ignore[call-arg]
    assert "is an option" not in str(refused.value)


def test_an_unknown_option_names_the_nearest_and_lists_all() -> None:
    for given, meant in (("countdown", "delay"), ("eta", "run_at"), ("prioritee", "priority")):
        with pytest.raises(BadArguments, match=rf"there is no option {given} \(did you mean {meant}\?\); there are "):
            untyped.using(**{given: 5})
    with pytest.raises(BadArguments, match=r"no option colour; there are after_failure, conn, .*tags$"):
        untyped.using(colour=5)
    with pytest.raises(BadSettings, match=r"@task: there is no option retries \(did you mean max_attempts\?\)"):
        app.task(**{"retries": 3})(lambda: None)  # type: ignore[call-overload]


@pytest.mark.parametrize("verb", ["delay", "apply_async", "send", "defer", "schedule"])
def test_the_verbs_of_others_name_enqueue(verb: str) -> None:
    for task in (untyped, untyped.using(delay=1)):
        with pytest.raises(AttributeError, match=rf"no attribute '{verb}'; a job is enqueued with \.enqueue\(…\)"):
            getattr(task, verb)
    with pytest.raises(AttributeError, match=r"no attribute 'colour'$"):
        _ = untyped.colour


def test_bad_arguments_are_a_value_error() -> None:
    with pytest.raises(ValueError, match="HF1202"):
        untyped.enqueue("1")


def test_many_are_several() -> None:
    with pytest.raises(BadArguments, match="HF1202 enqueue_many takes several jobs"):
        app.enqueue_many(untyped.bind(1))
