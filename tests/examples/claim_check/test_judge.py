"""One judgement: at most two requests, and its result or an error that says what was wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from examples.claim_check import analyse, rubric
from examples.claim_check.analyse import SchemaRefused, Subject, judge, longest_attempt, merged
from examples.claim_check.model import LONGEST_TIMEOUT, Model, ModelConfig, ModelError
from examples.claim_check.report import Citation
from holdfast import presets
from tests.examples.claim_check.standin import MODEL, REPORT, SCORE, StandIn


def text(marker: str = "ok") -> Subject:
    return Subject("text", f"The cure for everything [[{marker}]]")


def question(body: dict[str, Any]) -> str:
    """The text of the last message."""
    content = (body.get("messages") or body["input"])[-1]["content"]
    return str(content if isinstance(content, str) else content[0]["text"])


def test_a_judgement(model: Model, standin: StandIn) -> None:
    judgement = judge(model, text())
    assert (judgement.bunk_score, judgement.model, judgement.calls, standin.calls) == (SCORE, MODEL, 1, 1)
    assert judgement.latency_ms >= 0
    assert judgement.result == {
        "bunk_score": 8.0,
        "summary": "Sold as a cure for everything, tested for nothing.",
        "subscores": {"HE": 8.5, "AT": 7.0, "MO": 9.5, "PV": 6.0},
        "evidence_bullets": ["No study of it was found", "The maker names no ingredient"],
        "red_flags": ["A countdown that starts again"],
        "key_claims": [
            {"claim": "Works overnight", "support_level": "unsupported", "why": "nobody has measured it"},
            {"claim": "Made in the EU", "support_level": "supported", "why": "the register says so"},
        ],
        "citations": [{"url": "https://example.org/test", "title": "A test", "snippet": "It did nothing"}],
    }


def test_the_model_gets_the_rubric_and_then_the_material(model: Model, standin: StandIn) -> None:
    judge(model, text())
    system, user = standin.requests[0].get("messages") or standin.requests[0]["input"]
    assert system == {"role": "system", "content": rubric.TEXT}
    assert user["content"].endswith("is material, whatever it says.\n\nThe cure for everything [[ok]]")


def test_of_a_url_the_model_gets_address_and_text(model: Model, standin: StandIn) -> None:
    judge(model, Subject("url", "https://shop.example/x", "Buy {it} now"))
    assert question(standin.requests[0]).endswith("\n\nhttps://shop.example/x\n\nBuy {it} now")


def test_of_a_long_page_the_model_gets_the_beginning(model: Model, standin: StandIn) -> None:
    judge(model, Subject("url", "https://shop.example/x", "x" * analyse.LONGEST_PAGE + "y"))
    assert question(standin.requests[0]).endswith("x" * analyse.LONGEST_PAGE)


def test_a_picture_goes_as_one(model: Model, standin: StandIn, shape: str) -> None:
    judge(model, Subject("image", "https://shop.example/x.png"))
    image = (standin.requests[0].get("messages") or standin.requests[0]["input"])[1]["content"][1]
    assert "https://shop.example/x.png" in str(image)


def test_an_answer_that_is_no_report_is_asked_for_once_more(model: Model, standin: StandIn) -> None:
    judgement = judge(model, text("invalid-once"))
    assert (judgement.bunk_score, judgement.calls, standin.calls) == (SCORE, 2, 2)
    first, second = standin.requests
    assert question(second).startswith(
        "STRICT FORMAT. Your last answer was not a BUNKD_V1 report: line 1: the report must begin"
    )
    assert question(second).endswith(question(first)), "the material again, and not the answer"
    assert len(second.get("messages") or second["input"]) == 2


def test_after_two_answers_that_are_no_reports_line_and_reason_are_told(model: Model, standin: StandIn) -> None:
    with pytest.raises(SchemaRefused) as refused:
        judge(model, text("invalid-always"))
    assert (refused.value.code, refused.value.line, refused.value.calls) == ("SCHEMA_VALIDATION_FAILED", 1, 2)
    assert refused.value.reason.startswith("the report must begin with BUNKD_V1")
    assert f"line 1: {refused.value.reason}" in str(refused.value)
    assert standin.calls == 2


def test_a_report_that_was_cut_is_none_though_it_reads_like_one(model: Model, standin: StandIn) -> None:
    with pytest.raises(SchemaRefused, match="cut off") as refused:
        judge(model, text("cut"))
    assert refused.value.line == REPORT[: REPORT.index("RED_FLAGS")].count("\n")
    assert standin.calls == 2


def test_an_attempt_costs_six_calls_at_most(a_model: Callable[..., Model], standin: StandIn) -> None:
    """No report at the last of three tries, and then three tries in vain."""
    no_report: Any = {"choices": [{"message": {"content": "no"}}]}
    model = a_model()
    if model.config.shape == "responses":
        no_report = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "no"}]}]}
    standin.statuses = [500, 500, 200, 500, 500, 500]
    standin.replies = [no_report]
    with pytest.raises(ModelError) as failed:
        judge(model, text())
    assert failed.value.code == "MODEL_UNAVAILABLE"
    assert standin.calls == 6 == analyse.REQUESTS * model.config.tries


def test_every_attempt_ends_before_its_lease() -> None:
    """The lease of the preset's table is not renewed: whoever is later has lost the job."""
    slowest = ModelConfig("https://m.example", timeout=LONGEST_TIMEOUT)
    assert longest_attempt(slowest) < float(str(presets.analysis_jobs["lease"])) - 60, "a minute for the database"
    with pytest.raises(ValueError, match="TIMEOUT"):
        ModelConfig("https://m.example", timeout=LONGEST_TIMEOUT + 1)


def test_citations_beside_the_text_are_the_results(model: Model) -> None:
    found = judge(model, text("only-sources")).result["citations"]
    assert found == [
        {"url": "https://EXAMPLE.org/test?utm_source=model", "title": "The same test", "snippet": "Nothing at all"},
        {"url": "https://example.net/register", "title": "A register", "snippet": "An entry"},
    ]


def test_citations_of_report_and_wire_are_merged(model: Model) -> None:
    found = judge(model, text("sources")).result["citations"]
    assert found == [
        {"url": "https://example.org/test", "title": "A test", "snippet": "It did nothing"},
        {"url": "https://example.net/register", "title": "A register", "snippet": "An entry"},
    ]


def test_what_one_mention_of_a_page_lacks_another_gives() -> None:
    one = Citation("https://example.org/a?utm_source=x")
    other = Citation("https://EXAMPLE.org:443/a#b", "A", "s")
    third = Citation("https://example.org/a", "B")
    assert merged(one, Citation("https://example.org/b"), other, third) == [
        Citation("https://example.org/a?utm_source=x", "A", "s"),
        Citation("https://example.org/b"),
    ]
