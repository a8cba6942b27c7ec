"""The description of the API as OpenAPI 3.1, made from the table of routes and the types of their documents."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.http.problems import Problem

if TYPE_CHECKING:
    from holdfast.http.routes import Route

REF = "#/components/schemas/{name}"
Schema = dict[str, Any]


class Description(msgspec.Struct, frozen=True):
    """This description."""

    openapi: str
    info: dict[str, str]
    servers: list[dict[str, str]]
    security: list[dict[str, list[str]]]
    paths: dict[str, dict[str, Any]]
    components: dict[str, dict[str, Any]]


def described(routes: Sequence[Route]) -> Description:
    documents = {one for route in routes for one in (route.takes, route.answers) if one is not None} | {Problem}
    documents |= {kind for route in routes for _, kind in route.events}
    ordered = sorted(documents, key=lambda one: one.__name__)
    references, schemas = msgspec.json.schema_components(ordered, ref_template=REF)
    known = dict(zip(ordered, references, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    return Description(
        openapi="3.1.0",
        info={"title": "Jobs over HTTP", "version": "1"},
        servers=[{"url": ".."}],  # relative to this document: it holds under any prefix
        security=[{"bearer": []}],
        paths=paths,
        components={
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "an API key, or the token of a job"}
            },
        },
    )


def _operation(route: Route, known: dict[type[msgspec.Struct], Schema]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "operationId": f"{route.handler.__module__.rpartition('.')[2]}_{route.handler.__name__}",
        "description": _text(route),
        "parameters": _parameters(route),
        "responses": _responses(route, known),
    }
    if route.takes is not None:
        kind = "application/jsonl" if route.lines else "application/json"
        content = {kind: {"schema": _lines(known[route.takes]) if route.lines else known[route.takes]}}
        made["requestBody"] = {"content": content, "required": bool(_schema(route.takes).get("required"))}
    if route.role is None:
        made["security"] = []
    return made


def _text(route: Route) -> str:
    said = " ".join((inspect.getdoc(route.handler) or "").split())
    who = "For everyone." if route.role is None else f"Needs the role {route.role}"
    if route.role is not None:
        who += f", or a job token with the scope {route.scope}." if route.scope else "."
    return f"{said} {who}"


def _parameters(route: Route) -> list[Schema]:
    made: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    query = _schema(route.query)
    for name, schema in query["properties"].items():
        made.append({"name": name, "in": "query", "required": False, "schema": _not_null(schema)})
    for name in route.headers:
        made.append({"name": name, "in": "header", "required": False, "schema": {"type": "string"}})
    return made


def _responses(route: Route, known: dict[type[msgspec.Struct], Schema]) -> dict[str, Any]:
    schema: Schema
    if route.answers is None:
        kind, schema = "text/plain", {"type": "string"}
    else:
        kind, schema = "application/json", known[route.answers]
    if route.lines:
        kind, schema = "application/jsonl", _lines(schema)
    elif route.events:
        kind = "text/event-stream"
        schema = {"oneOf": [_event(name, known[one]) for name, one in route.events]}
    made: dict[str, Any] = {
        str(status): {"description": HTTPStatus(status).phrase, "content": {kind: {"schema": schema}}}
        for status in route.statuses
    }
    made |= {str(status): {"description": HTTPStatus(status).phrase} for status in route.empty}
    problem = {"application/problem+json": {"schema": known[Problem]}}
    made["4XX"] = {"description": "The request can't be answered: `detail` says why.", "content": problem}
    away = {"description": "The database is away. Try again after `Retry-After` seconds.", "content": problem}
    made.setdefault("503", away)
    return made


def _lines(each: Schema) -> Schema:
    return {"type": "string", "description": "one JSON document per line", "contentSchema": each}


def _event(name: str, data: Schema) -> Schema:
    """Each of many."""
    text = {"type": "string", "contentMediaType": "application/json", "contentSchema": data}
    properties = {"id": {"type": "string"}, "event": {"const": name}, "data": text}
    return {"type": "object", "properties": properties, "required": ["event", "data"]}


def _schema(kind: type[msgspec.Struct]) -> Schema:
    _, schemas = msgspec.json.schema_components([kind], ref_template=REF)
    return dict(schemas[kind.__name__])


def _not_null(schema: Schema) -> Schema:
    """A parameter that may be left out can't be null."""
    if "anyOf" not in schema:
        return schema
    [given] = [one for one in schema["anyOf"] if one != {"type": "null"}]
    return {name: value for name, value in {**schema, **given}.items() if name not in ("anyOf", "default")}
