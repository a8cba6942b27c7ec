"""Frames over a socket pair: a length, then a message as MessagePack."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.errors import HoldfastError
from holdfast.model.job import STEP_NAME_LIMIT, ClaimedJob
from holdfast.model.outcome import LOOKED_AT, MAX_COUNT, Outcome, clean
from holdfast.redact import scrub
from holdfast.runners.attempt_table import MARKS
from holdfast.tasks.attempt import NOTE_LIMIT, StopReason
from holdfast.tasks.manifest import TaskInfo

# The messages between a worker and its runner processes. An attempt is named by a number, so an outcome needs neither
# job nor fence.
#
# A handler can find its process's end of the connection and write anything to it. Therefore the types and limits of
# what a worker receives are checked while it is decoded, and no message takes much more memory than it has bytes.
# What the values mean is checked by `arrivals`.

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

    progress: Annotated[list[tuple[Number, Count | None, Count | None, Note | None]], Meta(max_length=MARKS)]
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

    settings: dict[str, bool | int | float | str | dict[str, dict[str, int | float]] | None]
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


LENGTH = struct.Struct("!I")
CHUNK = 256 * 1024  # bytes read at once
LONGEST = 8 * 2**20  # bytes of a frame to a worker, besides one result: processes split what would be longer
PART = 4 * 2**20  # bytes of results, errors and notes after which a process begins another frame

_encoder = msgspec.msgpack.Encoder()
to_runner = msgspec.msgpack.Decoder(ToRunner)
to_worker = msgspec.msgpack.Decoder(ToWorker)


def frame(message: ToRunner | ToWorker) -> bytearray:
    buffer = bytearray(LENGTH.size)
    _encoder.encode_into(message, buffer, LENGTH.size)
    LENGTH.pack_into(buffer, 0, len(buffer) - LENGTH.size)
    return buffer


class FrameReader:
    """Assembles frames from the chunks that a socket returns."""

    def __init__(self, longest: int = 1 << 32) -> None:
        self._rest = bytearray()  # an incomplete frame
        self.longest = longest  # bytes of a frame

    def feed(self, data: bytes | bytearray) -> list[memoryview]:
        """The frames that are complete with this chunk. They are views, not copies."""
        frames: list[memoryview] = []
        buffer = data
        if self._rest:
            buffer = self._rest
            buffer += data
        view = memoryview(buffer)
        start = 0
        while len(buffer) - start >= LENGTH.size:
            end = start + LENGTH.size + LENGTH.unpack_from(buffer, start)[0]
            if end - start > self.longest:
                raise msgspec.DecodeError("a frame is longer than anything there is to say")
            if end > len(buffer):
                break
            frames.append(view[start + LENGTH.size : end])
            start = end
        if start:
            self._rest = bytearray(view[start:])
        elif buffer is data:
            self._rest += data
        return frames


# -- in a runner process -----------------------------------------------------------------------------------------------


def send(connection: socket.socket, message: ToWorker) -> None:
    """If the worker is gone, there is nothing left to do: the process ends at once, and quietly."""
    try:
        connection.sendall(frame(message))
    except OSError:
        os._exit(1)


def receive(connection: socket.socket) -> bytes:
    """The next chunk from the worker. Empty: it is gone."""
    try:
        return connection.recv(CHUNK)
    except ConnectionResetError:
        return b""


def receive_one(connection: socket.socket) -> ToRunner | None:
    """One message, and nothing after it. None: the worker is gone."""
    try:
        head = connection.recv(LENGTH.size, socket.MSG_WAITALL)
        body = connection.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL) if head else b""
    except ConnectionResetError:
        return None
    return to_runner.decode(body) if body else None


# The worker's end of the connection to one of its processes. Neither reading nor sending ever waits.

LAST = 4 * 2**20  # bytes read from a process that has ended: more than a socket holds. A process it left may write on


class Garbled(Exception):
    """A process sent what no process of ours sends: a handler meddled with the connection, and nothing more from there
    can be trusted. The text completes the sentence "it …"."""


class Channel:
    def __init__(self, connection: socket.socket, max_result: int = 0) -> None:
        self.connection = connection
        self.outgoing = SendBuffer(connection)
        self.broken = ""  # why nothing more from there can be trusted: "it …"
        self._frames = FrameReader()
        self.allow(max_result)

    def allow(self, max_result: int) -> None:
        """Accept results of so many bytes."""
        self._frames.longest = LONGEST + max_result

    def send(self, message: ToRunner) -> bool:
        """From any thread. False: some of it waits until the socket is writable; then call `outgoing.flush`."""
        return self.outgoing.send(message)

    def receive(self) -> list[ToWorker] | None:
        """What has arrived. None: nothing more will."""
        try:
            data = self.connection.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._decoded(data) if data else None

    def receive_rest(self) -> Iterator[ToWorker]:
        """The process has ended: everything it sent before."""
        left = LAST
        with suppress(OSError):  # there is no more
            while left > 0 and (data := self.connection.recv(CHUNK, socket.MSG_DONTWAIT)):
                left -= len(data)
                yield from self._decoded(data) or ()

    def _decoded(self, data: bytes) -> list[ToWorker] | None:
        if self.broken:
            return None
        messages: list[ToWorker] = []
        try:
            for one in self._frames.feed(data):
                messages.append(to_worker.decode(one))
        except Exception as error:  # noqa: BLE001 - bytes that somebody chose may raise anything that decoding can
            self.broken = f"sent what can't be understood ({scrub(clean(str(error)[:200]))})"
        return messages or (None if self.broken else [])

    def close(self) -> None:
        self.connection.close()


class SendBuffer:
    """Sends frames without waiting: what the other side does not take yet is buffered. From any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = Lock()
        self._backlog = bytearray()
        self.sent = 0  # bytes that the other side has taken

    def send(self, message: ToRunner) -> bool:
        """False: some of it waits until the socket is writable; then call `flush`."""
        data = frame(message)
        with self._lock:
            if self._backlog:
                self._backlog += data
                return False
            sent = self._send(data)
            self.sent += sent
            self._backlog += memoryview(data)[sent:]
            return not self._backlog

    @property
    def empty(self) -> bool:
        return not self._backlog

    @property
    def waiting(self) -> int:
        """Bytes that the other side has not taken."""
        return len(self._backlog)

    @property
    def written(self) -> int:
        """Bytes that were passed to `send` so far."""
        with self._lock:
            return self.sent + len(self._backlog)

    def flush(self) -> bool:
        with self._lock:
            with memoryview(self._backlog) as waiting:
                sent = self._send(waiting)
            del self._backlog[:sent]
            self.sent += sent
            return not self._backlog

    def _send(self, data: bytearray | memoryview) -> int:
        sent = 0
        try:
            while sent < len(data):
                sent += self._connection.send(memoryview(data)[sent:], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            pass  # the other side is busy
        except OSError:
            return len(data)  # nobody is there any more: its end is noticed elsewhere
        return sent
