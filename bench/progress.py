"""What it costs a handler to say how far it is, a million times."""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.model.job import ClaimedJob
from holdfast.tasks.attempt import Attempt
from holdfast.tasks.context import JobContext

CALLS = 200_000


def progress_call_ns(calls: int = CALLS) -> dict[str, float]:
    """Nanoseconds a call of `ctx.progress(n, total=…, note=…)`, of `ctx.progress(n)` and an item of `ctx.track` take,
    less those of the loop around them."""
    held = ClaimedJob(1, "0f0e0d0c-0b0a-4908-8706-050403020100", "noop", "default", b"{}", 1, 3)
    context = JobContext(Attempt(held), None, None)

    def noted() -> None:
        for n in range(calls):
            context.progress(n, total=calls, note="on its way")

    def plain() -> None:
        for n in range(calls):
            context.progress(n)

    def tracked() -> None:
        for _ in context.track(range(calls)):
            pass

    def bare() -> None:
        for _ in range(calls):
            pass

    loop = _seconds(bare)
    works = {"progress": plain, "progress_with_note": noted, "track": tracked}
    return {name: max(0.1, (_seconds(work) - loop) / calls * 1e9) for name, work in works.items()}


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
