"""One attempt in flight: the job it runs, how far it is, and why it should stop. Shared between the desk, the heartbeat
and the runner."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import LOOKED_AT, Progress, clean
from holdfast.model.speed import Speed

NOTE_LIMIT = 1_000  # characters kept of a progress note

StopReason = Literal["lost", "cancel", "pause", "timeout", "stalled", "shutdown"]

# The first reason stays unless a stronger one follows. A lost lease is the strongest: nothing more may be recorded.
STRENGTH: dict[StopReason | None, int] = {
    None: 0,
    "shutdown": 1,
    "pause": 2,
    "timeout": 3,
    "stalled": 3,
    "cancel": 4,
    "lost": 5,
}


class StopAttempt(BaseException):
    """Unwinds a handler that was asked to stop. Not an Exception, so that a handler's `except Exception` does not catch
    it."""


class Remote(Protocol):
    """The other process that an attempt was given to."""

    def stop_requested(self, attempt: Attempt) -> None:
        """The attempt should stop, or must stop now: pass that on."""

    def has_begun(self, attempt: Attempt) -> bool:
        """Has its handler been called?"""

    def has_recorded(self, attempt: Attempt) -> bool:
        """Has its handler recorded success itself, or is it about to?"""


class Attempt(msgspec.Struct, eq=False, gc=False):
    """Created and dropped for every job, so it must be cheap: a struct that the garbage collector does not track.
    Therefore nothing that an attempt refers to may lead back to it, except `remote` while it is set."""

    held: ClaimedJob
    timeout: float | None = None  # seconds it may run
    taken: float = 0.0  # monotonic: when it was claimed
    runner: int = 0  # the runner whose slot it takes, as the desk numbers runners
    number: int = 0  # its number in the process it was given to
    remote: Remote | None = None  # that process; None: it runs in this one
    is_async: bool = False  # which slots of that process it takes
    reason: StopReason | None = None  # why it should stop
    asked_at: float = 0.0  # monotonic: when it was asked to stop
    stop_seen: bool = False  # its handler knows that it should stop
    forced: bool = False  # its grace is over: it stops at the next opportunity
    started: float = 0.0  # monotonic; 0: not yet
    ended: float = 0.0
    moved: float = 0.0  # monotonic: when it last reported or saved progress, as far as we noticed
    patience: float | None = None  # seconds without progress after which it counts as stalled
    recorded: bool = False  # the handler recorded its success itself
    done: int | None = None  # items, as the handler reports them; None: it reported nothing
    fresh: bool = False  # progress was reported and not passed on yet; set after the values
    total: int | None = None
    note: str | None = None
    hide: Callable[[str], str] | None = None  # removes secrets from the note
    speed: Speed | None = None  # of the progress written so far
    interrupt: Callable[[Attempt], None] | None = None  # stops the handler, where the runner can do that
    leased: float = 0.0  # monotonic: its lease is no older than this
    begin_by: float | None = None  # monotonic: after this it has expired and is given back instead

    def ask(self, reason: StopReason) -> bool:
        """Ask it to stop. False: it was already asked for an equally strong reason."""
        if STRENGTH[reason] <= STRENGTH[self.reason]:
            return False
        self.reason = reason
        self.asked_at = time.monotonic()
        if self.remote is not None:
            self.remote.stop_requested(self)
        if reason != "shutdown" or self.forced:
            self.stop_now()
        return True

    def lose(self) -> bool:
        """Its lease is gone: ask it to stop for that. True: this process has to report the loss."""
        return self.ask("lost")

    def force(self) -> None:
        """Its grace is over."""
        self.forced = True
        if self.remote is not None:
            self.remote.stop_requested(self)
        self.stop_now()

    def stop_now(self) -> None:
        if self.interrupt is not None:
            self.interrupt(self)

    @property
    def not_to_begin(self) -> bool:
        """Was it asked to stop, or did it expire, before it began? Then it is given back."""
        return self.reason is not None or (self.begin_by is not None and self.has_expired)

    @property
    def has_expired(self) -> bool:
        return self.begin_by is not None and time.monotonic() >= self.begin_by

    @property
    def must_stop(self) -> bool:
        return self.reason is not None and (self.reason != "shutdown" or self.forced)

    def raise_if_stopping(self, *, at_shutdown: bool = False) -> None:
        """Raise StopAttempt in a handler that must stop. `at_shutdown`: also during the grace of a shutdown."""
        if self.must_stop or (at_shutdown and self.reason is not None):
            self.stop_seen = True
            raise StopAttempt(self.reason)

    @property
    def progress(self) -> Progress | None:
        """How far the work is, as it is stored; None: the handler has not said. Secrets are removed here and not where
        progress is reported: a handler may report a million times a second, this is read once."""
        if self.done is None:
            return None
        note = self.note
        if note is not None and self.hide is not None:
            note = self.hide(clean(note[:LOOKED_AT]))[:NOTE_LIMIT]
        return self.done, self.total, note

    def new_progress(self) -> Progress | None:
        """What was reported since the last call. The flag is cleared before the values are read and set after they are
        written, so a report made meanwhile is passed on now or by the next call."""
        if not self.fresh:
            return None
        self.fresh = False
        return self.progress

    def set_progress(self, progress: Progress) -> None:
        """Take over what another process reports."""
        self.done, self.total, self.note = progress
        self.fresh = True

    def record(self, value: bool) -> None:
        """The handler records its success itself. False: that was not committed."""
        self.recorded = value

    @property
    def has_begun(self) -> bool:
        return self.started > 0 or (self.remote is not None and self.remote.has_begun(self))

    @property
    def has_recorded(self) -> bool:
        return self.recorded or (self.remote is not None and self.remote.has_recorded(self))

    def begin(self) -> None:
        self.started = time.monotonic()

    def end(self) -> None:
        self.ended = time.monotonic()

    def __repr__(self) -> str:
        """Without the arguments: they may be secret."""
        state = "ended" if self.ended else "runs" if self.started else "waits"
        asked = "" if self.reason is None else f", asked to stop: {self.reason}"
        return f"<Attempt {self.held.attempt} of job {self.held.id}: {state}{asked}>"
