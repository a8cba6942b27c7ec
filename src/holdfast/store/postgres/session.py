"""A connection that watches how long it waits for an answer. A synchronous standby that hangs, for example, keeps every
commit waiting while the server seems well. A long wait is logged once for all connections to a database, with what the
server waits for; so is its end. A wait that passes its deadline is abandoned together with the connection: the server
continues with what it was sent, so the outcome is unknown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.abc import RV, PQGen

from holdfast import events

TICK = 0.1  # seconds between two looks at a wait
SLOW = 5.0  # seconds after which a wait is logged
AGAIN = 60.0  # seconds between two warnings


class Unanswered(psycopg.OperationalError):
    """There was no answer in time. `process`: the server process, which is still working."""

    process = 0


class Answers:
    """The slow answers of one database, on all connections of this process. `ask`: what the server waits for on a
    connection, in words; None: nothing."""

    def __init__(self, where: str, ask: Callable[[Session], str | None]) -> None:
        self.where = where
        self.ask = ask
        self._waits: set[Wait] = set()  # those that are slow
        self._tell_at = 0.0

    def tried(self, wait: Wait, seconds: float) -> bool:
        """Log this wait, unless another one was logged recently. False: the server is busy for a good reason."""
        because = self.ask(wait.session)
        if because is None:
            return False
        now = time.monotonic()
        if not self._waits or now >= self._tell_at:
            self._tell_at = now + AGAIN
            events.emit("unanswered", where=self.where, seconds=seconds, because=because)
        self._waits.add(wait)
        return True

    def over(self, wait: Wait, seconds: float) -> None:
        if wait in self._waits:
            self._waits.discard(wait)
            if not self._waits and not wait.session.closed:  # an abandoned wait has no answer
                events.emit("answered", where=self.where, seconds=seconds)


class Session(psycopg.Connection[tuple[Any, ...]]):
    answers: Answers | None = None
    host: Mapping[str, str] | None = None  # the host it is connected to, of several that the URL names
    deadline: float | None = None  # for the current answers (monotonic)

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        return super().wait(gen if self.answers is None else self._watched(gen), *args, **kwargs)

    def _watched(self, gen: PQGen[RV]) -> PQGen[RV]:
        wait: Wait | None = None
        try:
            state = next(gen)
            while True:
                ready = yield state
                if not ready:
                    wait = wait or Wait(self)
                    wait.goes_on()
                state = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result
        finally:
            if wait is not None:
                wait.ends()


class Wait:
    """One wait for an answer that takes more than a moment."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._began = time.monotonic()
        self._look_at = self._began + SLOW

    def goes_on(self) -> None:
        session, now = self.session, time.monotonic()
        assert session.answers is not None
        if session.deadline is not None and now >= session.deadline:
            because = session.answers.ask(session)
            error = Unanswered(f"gave no answer in time{': ' * bool(because)}{because or ''}")
            error.process = session.info.backend_pid
            session.close()
            raise error
        if now >= self._look_at:
            told = session.answers.tried(self, now - self._began)
            self._look_at = time.monotonic() + (AGAIN if told else SLOW)

    def ends(self) -> None:
        if self.session.answers is not None:
            self.session.answers.over(self, time.monotonic() - self._began)


@contextmanager
def limited(session: Session, seconds: float) -> Iterator[None]:
    """Abandon what is not answered within so many seconds; 0: never."""
    session.deadline = time.monotonic() + seconds if seconds else None
    try:
        yield
    finally:
        session.deadline = None
