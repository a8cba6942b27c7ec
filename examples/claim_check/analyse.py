"""Judges one subject: asks the model for a report, once more if it isn't one, and makes the result from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from examples.claim_check import pages, rubric
from examples.claim_check.model import Answer, Model, ModelConfig
from examples.claim_check.report import Citation, Report, ReportRefused, parse
from examples.claim_check.score import bunk_score
from examples.claim_check.urls import canonical

REQUESTS = 2  # the second one only if the first answer is no report
LONGEST_PAGE = 40_000  # characters of a page's text that the model gets


class SchemaRefused(Exception):
    """Neither answer of the model is a report: line and reason for the last one."""

    code = "SCHEMA_VALIDATION_FAILED"

    def __init__(self, refused: ReportRefused, calls: int) -> None:
        super().__init__(f"{self.code}: both reports of the model were refused, the second in {refused}")
        self.line = refused.line
        self.reason = refused.reason
        self.calls = calls


@dataclass(frozen=True)
class Subject:
    input_type: Literal["url", "text", "image"]
    value: str
    page_text: str | None = None  # of a URL


@dataclass(frozen=True)
class Judgement:
    bunk_score: float
    result: dict[str, Any]  # as it is stored and shown
    model: str
    latency_ms: int
    calls: int


def judge(model: Model, subject: Subject) -> Judgement:
    """The model's judgement; SchemaRefused, or the ModelError of the model."""
    first = model.ask(_messages(subject))
    try:
        return _judgement(first, _report(first), first)
    except ReportRefused as refused:
        strict = rubric.STRICT.format(line=refused.line, reason=refused.reason)
    second = model.ask(_messages(subject, strict))
    try:
        return _judgement(second, _report(second), first, second)
    except ReportRefused as refused:
        raise SchemaRefused(refused, first.calls + second.calls) from None


def longest_attempt(config: ModelConfig) -> float:
    """Seconds that one attempt waits for others at most: for the page and for the model."""
    return pages.LONGEST_FETCH + REQUESTS * config.longest_ask


def _messages(subject: Subject, strict: str = "") -> list[dict[str, str]]:
    kinds = {"url": "page", "text": "text", "image": "picture"}
    material = subject.value if subject.page_text is None else f"{subject.value}\n\n{subject.page_text[:LONGEST_PAGE]}"
    content = strict + rubric.MATERIAL.format(kind=kinds[subject.input_type], material=material)
    question = {"role": "user", "content": content}
    if subject.input_type == "image":
        question["image_url"] = subject.value
    return [{"role": "system", "content": rubric.TEXT}, question]


def _report(answer: Answer) -> Report:
    if answer.cut:  # it could read like a whole one
        raise ReportRefused(answer.text.rstrip().count("\n") + 1, "the answer was cut off here, at the model's limit")
    return parse(answer.text)


def _judgement(answer: Answer, report: Report, *answers: Answer) -> Judgement:
    score = bunk_score(*report.subscores)
    result = {
        "bunk_score": score,
        "summary": report.summary,
        "subscores": report.subscores._asdict(),
        "evidence_bullets": list(report.evidence_bullets),
        "red_flags": list(report.red_flags),
        "key_claims": [asdict(claim) for claim in report.key_claims],
        "citations": [asdict(citation) for citation in merged(*report.citations, *answer.citations)],
    }
    latency_ms = sum(each.latency_ms for each in answers)
    return Judgement(score, result, answer.model, latency_ms, sum(each.calls for each in answers))


def merged(*citations: Citation) -> list[Citation]:
    """Each page once, in the order of first mention, with the first title and snippet that anybody gives it."""
    found: dict[str, Citation] = {}
    for new in citations:
        key = canonical(new.url)
        old = found.get(key, new)
        found[key] = Citation(old.url, old.title or new.title, old.snippet or new.snippet)
    return list(found.values())
