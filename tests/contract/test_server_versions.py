"""Which PostgreSQL servers we work with: 15 and newer."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from bench.embedded import installed
from holdfast import Holdfast
from holdfast.doctor import Level, examine
from holdfast.errors import StoreError
from tests.servers import own_postgres


@pytest.mark.skipif(not installed(15).is_dir(), reason="PostgreSQL 15 is not installed (apt-get install postgresql-15)")
def test_postgresql_15_does() -> None:
    with own_postgres(15) as server, Holdfast(server.url) as app:
        app.migrate()

        @app.task
        def double(n: int) -> int:
            return 2 * n

        jobs = app.enqueue_many(double.bind(n) for n in range(500))
        keyed = double.using(key="k").enqueue(21)
        assert app.drain() == 501
        assert [job.refresh().result for job in (jobs[7], keyed)] == [14, 42]
        assert not [finding for finding in examine(app.settings) if finding.level is Level.ERROR]


def test_an_older_one_is_refused_before_any_statement() -> None:
    with a_server_that_says("14.9") as (url, sent), Holdfast(url) as app:

        @app.task
        def greet() -> None: ...

        acts: list[Callable[[], object]] = [app.migrate, greet.enqueue, app.drain]
        for act in acts:
            with pytest.raises(StoreError, match=r"is PostgreSQL 14\.9: Holdfast needs 15 or newer") as refused:
                act()
            assert refused.value.number == "HF3410"
        [finding] = examine(app.settings)
        assert (finding.code, finding.level) == ("HF4003", Level.ERROR)
    assert set(sent) == {b"X"}, "nothing but good-byes"


@contextmanager
def a_server_that_says(version: str) -> Iterator[tuple[str, list[bytes]]]:
    """Takes connections as a server of this version, and keeps the kinds of messages it is sent."""
    sent: list[bytes] = []
    parameters = {
        "server_version": version, "client_encoding": "UTF8", "in_hot_standby": "off",
        "default_transaction_read_only": "off",
    }  # fmt: skip
    greeting = b"".join(
        [
            message(b"R", struct.pack("!I", 0)),
            *(message(b"S", f"{name}\0{value}\0".encode()) for name, value in parameters.items()),
            message(b"K", struct.pack("!II", 1, 2)),
            message(b"Z", b"I"),
        ]
    )

    def serve(client: socket.socket) -> None:
        with client, client.makefile("rb") as asked, suppress(OSError):
            (length,) = struct.unpack("!I", asked.read(4))
            asked.read(length - 4)
            client.sendall(greeting)
            while kind := asked.read(1):
                sent.append(kind)
                (length,) = struct.unpack("!I", asked.read(4))
                asked.read(length - 4)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = door.accept()
                threading.Thread(target=serve, args=(client,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as door:
        threading.Thread(target=accept, daemon=True).start()
        port = door.getsockname()[1]
        yield f"postgresql://someone@127.0.0.1:{port}/somewhere?sslmode=disable&gssencmode=disable", sent


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body
