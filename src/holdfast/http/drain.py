"""Runs jobs during a request: for cron jobs, and for hosts that run nothing between requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from weakref import WeakSet

from starlette.responses import Response

from holdfast.errors import RequestRefused
from holdfast.http.call import Call, answer
from holdfast.http.operator_documents import Budget, Drained

if TYPE_CHECKING:
    from holdfast.app import Holdfast

_draining: WeakSet[Holdfast] = WeakSet()


async def drain(call: Call) -> Response:
    """Run jobs here until none is due or the budget is used up. What runs at the end of the budget has its grace to
    finish, and is given back otherwise."""
    given: Budget = call.body
    app = call.app
    if app in _draining:
        raise RequestRefused(
            "a drain is under way in this process, and one at a time is enough: send this again when it has ended",
            status=409, number="HF1514",
        )  # fmt: skip
    _draining.add(app)
    try:
        worker = await call.in_thread(app.worker, given.queues)
        try:
            processed = await call.in_long_thread(worker.drain, seconds=given.seconds, jobs=given.jobs)
        except asyncio.CancelledError:
            # The server stops. So does the worker, in good order; the process waits for its thread.
            worker.stop()
            raise RequestRefused(
                "the server stops, and what it ran is given back: send this again when it is back",
                status=503, number="HF1514",
            ) from None  # fmt: skip
    finally:
        _draining.discard(app)
    return answer(Drained(int(processed), processed.failed, processed.attempts))
