"""What a worker and its runner processes say to each other: frames over a socket pair, each its length and then
MessagePack. Attempts go by a number of their own, so that an outcome needs neither job nor fence.

A handler can find its process's end of the line and write what it likes. So what a worker may hear has types and limits
that are checked as it is decoded, and nothing in it takes much more memory than it has bytes; what the values mean is
looked at by `arrivals`."""

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
from holdfast.tasks.attempt import NOTE_LIMIT, StopReason
from holdfast.tasks.manifest import TaskInfo

LENGTH = struct.Struct("!I")
CHUNK = 256 * 1024  # bytes read at once
LONGEST = 8 * 2**20  # bytes of a frame from a runner, beside one result: runners divide what would be longer
PART = 4 * 2**20  # bytes of results, errors and notes after which a runner begins another frame
LAST = 4 * 2**20  # bytes heard of a runner that has ended: more than a line holds. Another process may go on writing
ASKS = 16  # requests of one attempt under way at once: its process waits before it sends another

# What stands at an attempt's number in the memory that worker and runner share: it outlives the runner.
MARKS = 1 << 16  # numbers before they come round again; more attempts than that no runner has in hand
WAITS, RUNS, ENDED, RECORDS, RECORDED = 0, 1, 2, 3, 4


class Orders(msgspec.Struct, frozen=True, array_like=True, tag="orders"):
    """A worker's first word to a runner: what to run. Not an argument of its program, which everybody on the host can
    read: there may be passwords in it. `settings` are over the application's own."""

    app: str
    verbose: int = 0
    settings: dict[str, Any] = {}


Number = Annotated[int, Meta(ge=0)]  # of an attempt
Numbers = Annotated[list[Number], Meta(max_length=MARKS)]
Times = Annotated[list[float], Meta(max_length=MARKS)]
Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Note = Annotated[str, Meta(max_length=NOTE_LIMIT)]


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """A runner has imported the application: its settings, and the tasks it has handlers for."""

    settings: dict[str, bool | int | float | str | None]
    tasks: tuple[TaskInfo, ...]


class Unfit(msgspec.Struct, frozen=True, array_like=True, tag="unfit"):
    """A runner can't start: by what error, and how that is told."""

    kind: str
    message: str
    number: str


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """The runner belongs to this worker. With it come the shared marks."""

    worker: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """Resources are open, hooks were called: attempts may come. `hears`: the events that the application listens to;
    None: all."""

    hears: Annotated[list[str], Meta(max_length=1000)] | None = []


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """Run these, which are numbered from `first` on. `taken`: when they were claimed (monotonic). `begin_by`: when each
    of them expires, or nothing at all if none does."""

    first: int
    taken: float
    jobs: list[ClaimedJob]
    begin_by: list[float | None] = []


class Tell(msgspec.Struct, frozen=True, array_like=True, tag="tell"):
    """An attempt should stop. `forced`: its grace is over."""

    number: int
    reason: StopReason | None
    forced: bool


class Withdraw(msgspec.Struct, frozen=True, array_like=True, tag="withdraw"):
    """Give back what has not begun, the newest first: so many of this colour, or all."""

    is_async: bool
    most: int | None


class Where(msgspec.Struct, frozen=True, array_like=True, tag="where"):
    """Somebody asks where the handler of this attempt is."""

    number: int


class Happened(msgspec.Struct, frozen=True, array_like=True, tag="happened"):
    """Events of the worker, for the application's listeners: of each its name and its fields."""

    events: list[msgspec.Raw]


class Close(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    """End in good order, within so many seconds."""

    seconds: float


class Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    """Attempts that ended, with when they began and ended (monotonic). Those that succeeded come in columns, which cost
    far less than a row for each: `results` has as many, or none at all if none of them has one. Then the others."""

    numbers: Numbers
    started: Times
    ended: Times
    results: Annotated[list[bytes | None], Meta(max_length=MARKS)] = []
    others: Annotated[list[tuple[Number, float, float, Outcome | None]], Meta(max_length=MARKS)] = []

    def __post_init__(self) -> None:
        count = len(self.numbers)
        if not count == len(self.started) == len(self.ended) or len(self.results) not in (0, count):
            raise ValueError("columns of different lengths")


class Back(msgspec.Struct, frozen=True, array_like=True, tag="back"):
    """Given back before they began; the answer to Withdraw, even if there are none."""

    is_async: bool
    numbers: Numbers


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """How far attempts are: done, total, note. `others` made progress that they saved themselves."""

    progress: Annotated[list[tuple[Number, Count, Count | None, Note | None]], Meta(max_length=MARKS)]
    others: Numbers = []


class Here(msgspec.Struct, frozen=True, array_like=True, tag="here"):
    """The answer to Where: a stack, as model/stack.py writes it."""

    number: Number
    stack: str


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="heard"):
    """The listeners have heard what happened: more of it may come."""


# Between a worker and a process that runs one attempt:


class Run(msgspec.Struct, frozen=True, array_like=True, tag="run"):
    """The one attempt to run, and where its handler is: the application, and where modules are looked for. `settings`
    are over the application's own."""

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


class Over(msgspec.Struct, frozen=True, array_like=True, tag="over"):
    """What became of it."""

    outcome: Outcome | None


class SaveCheckpoint(msgspec.Struct, frozen=True, array_like=True, tag="checkpoint"):
    state: bytes | None
    pending: Count
    done: Count | None


class FindStep(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    name: Annotated[str, Meta(max_length=STEP_NAME_LIMIT)]


class KeepStep(msgspec.Struct, frozen=True, array_like=True, tag="keep_step"):
    name: Annotated[str, Meta(max_length=STEP_NAME_LIMIT)]
    result: bytes


class Recording(msgspec.Struct, frozen=True, array_like=True, tag="recording"):
    """The handler is about to record its success itself: a job that is done by then was not lost."""


Request = SaveCheckpoint | FindStep | KeepStep | Recording  # all that may be asked, each for the attempt's own job


class Ask(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """Do this with the store for me. At most `ASKS` at once."""

    number: Number
    request: Request


class Reply(msgspec.Struct, frozen=True, array_like=True, tag="reply"):
    """What came of it; or the error: its class, message and number."""

    number: int
    value: Any
    error: tuple[str, str, str] | None


ToRunner = Orders | Begin | Start | Tell | Withdraw | Where | Happened | Close | Run | Reply
ToWorker = Hello | Unfit | Ready | Done | Back | Moved | Here | Heard | Began | Over | Ask

_encoder = msgspec.msgpack.Encoder()
to_runner = msgspec.msgpack.Decoder(ToRunner)
to_worker = msgspec.msgpack.Decoder(ToWorker)


def frame(message: ToRunner | ToWorker) -> bytearray:
    buffer = bytearray(LENGTH.size)
    _encoder.encode_into(message, buffer, LENGTH.size)
    LENGTH.pack_into(buffer, 0, len(buffer) - LENGTH.size)
    return buffer


class Incoming:
    """Puts frames together from what a socket brings."""

    def __init__(self, longest: int = 1 << 32) -> None:
        self._rest = bytearray()  # a frame that is not complete
        self.longest = longest  # bytes of a frame

    def feed(self, data: bytes | bytearray) -> list[memoryview]:
        """The frames that are complete with this. They are read where they lie."""
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


class Garbled(Exception):
    """A runner said what no runner says: a handler has meddled with the line, and nothing more from there can be
    trusted. The text goes on a sentence: "it …"."""


class Hearing:
    """What a runner says, as its worker hears it."""

    def __init__(self, line: socket.socket, max_result: int = 0) -> None:
        self._line = line
        self._incoming = Incoming()
        self.allow(max_result)
        self.broken = ""  # why nothing more from there can be trusted: "it …"

    def allow(self, max_result: int) -> None:
        """So many bytes of a result."""
        self._incoming.longest = LONGEST + max_result

    def receive(self) -> list[ToWorker] | None:
        """What it said, without waiting. None: it will say no more."""
        try:
            data = self._line.recv(CHUNK, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._decoded(data) if data else None

    def last_words(self) -> Iterator[ToWorker]:
        """It has ended: all that it said before."""
        left = LAST
        with suppress(OSError):  # that was all
            while left > 0 and (data := self._line.recv(CHUNK, socket.MSG_DONTWAIT)):
                left -= len(data)
                yield from self._decoded(data) or ()

    def _decoded(self, data: bytes) -> list[ToWorker] | None:
        if self.broken:
            return None
        said: list[ToWorker] = []
        try:
            for message in self._incoming.feed(data):
                said.append(to_worker.decode(message))
        except Exception as error:  # noqa: BLE001 - bytes that somebody chose may raise anything that decoding can
            self.broken = f"sent what can't be understood ({scrub(clean(str(error)[:200]))})"
        return said or (None if self.broken else [])


def unfit(error: Exception) -> Unfit:
    """This keeps a runner from starting."""
    if not isinstance(error, HoldfastError):
        error = HoldfastError(f"{type(error).__name__}: {error}")
    return Unfit(type(error).__name__, clean(error.message[:LOOKED_AT]), error.number)


def say(line: socket.socket, message: ToWorker) -> None:
    """From a runner to its worker. Where the worker is gone, there is nothing left to do: end at once, and quietly."""
    try:
        line.sendall(frame(message))
    except OSError:
        os._exit(1)


def hear(line: socket.socket) -> bytes:
    """What the worker said. Nothing: it is gone."""
    try:
        return line.recv(CHUNK)
    except ConnectionResetError:
        return b""


def hear_one(line: socket.socket) -> ToRunner | None:
    """One message, and nothing after it. None: the worker is gone."""
    try:
        head = line.recv(LENGTH.size, socket.MSG_WAITALL)
        body = line.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL) if head else b""
    except ConnectionResetError:
        return None
    return to_runner.decode(body) if body else None


class Outgoing:
    """Sends frames without ever waiting: what the other side does not take yet is kept. From any thread."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = Lock()
        self._backlog = bytearray()
        self.sent = 0  # bytes that the other side has taken

    def send(self, message: ToRunner) -> bool:
        """False: some of it waits until the line is writable, then `flush`."""
        data = frame(message)
        with self._lock:
            if self._backlog:
                self._backlog += data
                return False
            sent = self._sent(data)
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
        """Bytes that were to be sent so far."""
        with self._lock:
            return self.sent + len(self._backlog)

    def flush(self) -> bool:
        with self._lock:
            with memoryview(self._backlog) as waiting:
                sent = self._sent(waiting)
            del self._backlog[:sent]
            self.sent += sent
            return not self._backlog

    def _sent(self, data: bytearray | memoryview) -> int:
        sent = 0
        try:
            while sent < len(data):
                sent += self._line.send(memoryview(data)[sent:], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            pass  # the other side is busy
        except OSError:
            return len(data)  # nobody is there any more: its end is noticed elsewhere
        return sent
