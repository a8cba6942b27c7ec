"""UserConnections: a caller's own connection, on which we run statements, and those that handlers get for their own
writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from holdfast.store.columns import Row
from holdfast.store.permits import Permits


class UserConnections(Protocol):
    may_raise: bool  # may an enqueue there raise the priority of a job that waits under the same key?

    @property
    def permits(self) -> Permits | None:
        """For transactions of handlers, where only so many may be open at once."""

    def execute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], list[Row]]:
        """What runs our statements on a caller's open transaction."""

    async def aexecute_on(self, connection: Any) -> Callable[[str, dict[str, Any]], Awaitable[list[Row]]]:
        """The same on an asynchronous connection."""

    def transaction(self, note: str = "") -> AbstractContextManager[Any]:
        """A connection with an open transaction, for a handler's own writes: commits at the end. `note` tells those who
        wait for it whose it is. Whoever calls this holds one of `permits`, if there are any."""
