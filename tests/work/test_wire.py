"""What worker and runner say to each other arrives as it was said, whenever the other side listens."""

from __future__ import annotations

import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import cast

import msgspec
import pytest

from holdfast.model.job import ClaimedJob
from holdfast.model.outcome import Error, Outcome
from holdfast.runners.isolated_child import uninterrupted
from holdfast.runners.pooled_process import Withdrawals
from holdfast.runners.wire import (
    CHUNK,
    LAST,
    Channel,
    Done,
    FrameReader,
    SendBuffer,
    Stack,
    Start,
    Stop,
    ToWorker,
    Withdraw,
    frame,
    send,
    to_runner,
    to_worker,
)


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_all_that_a_runner_said_before_it_died_is_heard(line: tuple[socket.socket, socket.socket]) -> None:
    """Also what comes in pieces: a frame that is not complete yet is not the end."""
    ours, theirs = line
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * CHUNK)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * CHUNK)
    result = b'"' + b"x" * (CHUNK // 2) + b'"'
    said = [Done([1], [1.0], [2.0]), Done([2], [1.0], [2.0], [result]), Done([3], [1.0], [2.0])]
    data = b"".join(map(frame, said))
    channel = Channel(ours)
    theirs.sendall(data[: len(data) // 2])
    first = channel.receive()
    theirs.sendall(data[len(data) // 2 :])
    theirs.close()
    assert [*(first or ()), *channel.receive_rest()] == said
    assert channel.receive() is None


def test_garbage_on_the_line_ends_the_talk_and_nothing_else(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    channel = Channel(ours)
    theirs.sendall(frame(Done([1], [1.0], [2.0])) + b"\xff" * 50)
    assert channel.receive() is None
    assert channel.broken
    theirs.sendall(frame(Done([2], [1.0], [2.0])))
    assert list(channel.receive_rest()) == []


@pytest.mark.parametrize(
    "said",
    [
        ("ended", ("succeed", 1, b"\xff\xfe")),  # not UTF-8 where a text should be
        ("ask", 1, ("delete", "job")),
        ("ask", 1, ("checkpoint", b"{}", -1, None)),
        ("ask", 1, ("checkpoint", b"{}", 10**15 + 1, None)),
        ("ask", 1, ("checkpoint", "{}", 0, None)),
        ("ask", 1, ("step", "n" * 201)),
        ("progressed", [(0, 1, None, "n" * 1001)]),
        ("progressed", [(0, -1, None, None)]),
        ("done", [1] * 65_537, [1.0] * 65_537, [1.0] * 65_537),
        ("withdrawn", True, [-1]),
        ("hello", {"url": [[[]]]}, []),
        ("begin", "w1"),  # what only a worker says
    ],
)
def test_what_no_runner_says_ends_the_talk(line: tuple[socket.socket, socket.socket], said: object) -> None:
    ours, theirs = line
    channel = Channel(ours)
    data = msgspec.msgpack.encode(said).replace(b"\xc4\x02\xff\xfe", b"\xa2\xff\xfe")
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * CHUNK)
    sender = threading.Thread(target=theirs.sendall, args=(len(data).to_bytes(4, "big") + data,))
    sender.start()
    while (heard := channel.receive()) == []:
        pass
    assert heard is None
    assert channel.broken.startswith("sent what can't be understood (")
    while sender.is_alive():
        channel.receive()


def test_the_rest_ends_though_somebody_goes_on_writing() -> None:
    """A process that a handler started may have the line, too, and be quicker than we are."""
    said = bytes(frame(Done([1], [1.0], [2.0])))

    class Endless:
        def recv(self, size: int, flags: int) -> bytes:
            return said * (CHUNK // len(said))

    heard = sum(1 for _ in Channel(cast(socket.socket, Endless())).receive_rest())
    assert 0 < heard * len(said) <= LAST + CHUNK


@pytest.mark.parametrize(
    "columns", [([1, 2], [1.0], [2.0, 2.0]), ([1], [1.0], []), ([1, 2], [1.0] * 2, [2.0] * 2, [b"1"])]
)
def test_columns_that_do_not_fit_each_other_are_garbage(
    line: tuple[socket.socket, socket.socket], columns: tuple[list[object], ...]
) -> None:
    """Else attempts would be taken off the list of what runs there, and nobody told how they ended."""
    ours, theirs = line
    channel = Channel(ours)
    said = msgspec.msgpack.encode(("done", *columns))
    theirs.sendall(len(said).to_bytes(4, "big") + said)
    assert channel.receive() is None
    assert channel.broken


@pytest.mark.parametrize("size", [1, 3, 7, 50, 1000])
def test_frames_come_out_whole_however_they_come_in(size: int) -> None:
    said = [Done([n], [1.0], [2.0], [b"x" * n]) for n in range(60)]
    data = b"".join(map(frame, said))
    incoming = FrameReader()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    # They are read later than they came: what comes meanwhile must not change them.
    frames = [message for piece in pieces for message in incoming.feed(piece)]
    assert [to_worker.decode(message) for message in frames] == said


def test_who_sends_to_one_that_does_not_listen_never_waits(line: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = line
    outgoing = SendBuffer(ours)
    jobs = [ClaimedJob(n, "f", "task", "default", b"x" * 20_000, 1, 3) for n in range(100)]
    told = [Start(0, 1.5, jobs), *(Stop(n, "cancel", False) for n in range(100))]
    sent = [outgoing.send(message) for message in told]  # type: ignore[arg-type]
    assert not any(sent), "the first is larger than the line holds, the others wait behind it"
    assert not outgoing.empty
    heard: list[object] = []

    def listen() -> None:
        incoming = FrameReader()
        while len(heard) < len(told):
            heard.extend(map(to_runner.decode, incoming.feed(theirs.recv(CHUNK))))

    listener = threading.Thread(target=listen)
    listener.start()
    while not outgoing.flush():
        pass
    listener.join(20)
    assert heard == told


def test_an_outcome_travels_as_it_is() -> None:
    outcome = Outcome(
        "reschedule", "a-b", "f", "errored", delay=1.5, error=Error("CODE", "what\x00 \N{SNOWMAN}", "trace"),
    )  # fmt: skip
    said = Done([], [], [], [], [(7, 1.0, 2.0, outcome), (8, 0.0, 0.0, None)])
    [message] = FrameReader().feed(frame(said))
    assert to_worker.decode(message) == said


def test_who_asks_twice_at_once_for_what_has_not_begun_asks_once(
    line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The desk and the pool may do so. Each asking is answered, and an answer too many would end an honest process."""
    both = threading.Barrier(2)

    class Hesitant(dict[bool, float]):
        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            with suppress(threading.BrokenBarrierError):
                both.wait(0.3)
            return found

    sent: list[object] = []
    withdrawals = Withdrawals(sent.append)
    monkeypatch.setattr(withdrawals, "_asked_at", Hesitant())
    threads = [threading.Thread(target=withdrawals.request, args=(None,), kwargs={"is_async": True}) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sent == [Withdraw(True, None)]


def test_who_is_interrupted_while_it_sends_has_sent_it_whole(line: tuple[socket.socket, socket.socket]) -> None:
    """Half a frame would make nonsense of all that follows."""
    ours, theirs = line
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    channel = Channel(ours, 1 << 20)
    heard: list[ToWorker] = []
    main = threading.main_thread().ident or 0

    def interrupt_and_listen() -> None:
        assert select.select([ours], [], [], 20)[0], "it has begun to send"
        signal.pthread_kill(main, signal.SIGTERM)
        while not heard and not channel.broken:
            heard.extend(channel.receive() or [])

    listener = threading.Thread(target=interrupt_and_listen)
    listener.start()
    try:
        with pytest.raises(KeyboardInterrupt), uninterrupted():
            send(theirs, Stack(0, "x" * 1_000_000))
    finally:
        signal.signal(signal.SIGTERM, before)
    listener.join()
    assert [type(message) for message in heard] == [Stack]
    assert not channel.broken
