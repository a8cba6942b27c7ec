"""A limit on how long a request takes, whatever it waits for.

The timeouts of an HTTP client hold for one read or one address, and looking up a name has none. A server that sends a
byte a second would keep a job for ever."""

from __future__ import annotations

import contextvars
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class Connections:
    """The connections that a request opened. It is the request's `trace` extension: httpx2 calls it at each step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._expired = False

    def __call__(self, step: str, details: dict[str, Any]) -> None:
        if step == "connection.connect_tcp.complete":
            with self._lock:
                # A second handle on the connection: TLS takes the first one over.
                self._open.append(details["return_value"].get_extra_info("socket").dup())
                self._shut_if_expired()

    def expire(self) -> None:
        """End them, and any that is opened from now on: whoever reads from one gets its end."""
        with self._lock:
            self._expired = True
            self._shut_if_expired()

    def forget(self) -> None:
        with self._lock:
            while self._open:
                self._open.pop().close()

    def _shut_if_expired(self) -> None:
        for connection in self._open if self._expired else []:
            with suppress(OSError):  # the other side was first
                connection.shutdown(socket.SHUT_RDWR)


def within(seconds: float, work: Callable[[Connections], T]) -> T:
    """What `work` returns or raises, or TimeoutError after so many seconds. Then its connections are ended."""
    connections = Connections()
    future: Future[T] = Future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            future.set_result(context.run(work, connections))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            future.set_exception(error)
        finally:
            connections.forget()

    # Not an executor: Python waits for its threads before it exits, and one may hang in looking up a name.
    threading.Thread(target=run, name="claim-check-request", daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        connections.expire()
        raise
