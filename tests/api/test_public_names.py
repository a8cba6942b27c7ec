"""What a public call returns can be imported from `holdfast`, and what an object offers is in the documentation."""

from __future__ import annotations

import inspect
import re
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Adopted, Enqueuer, Holdfast, Job, Settings, Task
from holdfast.durations import Duration
from holdfast.settings import DURATIONS, SettingsArguments

DOCS = Path(__file__).parents[2] / "docs"
PUBLIC = {name: getattr(holdfast, name) for name in holdfast.__all__}
CLASSES: list[type] = [Holdfast, Job, Task, Enqueuer, Adopted]


def public(owner: type) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if not name.startswith("_")}


def returned(owner: type) -> dict[str, Any]:
    """What the public methods and properties of a class return, by their annotations."""
    hints = {}
    for name, value in public(owner).items():
        function = value.fget if isinstance(value, property) else inspect.unwrap(value)
        if inspect.isfunction(function) and name not in INTERNAL.get(owner, ()):
            hints[name] = typing.get_type_hints(function, localns=PUBLIC | {"Any": Any}).get("return")
    return hints


INTERNAL: dict[type, set[str]] = {Holdfast: {"store"}}


def parts(hint: Any) -> set[Any]:
    return {hint}.union(*(parts(part) for part in typing.get_args(hint) if not isinstance(part, list)))


@pytest.mark.parametrize("owner", CLASSES)
def test_what_a_public_call_returns_can_be_imported(owner: type) -> None:
    found = returned(owner)
    assert found
    for name, hint in found.items():
        for part in parts(hint):
            kind = typing.get_origin(part) or part
            if getattr(kind, "__module__", "").startswith("holdfast") and isinstance(kind, type):
                assert kind in PUBLIC.values(), f"{owner.__name__}.{name} returns {kind}"


def test_the_fields_of_what_is_returned_can_be_imported_too() -> None:
    for owner in PUBLIC.values():
        if not isinstance(owner, type) or owner in CLASSES or issubclass(owner, BaseException):
            continue
        for name, hint in typing.get_type_hints(owner, localns=PUBLIC).items():
            for part in parts(hint):
                kind = typing.get_origin(part) or part
                if getattr(kind, "__module__", "").startswith("holdfast") and isinstance(kind, type):
                    assert name.startswith("_") or kind in PUBLIC.values(), f"{owner.__name__}.{name} is {kind}"


def test_a_shell_completes_all_public_names_and_no_other() -> None:
    assert dir(holdfast) == sorted(holdfast.__all__)


def test_what_a_task_offers_is_what_users_call() -> None:
    assert {name for name in dir(Holdfast().task(name="t")(print_nothing)) if not name.startswith("_")} == {
        "enqueue", "aenqueue", "run_now", "arun_now", "bind", "using",
        "app", "function", "is_async", "name", "secrets", "task",
    }  # fmt: skip


def print_nothing() -> None: ...


@pytest.mark.parametrize("owner", [Holdfast, Job, Adopted])
def test_what_an_object_offers_is_in_the_documentation(owner: type) -> None:
    text = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    of_instances = {"tasks", "settings", "sources", "adopted"} if owner is Holdfast else set[str]()
    for name in public(owner).keys() | of_instances:
        twin = name.startswith("a") and name[1:] in public(owner)  # one rule, said once
        assert twin or re.search(rf"\b(hf|job|app|audits)\.{name}\b|`{name}`|`\.{name}\b|\.{name}\(", text), name


def test_every_verb_of_an_application_that_asks_the_database_has_a_twin() -> None:
    quiet = {
        "task", "find_task", "resource", "injected", "on_start", "on_stop", "on_error", "on_alert", "around_attempt",
        "doctor_check", "close", "worker", "store", "reconfigure", "asgi", "adopt",
    }  # fmt: skip
    verbs = {name for name in public(Holdfast) if not inspect.iscoroutinefunction(public(Holdfast)[name])} - quiet
    assert {name for name in public(Holdfast) if name[0] == "a" and name[1:] in verbs} == {f"a{name}" for name in verbs}


def test_the_arguments_of_an_application_are_its_settings() -> None:
    typed = typing.get_type_hints(Settings)
    assert [field.name for field in fields(Settings)][1:] == list(SettingsArguments.__annotations__)
    for name, hint in typing.get_type_hints(SettingsArguments).items():
        assert hint == (Duration if name in DURATIONS else typed[name]) | None, name
