"""A TCP proxy in front of PostgreSQL that loses replies: it forwards what a client sent, and cuts before the answer.
Or it swallows notifications, as a pooler does. It understands just enough of the protocol for that."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from urllib.parse import urlsplit

from tests.servers import host_and_port

READY = b"Z\x00\x00\x00\x05"  # ReadyForQuery: the server has done all it was sent
NOTIFICATION = ord("A")


class Proxy:
    """In front of the server that the URL `past` names."""

    def __init__(self, past: str) -> None:
        self.past = past
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        user, database = urlsplit(past).netloc.rpartition("@")[0], urlsplit(past).path
        self.url = f"postgresql://{user}@127.0.0.1:{self.port}{database}?sslmode=disable&gssencmode=disable"
        self.loses: Callable[[bytes], bool] = lambda sent: False  # whether the reply to this is lost
        self.deaf = False  # swallow notifications
        self.still = False  # take connections, and pass nothing on
        self.lost = 0
        self.taken = 0  # connections
        self._closing = False
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def lead_to(self, past: str) -> None:
        """Whoever comes from now on gets there."""
        self.past = past

    def _start(self, serve: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=serve, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closing:
            if not select([self._door], [], [], 0.1)[0]:
                continue
            client, _ = self._door.accept()
            self.taken += 1
            try:
                server = _connected(self.past)
            except OSError:
                client.close()
                continue
            self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            self._forward(client, server)
        _cut(client)
        _cut(server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        unread = b""
        while not self._closing:
            if self.still:
                time.sleep(0.02)
                continue
            ready, _, _ = select([client, server], [], [], 0.1)
            if client in ready:
                sent = client.recv(1 << 20)
                if not sent:
                    return
                server.sendall(sent)
                if self.loses(sent):
                    self.lost += 1
                    if random.random() < 0.8:  # else it is cut while the server is still at work
                        _await_reply(server)
                    return
            if server in ready:
                said = server.recv(1 << 20)
                if not said:
                    return
                if self.deaf:
                    said, unread = _without_notifications(unread + said)
                client.sendall(said)

    def close(self) -> None:
        self._closing = True
        for thread in self._threads:
            thread.join(5)
        self._door.close()


@contextmanager
def a_proxy(past: str) -> Iterator[Proxy]:
    proxy = Proxy(past)
    try:
        yield proxy
    finally:
        proxy.close()


def _connected(url: str) -> socket.socket:
    host, port = host_and_port(url)
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(f"{host}/.s.PGSQL.{port}")
    except OSError:
        server.close()
        raise
    return server


def _await_reply(server: socket.socket) -> None:
    """Until the server has done it, or a moment has passed: in a pipeline it may answer only later."""
    said = b""
    server.settimeout(0.1)
    while said[-6:-1] != READY:
        more = server.recv(1 << 20)
        if not more:
            return
        said += more


def _without_notifications(said: bytes) -> tuple[bytes, bytes]:
    """Whole messages without the notifications among them, and the beginning of one that is not whole yet."""
    passed, at = b"", 0
    while len(said) >= at + 5:
        end = at + 1 + int.from_bytes(said[at + 1 : at + 5])
        if len(said) < end:
            break
        if said[at] != NOTIFICATION:
            passed += said[at:end]
        at = end
    return passed, said[at:]


def _cut(connection: socket.socket) -> None:
    """With a reset, as a broken network does."""
    with suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()
