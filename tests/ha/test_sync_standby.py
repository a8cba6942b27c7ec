"""A synchronous standby that hangs: commits wait for it, and nothing else does."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.embedded import EmbeddedPostgres
from holdfast import Holdfast
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.store.postgres.enqueue import STUCK
from tests.crash.fleet import direct_children_of
from tests.ha.servers import Scene, Standby, a_pair, a_scene, do, told
from tests.waiting import wait_until

Pair = tuple[EmbeddedPostgres, Standby]
STANDBY = "it waits for a synchronous standby"


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with a_pair() as (primary, standby):
        do(primary.url, "alter system set synchronous_standby_names = 'standby'", "select pg_reload_conf()")
        yield primary, standby


@contextmanager
def frozen(standby: Standby) -> Iterator[None]:
    pid = int((standby._data / "postmaster.pid").read_text().split()[0])
    processes = [pid, *direct_children_of(pid)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


@pytest.fixture
def scene(pair: Pair, tmp_path: Path) -> Iterator[Scene]:
    with a_scene(tmp_path, pair[0].url) as scene:
        yield scene
    do(pair[0].url, "drop schema holdfast cascade", "drop table paid, held")


def test_an_enqueue_that_waits_too_long_says_how_to_find_out(pair: Pair, scene: Scene) -> None:
    primary, standby = pair
    with Holdfast(primary.url, enqueue_timeout=1.5) as app:

        @app.task
        async def note() -> None: ...

        note.enqueue()
        with frozen(standby):
            ways: dict[str, Callable[[], object]] = {
                "look for it among the newest": note.enqueue,
                "enqueue it again with its key, 'k'": note.using(key="k").enqueue,
                "either all of these jobs were enqueued or none": lambda: app.enqueue_many([note.bind()] * 10),
                "with its key, 'a'": lambda: asyncio.run(note.using(key="a").aenqueue()),
            }
            for find_out, enqueue in ways.items():
                began = time.monotonic()
                with pytest.raises(OutcomeUnknown, match=STANDBY) as unknown:
                    enqueue()
                took = time.monotonic() - began
                assert find_out in str(unknown.value)
                assert 1.5 <= took < 4
                told("enqueue_timeout=1.5, synchronous standby frozen", OutcomeUnknown_after=f"{took:.2f} s")
            assert len(app.jobs()) == 1, "reading goes on, and nobody sees what the standby has not"
        # The server went on with all of them.
        wait_until(lambda: len(app.jobs()) == 14)
        assert not note.using(key="k").enqueue().created


def test_enqueues_that_are_given_up_do_not_use_up_all_connections(pair: Pair, scene: Scene) -> None:
    primary, standby = pair
    with Holdfast(primary.url, enqueue_timeout=1) as app:

        @app.task
        async def note() -> None: ...

        with frozen(standby):
            for _ in range(STUCK):
                with pytest.raises(OutcomeUnknown):
                    note.enqueue()
            for enqueue in (note.enqueue, lambda: app.enqueue_many([note.bind()])):
                with pytest.raises(StoreUnavailable, match="nothing more was sent") as refused:
                    enqueue()
                assert not isinstance(refused.value, OutcomeUnknown)
        wait_until(lambda: len(app.jobs()) == STUCK)
        note.enqueue()
        assert len(app.jobs()) == STUCK + 1


def test_a_worker_logs_what_it_waits_for_and_that_it_is_over(pair: Pair, scene: Scene) -> None:
    primary, standby = pair
    scene.start()
    scene.enqueue(primary.url, "note", 10)
    scene.await_done(primary.url, 10)
    with frozen(standby):
        wait_until(lambda: f" s: {STANDBY}" in scene.log, timeout=30)
        assert "has answered" not in scene.log
        with Holdfast(primary.url, enqueue_timeout=1) as app:
            app.task(name="note")(lambda: None)
            for _ in range(3):
                with pytest.raises(OutcomeUnknown):
                    app.find_task("note").enqueue()
    wait_until(lambda: "has answered after" in scene.log)
    scene.await_done(primary.url, 13)
    assert scene.log.count(STANDBY) == 1, "it is said once, however many threads wait"
    assert scene.log.count("has answered after") == 1
    assert set(scene.ran().values()) == {1}
