"""The description of the API is true: requests made from it, right and wrong ones, get the answers that it promises.
`make fuzz` sends thousands."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from holdfast import Holdfast
from holdfast.http.routes import ROUTES, Route
from tests.http.asking import Ask, bearer
from tests.http.test_access import BODIES

FUZZED = int(os.environ.get("HOLDFAST_FUZZ_REQUESTS", "0"))  # in all; 0: a few hundred, the same in every run
REQUESTS = -(-(FUZZED or 600) // len(ROUTES))


@schemathesis.serializer("application/jsonl")
def as_lines(context: Any, value: Any) -> Any:
    return value.encode("utf-8", "replace") if isinstance(value, str) else json.dumps(value).encode()


@schemathesis.deserializer("application/jsonl")
def from_lines(context: Any, response: Any) -> Any:
    return response.text


def test_the_description_is_complete(tasked: Holdfast) -> None:
    found = Ask(tasked.asgi()).get("/v1/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    operations = {(method.upper(), path) for path, methods in found["paths"].items() for method in methods}
    assert operations == {(route.method, route.path) for route in ROUTES}
    ids = [one["operationId"] for methods in found["paths"].values() for one in methods.values()]
    assert len(ids) == len(set(ids))
    for methods in found["paths"].values():
        for one in methods.values():
            assert len(one["description"]) > 20, f"{one['operationId']} says nothing"
    assert "holdfast." not in str(found["components"]["schemas"].keys()), "two documents have the same name"


def cases(operation: Any, route: Route) -> st.SearchStrategy[Any]:
    """Requests as described, for what exists and for what does not, and requests that are not as described."""
    # A status is waited for, so its job has ended.
    ids = ["1"] if route.path.endswith(("{id}", "events")) else ["1", "2", "3"]
    names = [name for name in ("id", "task") if f"{{{name}}}" in route.path]
    places = [{name: {"id": id, "task": "add"}[name] for name in names} for id in ids] if names else [None]
    existing = [operation.as_strategy(path_parameters=place).map(meaningful) for place in places]
    wrong = operation.as_strategy(GenerationMode.NEGATIVE).filter(is_sent)
    return st.one_of(*existing, operation.as_strategy(), *([wrong] if operation.body or operation.query else []))


def is_sent(case: Any) -> bool:
    """Is all of its query sent? What is empty is left out, and with it what would have been wrong."""
    return all(value not in ([], {}, None) for value in case.query.values())


def in_earnest(operation: Any, route: Route) -> Any:
    """A request that is answered as it should be."""
    id = {"retry": "1", "delete": "2"}.get(route.path.rpartition("/")[2], "3" if route.takes else "1")
    body: dict[str, Any] = {"media_type": "application/json", "body": BODIES.get(route.path, {})} if route.takes else {}
    if route.lines:
        body = {"media_type": "application/jsonl", "body": '{"args": {"a": 1}}\n'}
    return operation.Case(path_parameters={"id": id, "task": "add"}, **body)


def meaningful(case: Any) -> Any:
    """The same with values that mean something, where they must: a filter, say, has a grammar of its own."""
    if isinstance(case.body, dict) and case.operation.path in BODIES:
        case.body = {**case.body, **BODIES[case.operation.path]}
    elif case.media_type == "application/jsonl":
        case.body = '{"args": {"a": 1}}\n'
    if "filter" in case.query:
        case.query["filter"] = "state:failed"
    if "wait" in case.query:
        case.query["wait"] = min(case.query["wait"], 0.5)  # nothing runs a job that was there before
    return case


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_requests_get_the_answers_that_are_described(tasked: Holdfast, route: Route) -> None:
    tasked.tasks["fail"].enqueue("x")
    tasked.tasks["add"].enqueue(1)
    tasked.drain()
    paused = tasked.tasks["add"].using(delay=3600).enqueue(1)
    if route.path.endswith("resume"):
        paused.pause()
    tasked.schedule("s", tasked.tasks["add"].bind(1), cron="0 3 * * *")
    tasked.store.workers.register(id="w~1", name="w", host="h", pid=1, queues=None, tasks=["add"], slots=1)
    key = bearer(tasked.create_api_key("ops", "admin"))
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", tasked.asgi())
    operation = schema[route.path][route.method]

    def answered(case: Any) -> int:
        # What is as described may still mean nothing, and is refused.
        answer = case.call_and_validate(
            base_url="http://jobs.example", headers=key, excluded_checks=[positive_data_acceptance]
        )
        return int(answer.status_code)

    @settings(
        max_examples=REQUESTS, deadline=None, database=None, derandomize=not FUZZED,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=cases(operation, route))
    def ask(case: Any) -> None:
        answered(case)

    assert answered(in_earnest(operation, route)) in route.statuses
    ask()
