"""One attempt in hand: what is to run, and what it has been told. Shared between the desk, the heartbeat and the
runner that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import LOOKED_AT, Progress, clean
from holdfast.model.speed import Speed

NOTE_LIMIT = 1_000  # characters kept of a progress note

Reason = Literal["lost", "cancel", "pause", "timeout", "stalled", "shutdown"]

# The first reason that came stays, unless a stronger one comes: who lost the lease has nothing more to record.
STRENGTH: dict[Reason | None, int] = {
    None: 0,
    "shutdown": 1,
    "pause": 2,
    "timeout": 3,
    "stalled": 3,
    "cancel": 4,
    "lost": 5,
}


class StopAttempt(BaseException):
    """Unwinds a handler that was asked to stop. Not an Exception, so that a handler's own `except Exception` lets
    it pass."""


class Home(Protocol):
    """A runner elsewhere, as an attempt in its hands knows it."""

    def tell(self, attempt: Attempt) -> None:
        """It was asked to stop."""

    def has_begun(self, attempt: Attempt) -> bool:
        """Has its handler been called?"""

    def has_recorded(self, attempt: Attempt) -> bool:
        """Has its handler recorded its success itself, or is about to?"""


class Attempt(msgspec.Struct, eq=False, gc=False):
    """Made and dropped for every job, so made cheaply: a struct, which the garbage collector does not look at. Hence
    nothing that an attempt refers to may lead back to it, but a home while it has it in hand."""

    held: ClaimedJob
    timeout: float | None = None  # seconds it may run
    taken: float = 0.0  # monotonic: when it was claimed
    lane: int = 0  # whose slot it takes, as its desk numbers them
    number: int = 0  # by which a runner elsewhere knows it
    home: Home | None = None  # that runner
    is_async: bool = False  # as that runner counts it
    reason: Reason | None = None  # why it should stop
    asked_at: float = 0.0  # monotonic: when it was asked to
    told: bool = False  # the handler knows
    forced: bool = False  # its grace is over: it is stopped at the next opportunity
    started: float = 0.0  # monotonic; 0: not yet
    ended: float = 0.0
    moved: float = 0.0  # monotonic: when it last reported or saved progress, as far as that was noticed
    patience: float | None = None  # seconds without progress after which it counts as stalled
    recorded: bool = False  # the handler recorded its success itself
    done: int | None = None  # items, as the handler reports them; None: it reported nothing
    fresh: bool = False  # it reported something that was not passed on yet; set after what it reported
    total: int | None = None
    note: str | None = None
    hide: Callable[[str], str] | None = None  # takes secrets out of the note
    speed: Speed | None = None  # of its progress, as far as it was written
    interrupt: Callable[[Attempt], None] | None = None  # how its runner stops it, if it can
    leased: float = 0.0  # monotonic: its lease is no older than that
    begin_by: float | None = None  # monotonic: after that it has expired, and is given back instead

    def ask(self, reason: Reason) -> bool:
        """Ask it to stop. False: it had been asked for as strong a reason before."""
        if STRENGTH[reason] <= STRENGTH[self.reason]:
            return False
        self.reason = reason
        self.asked_at = time.monotonic()
        if self.home is not None:
            self.home.tell(self)
        if reason != "shutdown" or self.forced:
            self.stop_now()
        return True

    def lose(self) -> bool:
        """Its lease is gone: ask it to stop for that. True: this is news that we have to tell."""
        return self.ask("lost")

    def force(self) -> None:
        """Its grace is over."""
        self.forced = True
        if self.home is not None:
            self.home.tell(self)
        self.stop_now()

    def stop_now(self) -> None:
        if self.interrupt is not None:
            self.interrupt(self)

    @property
    def not_to_begin(self) -> bool:
        """Was it asked to stop, or has it expired, before it began? Then it is given back."""
        return self.reason is not None or (self.begin_by is not None and time.monotonic() >= self.begin_by)

    @property
    def must_stop(self) -> bool:
        return self.reason is not None and (self.reason != "shutdown" or self.forced)

    @property
    def progress(self) -> Progress | None:
        """How far the work is, as it is to be kept; None: its handler has not said. Secrets are looked for here, not
        where it is reported: that may be done a million times a second, this is done once."""
        if self.done is None:
            return None
        note = self.note
        if note is not None and self.hide is not None:
            note = self.hide(clean(note[:LOOKED_AT]))[:NOTE_LIMIT]
        return self.done, self.total, note

    def news(self) -> Progress | None:
        """The progress that was reported since the last call. The flag is cleared before the values are read, and set
        after they are written: so what a handler reports meanwhile is passed on now or by the next call."""
        if not self.fresh:
            return None
        self.fresh = False
        return self.progress

    def reached(self, progress: Progress) -> None:
        """A runner elsewhere passes on how far it is."""
        self.done, self.total, self.note = progress
        self.fresh = True

    def record(self, value: bool) -> None:
        """The handler records its success itself; False: that was not committed."""
        self.recorded = value

    @property
    def has_begun(self) -> bool:
        return self.started > 0 or (self.home is not None and self.home.has_begun(self))

    @property
    def has_recorded(self) -> bool:
        return self.recorded or (self.home is not None and self.home.has_recorded(self))

    def begin(self) -> None:
        self.started = time.monotonic()

    def end(self) -> None:
        self.ended = time.monotonic()

    def __repr__(self) -> str:
        """Without the arguments: they may be secret."""
        state = "ended" if self.ended else "runs" if self.started else "waits"
        asked = "" if self.reason is None else f", asked to stop: {self.reason}"
        return f"<Attempt {self.held.attempt} of job {self.held.id}: {state}{asked}>"
