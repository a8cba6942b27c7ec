"""The functions an application wants called when a worker starts and stops, around an attempt, when one errors, and
when a poll fails."""

from __future__ import annotations

import inspect
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from holdfast import errors, events
from holdfast.errors import BadSettings, Crashed, HoldfastError, LeaseLost, StoreError
from holdfast.model.alerts import Alert
from holdfast.model.outcome import in_words
from holdfast.tasks.around import Wrapper
from holdfast.tasks.current import JobInfo
from holdfast.tasks.resources import on_loop

if TYPE_CHECKING:
    import asyncio

Hook = Callable[[], Any]
ErrorHook = Callable[[JobInfo | None, BaseException], object]
DoctorCheck = Callable[[], Iterable[str] | str | None]
AlertHook = Callable[[Alert], object]
H = TypeVar("H", bound=Callable[..., object])

ERRORS = ("errored", "lease_lost", "poll_failed")  # the events that error hooks are called for

ALERTS = ("alert_began", "alert_ended")  # the events that alert hooks are called for

ROOM = 5000  # calls of hooks that may wait
REPORT_EVERY = 10.0  # seconds between two reports of calls that were dropped


class Hooks(msgspec.Struct, frozen=True):
    start: list[Hook] = []
    stop: list[Hook] = []
    error: list[ErrorHook] = []
    alert: list[AlertHook] = []
    around: list[Wrapper] = []

    def started(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Call the start hooks, in order. One that fails keeps the worker from starting."""
        for hook in self.start:
            try:
                _call(hook, loop)
            except Exception as error:
                raise HoldfastError(
                    f"the start hook {_name(hook)} failed, so this worker takes no jobs (they stay queued): "
                    f"{type(error).__name__}: {error}"
                ) from error

    def stopped(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Call the stop hooks, in reverse order. A failure is reported, and keeps nothing from stopping."""
        for hook in reversed(self.stop):
            try:
                _call(hook, loop)
            except Exception as error:  # noqa: BLE001 - a user's code may raise anything
                events.emit("hook_failed", hook=_name(hook), error=f"{type(error).__name__}: {error}")

    def listen(self, worker: str) -> Callable[[float], None]:
        """Have the error hooks called for errors that no handler raised, and the alert hooks for alerts: the worker
        emits events about those. Returns a function that ends this: it waits so many seconds until the hooks were
        called for all of them."""
        wanted = ERRORS * bool(self.error) + ALERTS * bool(self.alert)
        if not wanted:
            return lambda seconds: None
        calls = _Calls()

        def on_event(name: str, fields: dict[str, Any]) -> None:
            if fields.get("worker") != worker or fields.get("raised"):
                return  # of another worker, or the hooks were called where it was raised
            if name in ALERTS:
                alert = msgspec.convert(fields["alert"], Alert)
                calls.add(lambda: _call_hooks(self.alert, alert))
            elif name == "poll_failed":
                failure = _restored(fields["error_class"], fields["error"])
                calls.add(lambda: call_error_hooks(self.error, None, failure))
            elif "task" in fields:
                job, error = _job(fields), _error(name, fields)
                calls.add(lambda: call_error_hooks(self.error, job, error))

        unsubscribe = events.subscribe(on_event, only=wanted)

        def end(seconds: float) -> None:
            unsubscribe()
            calls.end(seconds)

        return end


class _Calls:
    """Calls hooks on a thread of its own: the thread that renews leases emits events, too, and a slow hook must not
    hold it up."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._calling = False
        self._ended = False
        self._dropped = 0
        self._reported_at = -math.inf  # monotonic: when dropped calls were last reported
        threading.Thread(target=self._call, name="holdfast-hooks", daemon=True).start()

    def add(self, call: Callable[[], None]) -> None:
        """From any thread; never waits."""
        with self._changed:
            if len(self._waiting) < ROOM:
                self._waiting.append(call)
                self._changed.notify_all()
                return
            self._dropped += 1
            if time.monotonic() - self._reported_at < REPORT_EVERY:
                return
        self._report_dropped()

    def _call(self) -> None:
        while True:
            with self._changed:
                self._calling = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting or self._ended)
                if self._ended:
                    return
                call = self._waiting.popleft()
                self._calling = True
            call()

    def end(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting and not self._calling, seconds)
            self._ended = True
            self._dropped += len(self._waiting) + self._calling
            self._waiting.clear()
            self._changed.notify_all()
        self._report_dropped()

    def _report_dropped(self) -> None:
        with self._changed:
            dropped, self._dropped = self._dropped, 0
            self._reported_at = time.monotonic()
        if dropped:
            events.emit("events_dropped", count=dropped)


def call_error_hooks(hooks: Iterable[ErrorHook], job: JobInfo | None, error: BaseException) -> None:
    _call_hooks(hooks, job, error)


def _call_hooks(hooks: Iterable[Callable[..., object]], *arguments: object) -> None:
    for hook in hooks:
        try:
            hook(*arguments)
        except BaseException as broken:  # noqa: BLE001 - what a hook raises, even SystemExit, costs the job nothing
            events.emit("hook_failed", hook=_name(hook), error=in_words(broken))


def checked_hook(kind: str, hook: H, *taken: str) -> H:
    """`taken`: what it is called with."""
    if inspect.iscoroutinefunction(hook):
        raise BadSettings(f"{kind}: {_name(hook)} must be a plain function: an attempt that ends waits for nobody")
    try:
        inspect.signature(hook).bind(*taken)
    except TypeError:
        raise BadSettings(f"{kind}: {_name(hook)} must take {' and '.join(taken)}") from None
    return hook


def _job(fields: dict[str, Any]) -> JobInfo:
    return JobInfo(
        fields["job"], fields["task"], fields["queue"], fields["priority"], fields["max_attempts"],
        fields["correlation_id"], fields["attempt"],
    )  # fmt: skip


def _error(name: str, fields: dict[str, Any]) -> BaseException:
    if name == "lease_lost":
        return LeaseLost("the job was taken over by someone else; what this attempt still does is dropped")
    code = fields["error_code"]
    message = fields["error"].removeprefix(f"{code}: ")
    if code in ("CRASHED", "LOST", "QUARANTINED"):
        return Crashed(message, code=code)
    return TimeoutError(message) if code in ("TIMED_OUT", "STALLED") else HoldfastError(message)


def _restored(kind: str, text: str) -> BaseException:
    """One of our own errors, restored from its text; any other as a HoldfastError."""
    number, _, message = text.partition(" ")
    found = getattr(errors, kind, None)
    if isinstance(found, type) and issubclass(found, StoreError):
        return found(message, number=number)
    return HoldfastError(f"{kind}: {text}")


def _call(hook: Hook, loop: asyncio.AbstractEventLoop | None) -> None:
    if not inspect.iscoroutinefunction(hook):
        hook()
    elif loop is None:
        import asyncio

        asyncio.run(hook())
    else:
        on_loop(hook(), loop).result()


def _name(hook: Callable[..., Any]) -> str:
    return getattr(hook, "__qualname__", None) or repr(hook)
