"""Stands between a client and a PostgreSQL server as a pooler does: it makes up the process number that the client is
told at the start, and may lose the session's settings. Nothing else of a pooler is needed to tell that there is one."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from urllib.parse import urlsplit

MADE_UP = 7


class Pooler:
    def __init__(self, url: str, *, keeps_settings: bool) -> None:
        self._keeps_settings = keeps_settings
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listener]
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://{parts.username}@127.0.0.1:{port}{parts.path}?sslmode=disable&gssencmode=disable"

    def __enter__(self) -> Pooler:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._open:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            self._open += [client, server]
            for act in (self._ask, self._answer):
                threading.Thread(target=act, args=(client, server), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        try:
            with client.makefile("rb") as start:
                (length,) = struct.unpack("!I", head := start.read(4))
                body = start.read(length - 4)
                server.sendall(head + (body if self._keeps_settings else without_settings(body)))
                while data := start.read1(65536):
                    server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            return  # one of both is gone

    def _answer(self, client: socket.socket, server: socket.socket) -> None:
        try:
            with server.makefile("rb") as answers:
                while head := answers.read(5):
                    kind, length = struct.unpack("!cI", head)
                    body = answers.read(length - 4)
                    if kind == b"K":  # BackendKeyData: process and secret
                        body = struct.pack("!I", MADE_UP) + body[4:]
                    client.sendall(head + body)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            return


def without_settings(start: bytes) -> bytes:
    """A client's first message, of the same length, its session settings turned into what asks for nothing: as of a
    pooler that is told to ignore them."""
    before, name, rest = start.partition(b"\0options\0")
    if not name:
        return start
    value, _, after = rest.partition(b"\0")
    return before + name + b" " * len(value) + b"\0" + after
