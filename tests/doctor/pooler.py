"""Stands between a client and a PostgreSQL server as a pooler does: it makes up the process number that the client is
told at the start. Nothing else of a pooler is needed to tell that there is one."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from urllib.parse import urlsplit

MADE_UP = 7


class Pooler:
    def __init__(self, url: str) -> None:
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
            while data := client.recv(65536):
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
