"""The messages between a worker and its runner processes. An attempt is named by a number, so an outcome needs neither
job nor fence.

A handler can find its process's end of the connection and write anything to it. Therefore the types and limits of what
a worker receives are checked while it is decoded, and no message takes much more memory than it has bytes. What the
values mean is checked by `arrivals`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.errors import HoldfastError
from holdfast.model.job import STEP_NAME_LIMIT, ClaimedJob
from holdfast.model.outcome import LOOKED_AT, MAX_COUNT, Outcome, clean
from holdfast.runners.attempt_table import MARKS
from holdfast.tasks.attempt import NOTE_LIMIT, StopReason
from holdfast.tasks.manifest import TaskInfo

REQUESTS = 16  # store requests of one attempt under way at once: its process waits before it sends another

Number = Annotated[int, Meta(ge=0)]  # of an attempt
Numbers = Annotated[list[Number], Meta(max_length=MARKS)]
Times = Annotated[list[float], Meta(max_length=MARKS)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Note = Annotated[str, Meta(max_length=NOTE_LIMIT)]
StepName = Annotated[str, Meta(max_length=STEP_NAME_LIMIT)]


class StartFailed(msgspec.Struct, frozen=True, array_like=True, tag="start_failed"):
    """From any process: it can't start, because of this error."""

    kind: str
    message: str
    number: str


def start_failed(error: Exception) -> StartFailed:
    if not isinstance(error, HoldfastError):
        error = HoldfastError(f"{type(error).__name__}: {error}")
    return StartFailed(type(error).__name__, clean(error.message[:LOOKED_AT]), error.number)


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """To any process: this attempt should stop. `forced`: its grace is over."""

    number: int
    reason: StopReason | None
    forced: bool


class Progressed(msgspec.Struct, frozen=True, array_like=True, tag="progressed"):
    """From any process: how far attempts are (done, total, note). `others` saved progress themselves."""

    progress: Annotated[list[tuple[Number, Count, Count | None, Note | None]], Meta(max_length=MARKS)]
    others: Numbers = []


class TakeStack(msgspec.Struct, frozen=True, array_like=True, tag="take_stack"):
    """To any process: where is the handler of this attempt?"""

    number: int


class Stack(msgspec.Struct, frozen=True, array_like=True, tag="stack"):
    """The answer to TakeStack, encoded by model/stack.py."""

    number: Number
    stack: str


# -- pooled processes --------------------------------------------------------------------------------------------------


class Configure(msgspec.Struct, frozen=True, array_like=True, tag="configure"):
    """The first message to a pooled process: what to run. Not an argument of its program, which everybody on the host
    can read: there may be passwords in it. `settings` override the application's own."""

    app: str
    verbose: int = 0
    settings: dict[str, Any] = {}


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """It has imported the application: its settings, and the tasks it has handlers for."""

    settings: dict[str, bool | int | float | str | None]
    tasks: tuple[TaskInfo, ...]


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """The process belongs to this worker. The descriptor of the shared marks comes with it."""

    worker: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """Resources are open and start hooks were called: it takes attempts. `listens_to`: the events that the application
    listens to; None: all."""

    listens_to: Annotated[list[str], Meta(max_length=1000)] | None = []


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """Run these attempts, numbered from `first`. `taken`: when they were claimed (monotonic). `begin_by`: when each of
    them expires; empty if none does."""

    first: int
    taken: float
    jobs: list[ClaimedJob]
    begin_by: list[float | None] = []


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Attempts that ended, with the times they started and ended (monotonic). Successes come in columns, which cost far
    less than a row each; `results` is empty if none of them has a result. Then all others."""

    numbers: Numbers
    started: Times
    ended: Times
    results: Annotated[list[bytes | None], Meta(max_length=MARKS)] = []
    others: Annotated[list[tuple[Number, float, float, Outcome | None]], Meta(max_length=MARKS)] = []

    def __post_init__(self) -> None:
        count = len(self.numbers)
        if not count == len(self.started) == len(self.ended) or len(self.results) not in (0, count):
            raise ValueError("columns of different lengths")


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag="withdraw"):
    """Give back what has not begun, the newest first: so many coroutines or synchronous handlers, or all."""

    is_async: bool
    most: int | None


class Withdrawn(msgspec.Struct, frozen=True, array_like=True, tag="withdrawn"):
    """The answer to Withdraw, even if nothing is given back."""

    is_async: bool
    numbers: Numbers


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag="deliver"):
    """Events of the worker for the application's listeners: name and fields of each."""

    events: list[msgspec.Raw]


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag="delivered"):
    """The listeners were called for these events: more may follow."""


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """End gracefully, within so many seconds."""

    seconds: float


# -- isolated processes ------------------------------------------------------------------------------------------------


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """The one attempt to run, and where its handler is: the application, and the paths to look for modules. `settings`
    override the application's own."""

    app: str
    path: list[str]
    settings: dict[str, Any]
    held: ClaimedJob
    timeout: float | None
    patience: float | None
    worker: str
    database: bool
    begin_by: float | None = None


class Began(msgspec.Struct, frozen=True, array_like=True, tag="began"):
    """Its handler is called: its time runs from now on."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """Its handler is done."""

    outcome: Outcome | None


class SaveCheckpoint(msgspec.Struct, frozen=True, array_like=True, tag="checkpoint"):
    state: bytes | None
    pending: Count
    done: Count | None


class FindStep(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    name: StepName


class KeepStep(msgspec.Struct, frozen=True, array_like=True, tag="keep_step"):
    name: StepName
    result: bytes


class RecordsSuccess(msgspec.Struct, frozen=True, array_like=True, tag="records_success"):
    """The handler is about to record its success itself: if the job is done by then, its lease was not lost."""


StoreRequest = SaveCheckpoint | FindStep | KeepStep | RecordsSuccess  # nothing else, and only for the attempt's own job


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Send this to the store for me. At most `REQUESTS` at once."""

    number: Number
    request: StoreRequest


class Reply(msgspec.Struct, frozen=True, array_like=True, tag="reply"):
    """The result; or the error: its class, message and number."""

    number: int
    value: Any
    error: tuple[str, str, str] | None


ToRunner = Configure | Begin | Start | Stop | Withdraw | TakeStack | Deliver | Close | Run | Reply
ToWorker = Hello | StartFailed | Ready | Done | Withdrawn | Progressed | Stack | Delivered | Began | Ended | Ask
