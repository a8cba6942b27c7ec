"""What the page asks for, asked by others."""

from __future__ import annotations

import csv

import pytest

from examples.crawl.database import Database
from examples.crawl.web import web
from holdfast import Holdfast
from tests.examples.crawl.site import Site, page
from tests.http.asking import Ask


@pytest.fixture
def ask(hf: Holdfast) -> Ask:
    return Ask(web)


def test_a_crawl_is_started_steered_and_exported_over_http(ask: Ask, hf: Holdfast, db: Database) -> None:
    with Site({"/": page("/a"), "/a": page("/gone")}) as site:
        answer = ask.post("/crawls", json={"start_url": site.url, "delay": 0, "max_depth": 5})
        assert answer.status_code == 201, answer.text
        id = answer.json()["id"]
        assert ask.post(f"/crawls/{id}/pause", json={}).json() == {"state": "paused"}
        assert ask.get(f"/crawls/{id}").json()["status"] == "paused"
        assert ask.post(f"/crawls/{id}/resume", json={}).json() == {"state": "queued"}
        hf.drain()
    shown = ask.get(f"/crawls/{id}").json()
    assert (shown["status"], shown["pages"], shown["dead"], shown["todo"]) == ("completed", 2, 1, 0)
    [listed] = ask.get("/crawls").json()["crawls"]
    assert (listed["id"], listed["pages"]) == (id, 2)
    export = ask.get(f"/crawls/{id}/dead-links.csv")
    assert export.headers["content-disposition"] == f'attachment; filename="dead-links-{id[:8]}.csv"'
    assert [(row["page"], row["target"]) for row in csv.DictReader(export.text.splitlines())] == [
        (f"{site.url}/a", f"{site.url}/gone")
    ]
    refused = ask.post(f"/crawls/{id}/pause", json={})
    assert refused.status_code == 409
    assert "succeeded" in refused.json()["error"]


@pytest.mark.parametrize(("body", "said"), [
    ({}, "start_url"), ({"start_url": ""}, "start_url"),
    ({"start_url": "ftp://a.example/"}, "no http or https address"),
    ({"start_url": "http://a.example", "scope": "all"}, "scope"),
    ({"start_url": "http://a.example", "delay": -1}, "delay"),
    ({"start_url": "http://a.example", "delay": "1"}, "delay"),
    ({"start_url": "http://a.example", "max_depth": 1.5}, "max_depth"),
    ({"start_url": "http://a.example", "max_pages": 0}, "max_pages"), ([], "JSON object"),
])  # fmt: skip
@pytest.mark.parametrize("engine", ["sqlite"])
def test_what_makes_no_sense_is_refused_with_its_name(ask: Ask, body: object, said: str) -> None:
    answer = ask.post("/crawls", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_forms_of_other_sites_unknown_crawls_and_unknown_lists_are_refused(ask: Ask) -> None:
    assert ask.post("/crawls", content=b'{"start_url": "http://a.example"}').status_code == 415
    assert ask.post("/crawls", json={"start_url": "http://a.example/" + "x" * 20_000}).status_code == 413
    for path in ("/crawls/nobody", "/crawls/nobody/pages.csv", "/crawls/nobody/secrets.csv"):
        assert ask.get(path).status_code == 404, path
    assert ask.post("/crawls/nobody/pause", json={}).status_code == 404
    assert ask.post("/crawls/nobody/delete", json={}).status_code == 404
