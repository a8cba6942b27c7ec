"""Which attempt and which worker the running code belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.tasks.context import JobContext

# The context of the attempt this code runs in, if any.
current_context: ContextVar[JobContext | None] = ContextVar("holdfast_current", default=None)
# The worker it runs in: set once by each thread or slot of a runner.
current_worker: ContextVar[str] = ContextVar("holdfast_worker", default="")


def in_handler() -> bool:
    """Code that would wait for another job is refused in a handler."""
    return current_context.get() is not None
