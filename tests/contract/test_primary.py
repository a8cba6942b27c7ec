"""What a store remembers of its sessions, by which it knows its server: many threads connect at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.settings import Settings
from holdfast.store.postgres.connect import Connection
from holdfast.store.postgres.primary import Found, Primary, Server

SESSIONS = 3_000
KEPT = 50


@pytest.fixture
def busy_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("busy_threads")
def test_threads_may_open_sessions_while_others_look_for_one() -> None:
    primary = Primary(Settings(url="postgresql://one,other/jobs"))

    def keep() -> None:
        kept: list[Connection] = []
        for _ in range(SESSIONS):
            kept = [*kept[-KEPT:], Connection.__new__(Connection)]
            primary._kept(Found(kept[-1], {}, Server(1, 1)))

    with ThreadPoolExecutor(4) as threads:
        keeping = [threads.submit(keep) for _ in range(2)]

        def look() -> None:
            while not all(done.done() for done in keeping):
                primary._cut_outdated()

        for done in [*keeping, *(threads.submit(look) for _ in range(2))]:
            done.result()
