"""What operators do to all jobs of a filter: look first, then go ahead with what was looked at. The store works in
steps of a few hundred jobs, each in a transaction of its own, and the audit says how far a call has got."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict
from starlette.responses import Response

from holdfast.errors import RequestRefused
from holdfast.http.call import Call, answer
from holdfast.http.operator_documents import Bulk, BulkChange, BulkRetry, JobSummary, Preview, Previewed
from holdfast.model.filter import in_state_for, parse, text
from holdfast.model.job import Changed

SHOWN = 5  # jobs that a preview shows


async def preview(call: Call) -> Response:
    """How many jobs a verb would change, counted up to 10,000, and the newest of them. Changes nothing."""
    return answer(await call.in_long_thread(_preview, call))


def _preview(call: Call) -> Previewed:
    given: Preview = call.body
    found = call.app.preview(given.verb, given.filter)
    able = in_state_for(given.verb, parse(found.filter))
    newest = call.app.jobs(text(able), limit=SHOWN) if able is not None and found.jobs else []
    return Previewed(**asdict(found), examples=[JobSummary.of(job.record) for job in newest])


async def retry(call: Call) -> Response:
    """Queue failed and cancelled jobs again."""
    given: BulkRetry = call.body
    options: dict[str, Any] = {"limit": given.limit, "spread": given.spread}
    return await _run(call, "retry", lambda: call.app.retry(given.filter, given.reason, by=call.by, **options))


async def cancel(call: Call) -> Response:
    """Cancel jobs. Running ones are asked to stop; failed ones are dismissed and keep their error."""
    given: Bulk = call.body
    return await _run(call, "cancel", lambda: call.app.cancel(given.filter, given.reason, by=call.by))


async def pause(call: Call) -> Response:
    """Pause the jobs there are. Running ones are asked to park. For those to come as well: add a pause."""
    given: Bulk = call.body
    return await _run(call, "pause", lambda: call.app.pause_jobs(given.filter, given.reason, by=call.by))


async def resume(call: Call) -> Response:
    """Let paused jobs run."""
    given: Bulk = call.body
    return await _run(call, "resume", lambda: call.app.resume_jobs(given.filter, given.reason, by=call.by))


async def change(call: Call) -> Response:
    """Change queue, priority, due time or tags of jobs that are queued or paused."""
    given: BulkChange = call.body
    what = asdict(given)
    del what["expected"]
    return await _run(call, "change", lambda: call.app.change(**what, by=call.by))


async def delete(call: Call) -> Response:
    """Delete finished jobs and their history."""
    given: Bulk = call.body
    return await _run(call, "delete", lambda: call.app.delete(given.filter, given.reason, by=call.by))


async def _run(call: Call, verb: str, act: Callable[[], Changed]) -> Response:
    def run() -> Changed:
        found = call.app.preview(verb, call.body.filter)
        if found.jobs > call.body.expected:
            more = f"{found.jobs:,}{'+' * found.capped} jobs"
            raise RequestRefused(
                f"this would {verb} {more}, and {call.body.expected:,} were expected: preview it again, at "
                "/v1/bulk/preview, and send the number it says as `expected`",
                status=409, number="HF1513",
            )  # fmt: skip
        return act()

    return answer(await call.in_long_thread(run))
