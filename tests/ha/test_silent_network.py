"""A worker's host vanishes from the network: nobody is told, no connection is reset."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.model.job import DEFAULT_LEASE
from tests.ha.networks import Host, another_host
from tests.ha.servers import Scene, a_scene, ask, do, seconds, told
from tests.servers import own_postgres
from tests.waiting import wait_until

LATE = 8.0  # seconds after the lease until the job has run again, on a busy machine


@contextmanager
def two_hosts(home: Path) -> Iterator[tuple[Host, Scene, str]]:
    """The server is here; the URL is how the other host reaches it."""
    with another_host() as host, own_postgres(tcp=True, listen_addresses=f"127.0.0.1,{host.here}") as server:
        rule = f"host all all {host.there}/32 scram-sha-256"
        do(server.url, f"copy (select '{rule}') to program 'cat >> pg_hba.conf'", "select pg_reload_conf()")
        with a_scene(home, server.url) as scene:
            yield host, scene, server.url.replace("127.0.0.1", host.here)


def start_there(scene: Scene, host: Host, url: str) -> subprocess.Popen[bytes]:
    return scene.start(before=host.enter, url=url, host="there")


def test_the_row_lock_of_a_handler_that_vanished_is_let_go(tmp_path: Path) -> None:
    """Its heir writes the same row about a lease later."""
    with two_hosts(tmp_path) as (host, scene, url):
        start_there(scene, host, url)
        [job] = scene.enqueue(scene.url, "linger", max_attempts=3, name="holds")
        wait_until((tmp_path / "holds").exists, timeout=60)
        scene.start()
        wait_until(lambda: ask(scene.url, "select count(*) from holdfast.workers") == 2, timeout=60)
        host.cut()
        took = seconds(lambda: scene.await_done(scene.url, 1))
        told("vanished handler session", heir_done_after=f"{took:.1f} s", lease=f"{DEFAULT_LEASE:g} s")
        assert took < DEFAULT_LEASE + LATE
        assert ask(scene.url, "select state::text from holdfast.jobs where id = %s", job) == "succeeded"


def test_a_worker_in_a_black_hole_loses_its_jobs_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with two_hosts(tmp_path) as (host, scene, url):
        start_there(scene, host, url)
        [job] = scene.enqueue(scene.url, "outlast", max_attempts=3)
        wait_until(lambda: scene.ran()[job] == 1, timeout=60)
        scene.start()
        wait_until(lambda: ask(scene.url, "select count(*) from holdfast.workers") == 2, timeout=60)
        host.cut()
        rescued = seconds(lambda: wait_until(lambda: scene.ran()[job] == 2, timeout=60))
        (tmp_path / "end").touch()  # both return now
        scene.await_done(scene.url, 1)
        scene.workers[1].terminate()  # what comes now is for the one that was away
        scene.workers[1].wait(60)
        host.join()
        back = seconds(lambda: await_run(scene, scene.enqueue(scene.url, "note")[0]))
        told("black hole", rescued_after=f"{rescued:.1f} s", back_after=f"{back:.1f} s")
        assert rescued < DEFAULT_LEASE + LATE
        ended = ask(scene.url, "select state::text || attempt from holdfast.jobs where id = %s", job)
        assert (ended, scene.ran()[job]) == ("succeeded2", 2), "its late outcome was refused"
        assert f"job {job} was taken over" in scene.log_of(0)


def await_run(scene: Scene, job: int) -> None:
    wait_until(lambda: scene.ran()[job] == 1, timeout=90)
