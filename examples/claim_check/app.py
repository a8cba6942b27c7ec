"""The application: its table as a queue, and the handler that works a row."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from examples.claim_check import database
from examples.claim_check.analyse import SchemaRefused, Subject, judge
from examples.claim_check.inputs import Input, InputType
from examples.claim_check.model import Model, ModelConfig, ModelError
from examples.claim_check.pages import PageRefused, page_text
from holdfast import BadSettings, Fail, Holdfast, Job, Retry, presets

URL = os.environ.get("HOLDFAST_URL", "sqlite:///claim-check.db")
ALLOW_PRIVATE = os.environ.get("CLAIM_CHECK_ALLOW_PRIVATE") == "1"  # fetch pages of private networks: for tests
try:
    MAX_ATTEMPTS = int(os.environ.get("MAX_ATTEMPTS") or 3)
except ValueError:
    raise BadSettings(f"MAX_ATTEMPTS is how often a job is tried, not {os.environ['MAX_ATTEMPTS']!r}") from None

hf = Holdfast(URL, preset="claim-check")
analyses = hf.adopt(**presets.analysis_jobs | {"max_attempts": MAX_ATTEMPTS})


@dataclass
class Row:
    """The columns that the handler wants."""

    id: str
    input_type: InputType
    input_value: str
    request_id: str | None


@dataclass
class Analysis:
    """What goes into the columns of the result."""

    bs_score: float
    result_json: dict[str, Any]
    model_used: str
    perplexity_latency_ms: int


@hf.resource
def open_model() -> Model:
    try:
        config = ModelConfig.from_environment()
    except ValueError as error:
        raise BadSettings(str(error)) from None
    return Model(config)


@analyses.task
def analyse(row: Row, model: Model = open_model.injected) -> Analysis:
    try:
        page = page_text(row.input_value, allow_private=ALLOW_PRIVATE) if row.input_type == "url" else None
        found = judge(model, Subject(row.input_type, row.input_value, page))
    except SchemaRefused as refused:
        reason = f"both reports of the model were refused, the second in line {refused.line}: {refused.reason}"
        raise Fail(reason, code=refused.code) from None
    except (ModelError, PageRefused) as error:
        if error.permanent:
            raise Fail(error.reason, code=error.code) from None
        raise Retry(error.reason, after=getattr(error, "retry_after", None), code=error.code) from None
    return Analysis(found.bunk_score, found.result, found.model, found.latency_ms)


def set_up() -> None:
    """The table, and what adopts it, unless they are there."""
    hf.migrate()  # first: it says what is wrong with the database, if anything is
    database.create(hf.settings.url)
    if analyses.problems():
        analyses.install()


async def submit(asked: Input, request_id: str) -> Job[Any]:
    """The job of this input: an equal one that is under way or done, one that failed and begins again, or a new one."""
    return await analyses.asubmit(
        key=asked.cache_key, reuse="forever", after_failure="retry",
        input_type=asked.type, input_value=asked.value, normalized_input=asked.normalized, request_id=request_id,
    )  # fmt: skip


@hf.doctor_check
def old_claim_function() -> str | None:
    """Holdfast does not need it. The worker that was here before does."""
    if database.is_sqlite(hf.settings.url) or database.old_claim_function(hf.settings.url):
        return None
    return "claim_next_job(int) is gone or renamed: an old worker that still runs claims nothing"
