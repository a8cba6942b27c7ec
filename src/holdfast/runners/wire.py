"""Frames over a socket pair: a length, then a message as MessagePack."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from threading import Lock

import msgspec

from holdfast.model.outcome import clean
from holdfast.redact import scrub
from holdfast.runners.messages import ToRunner, ToWorker

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
