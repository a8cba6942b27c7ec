"""The two routes, as the front ends of the old system know them."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from examples.claim_check import inputs, rubric
from holdfast import Holdfast, content_key
from tests.adopt.systems.database import Database
from tests.examples.claim_check.application import status, submit
from tests.examples.claim_check.standin import StandIn
from tests.http.asking import Ask

ADVERT = "Clinically proven to remove 99% of wrinkles."


def test_a_new_claim_is_queued_and_its_status_is_told_until_it_is_done(hf: Holdfast, ask: Ask) -> None:
    job = submit(ask, text=ADVERT)
    assert set(job) == {"status", "job_id", "job_token"}
    assert job["status"] == "queued"
    UUID(job["job_id"]), UUID(job["job_token"])
    waiting = status(ask, job)
    instant = waiting.pop("updated_at")
    assert waiting == {
        "status": "queued", "job_id": job["job_id"], "job_token": job["job_token"], "attempts": 0, "model_used": None,
        "perplexity_latency_ms": None,
    }  # fmt: skip
    assert int(hf.drain()) == 1
    done = status(ask, job)
    assert (done["status"], done["attempts"]) == ("done", 1)
    assert isinstance(done["bs_score"], float)
    assert isinstance(done["perplexity_latency_ms"], int)
    assert done["model_used"]
    assert done["result_json"]["bunk_score"] == done["bs_score"]
    assert done["result_json"]["summary"]
    assert "last_error_code" not in done
    before, after = (datetime.fromisoformat(at) for at in (instant, done["updated_at"]))
    assert after.tzinfo is not None
    assert after > before


def test_a_known_claim_is_answered_at_once_from_the_table(hf: Holdfast, ask: Ask, standin: StandIn) -> None:
    job = submit(ask, text=ADVERT)
    hf.drain()
    calls = standin.calls
    cached = submit(ask, text=f"  {ADVERT.upper().replace(' ', '   ')}\n")
    done = status(ask, job)
    assert cached == {
        "status": "cached", "job_id": job["job_id"], "bs_score": done["bs_score"], "result_json": done["result_json"],
        "model_used": done["model_used"],
    }  # fmt: skip
    assert int(hf.drain()) == 0
    assert standin.calls == calls == 1


def test_what_was_judged_before_holdfast_came_is_still_known(hf: Holdfast, ask: Ask, sql: Database) -> None:
    asked = inputs.read({"text": ADVERT})
    id = str(uuid4())
    hf.store.adopted.undo("analysis_jobs")
    sql.changed("""
        insert into analysis_jobs (id, status, input_type, input_value, normalized_input, cache_key, attempts, bs_score,
                                   result_json, model_used)
        values (:id, 'done', 'text', :value, :normalized, :key, 1, 4.5, '{"bunk_score": 4.5, "summary": "So so."}', 'm')
    """, id=id, value=asked.value, normalized=asked.normalized, key=asked.cache_key)  # fmt: skip
    hf.adopted["analysis_jobs"].install()
    answer = submit(ask, text=ADVERT)
    assert (answer["status"], answer["job_id"], answer["bs_score"]) == ("cached", id, 4.5)


def test_a_row_that_the_old_worker_finished_is_told_as_it_wrote_it(hf: Holdfast, ask: Ask, sql: Database) -> None:
    """Its loop wrote the result and left the score to it, under the name of its day."""
    job = submit(ask, text=ADVERT)
    result = {"bunkd_score": 4.5, "summary": "So so."}
    sql.changed(
        "update analysis_jobs set status = 'done', attempts = 1, result_json = :result", result=json.dumps(result)
    )
    done, cached = status(ask, job), submit(ask, text=ADVERT)
    assert (done["status"], cached["status"]) == ("done", "cached")
    assert done["result_json"] == cached["result_json"] == result
    assert done["bs_score"] is cached["bs_score"] is None


def test_whoever_asks_while_it_is_under_way_joins(hf: Holdfast, ask: Ask, sql: Database) -> None:
    first = submit(ask, text=ADVERT)
    assert submit(ask, text=ADVERT) == first
    sql.changed("update analysis_jobs set status = 'running', claimed_at = {now}, attempts = 1")  # the old worker
    assert submit(ask, text=ADVERT) == first
    assert status(ask, first)["status"] == "running"
    assert sql.value("select count(*) from analysis_jobs") == 1


def test_a_failure_is_told_with_its_code(hf: Holdfast, ask: Ask) -> None:
    job = submit(ask, text=f"{ADVERT} [[invalid-always]]")
    hf.drain()
    failed = status(ask, job)
    assert (failed["status"], failed["last_error_code"]) == ("failed", "SCHEMA_VALIDATION_FAILED")
    assert failed["last_error_message"]
    assert failed["attempts"] == 1, "it is permanent"
    assert "result_json" not in failed


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "exactly one of url, text, image_url"),
        ({"text": "a", "url": "https://a.example"}, "exactly one of"),
        ({"text": "  \n "}, "not empty"),
        ({"text": 7}, "must be text"),
        ({"text": "a\x00b"}, "NUL"),
        ({"text": "x" * 20_001}, "20,000 is the most"),
        ({"url": "javascript:alert(1)"}, "not a web address"),
        ({"url": "https://"}, "not a web address"),
        ({"image_url": "https://a.example/" + "x" * 2000}, "2,000 is the most"),
        (["text"], "JSON object"),
        ("text", "JSON object"),
    ],
)
def test_what_can_not_be_checked_is_refused_with_the_reason(ask: Ask, sql: Database, body: Any, said: str) -> None:
    answer = ask.post("/functions/v1/analyze_product", json=body)
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert said in answer.json()["error"]
    assert sql.value("select count(*) from analysis_jobs") == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [(b"", 400), (b"{", 400), (b"\xff", 400), (b'{"text": "\\ud800"}', 400), (b"[" * 100_000, 400),
     (b'{"text": "' + b" " * 200_000 + b'"}', 413)],
)  # fmt: skip
def test_a_body_that_is_none_is_refused(ask: Ask, body: bytes, code: int) -> None:
    answer = ask.post("/functions/v1/analyze_product", content=body)
    assert (answer.status_code, list(answer.json())) == (code, ["error"])


def test_a_wrong_token_and_an_unknown_job_get_the_same_answer(hf: Holdfast, ask: Ask) -> None:
    job, other = submit(ask, text=ADVERT), submit(ask, text="another")
    wrong = [
        {"job_id": job["job_id"], "job_token": other["job_token"]},
        {"job_id": job["job_id"], "job_token": str(uuid4())},
        {"job_id": job["job_id"], "job_token": ""},
        {"job_id": job["job_id"]},
        {"job_id": str(uuid4()), "job_token": job["job_token"]},
        {"job_id": "1", "job_token": job["job_token"]},
        {"job_id": "a\x00", "job_token": "ß"},
        {},
    ]
    answers = [ask.get("/functions/v1/job_status", params=query) for query in wrong]
    assert {(answer.status_code, answer.text) for answer in answers} == {
        (404, '{"error":"there is no job with this id and token"}')
    }


def test_the_key_is_of_type_input_and_rubric(hf: Holdfast, ask: Ask, sql: Database) -> None:
    submit(ask, url="HTTPS://Shop.Example:443/a/../cream?b=2&a=1&utm_source=x#top")
    row = sql.row("select input_type, input_value, normalized_input, cache_key, request_id from analysis_jobs")
    assert row is not None
    assert row["input_value"].startswith("HTTPS://Shop.Example:443/")
    assert row["normalized_input"] == "https://shop.example/cream?a=1&b=2"
    assert row["cache_key"] == content_key("url", row["normalized_input"], rubric.VERSION)
    assert re.fullmatch("[0-9a-f]{64}", row["cache_key"])
    UUID(row["request_id"])
    submit(ask, image_url="https://shop.example/cream?a=1&b=2")
    submit(ask, url="https://shop.example/cream?b=2&a=1")
    assert sql.value("select count(*) from analysis_jobs") == 2, "an image is something else than a page"


def test_a_new_rubric_gives_new_answers(
    hf: Holdfast, ask: Ask, standin: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ask, text=ADVERT)
    hf.drain()
    monkeypatch.setattr(rubric, "VERSION", f"{rubric.VERSION} and more")
    assert submit(ask, text=ADVERT)["status"] == "queued"


def test_the_request_id_is_the_clients_where_it_sends_one(ask: Ask, sql: Database) -> None:
    ask.post("/functions/v1/analyze_product", json={"text": ADVERT}, headers={"X-Request-ID": "r-17"})
    assert sql.value("select request_id from analysis_jobs") == "r-17"


def test_the_page_and_the_health_check_are_served(ask: Ask) -> None:
    page = ask.get("/")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert ask.get("/static/client.js").headers["content-type"].startswith("text/javascript")
    assert ask.get("/health").json() == {"status": "healthy"}
    assert ask.get("/functions/v1/analyze_product").status_code == 405


def test_operators_need_a_key(hf: Holdfast, ask: Ask) -> None:
    assert ask.post("/jobs/v1/drain", json={"seconds": 1}).status_code == 401
    key = hf.create_api_key("cron", "operator")
    submit(ask, text=ADVERT)
    done = ask.post("/jobs/v1/drain", json={"seconds": 20}, headers={"Authorization": f"Bearer {key}"})
    assert done.json() == {"jobs": 1, "failed": 0, "attempts": 1}
