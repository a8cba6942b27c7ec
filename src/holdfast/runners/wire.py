"""Frames over a socket pair: a length, then a message as MessagePack."""

from __future__ import annotations

import os
import socket
import struct

import msgspec

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
