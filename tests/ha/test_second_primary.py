"""After a failover the old primary comes back and takes writes: it is refused, and costs nobody an attempt."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.embedded import EmbeddedPostgres
from holdfast.errors import StoreUnavailable
from holdfast.settings import Settings
from holdfast.store import open_store
from holdfast.store.postgres.primary import Primary
from tests.crash.proxy import a_proxy
from tests.ha.servers import LIVE, Scene, Standby, a_pair, a_scene, ask, both, do, seconds, told
from tests.servers import ROLES_PASSWORD, as_role
from tests.waiting import wait_until

JOBS = 100
Pair = tuple[EmbeddedPostgres, Standby]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with a_pair() as pair:
        yield pair


def fail_over(old: EmbeddedPostgres, new: Standby) -> None:
    """And start the old primary again, as if nothing had happened."""
    old.stop("immediate")
    new.promote()
    old.start()


def test_handlers_use_the_server_that_holds_their_leases(tmp_path: Path, pair: Pair) -> None:
    """The worker lived through the failover. Its handlers' new connections would find the old primary first."""
    old, new = pair
    with a_scene(tmp_path, both(old, new)) as scene:
        scene.enqueue(scene.url, "pay", 5)
        scene.start()
        scene.await_done(old.url, 5)
        wait_until(lambda: ask(new.url, "select count(*) from paid") == 5)
        old.stop("immediate")
        new.promote()
        moved = seconds(lambda: await_worker(new))
        old.start()
        for task in ("pay", "hold"):
            scene.enqueue(new.url, task, JOBS)
        took = seconds(lambda: scene.await_done(new.url, 2 * JOBS + 5))
        loud = seconds(lambda: wait_until(lambda: "two servers take writes" in scene.log, timeout=60))
        told(
            "zombie primary, first in the URL", jobs=2 * JOBS, seconds=round(took, 1), charged=scene.charged(new.url),
            worker_moved_after=f"{moved:.1f} s", told_after=f"{took + loud:.1f} s",
        )  # fmt: skip
        assert scene.states(new.url) == {"succeeded": 2 * JOBS + 5}
        assert scene.charged(new.url) == 0
        assert ask(new.url, "select count(*) from paid") == 2 * JOBS + 5
        assert ask(old.url, "select count(*) from paid") == 5
        assert f"We don't use 127.0.0.1:{old.port}: stop it" in scene.log
        assert "HF4306" in scene.run("doctor", code=1)


def await_worker(server: EmbeddedPostgres) -> None:
    """Until a worker is connected to this server."""
    query = "select count(*) from pg_stat_activity where application_name = 'holdfast-listener'"
    wait_until(lambda: ask(server.url, query), timeout=LIVE)


def test_a_new_worker_goes_to_the_newer_of_two_primaries(tmp_path: Path, pair: Pair) -> None:
    old, new = pair
    with a_scene(tmp_path, both(old, new)) as scene:
        wait_until(lambda: ask(new.url, "select to_regclass('held')::text") == "held")
        fail_over(old, new)
        scene.enqueue(new.url, "pay", 10)
        scene.start()
        scene.await_done(new.url, 10)
        assert scene.states(new.url) == {"succeeded": 10}
        assert scene.charged(new.url) == 0
        assert f"We don't use 127.0.0.1:{old.port}: stop it" in scene.log
        # A producer, too.
        [job] = scene.enqueue(scene.url, "pay")
        scene.await_done(new.url, 11)
        assert ask(new.url, "select count(*) from paid where job = %s", job) == 1


def test_an_old_primary_that_never_went_away_is_left(pair: Pair) -> None:
    """It takes writes all the time; the sessions with it are ended once the other is seen."""
    old, new = pair
    with closing(open_store(Settings(url=both(old, new)))) as store:
        store.schema.migrate()
        assert port_of(store) == old.port
        new.promote()
        assert port_of(store) == old.port
        store.db.look_around()
        assert port_of(store) == new.port


def port_of(store: object) -> int:
    with store.db.use() as connection:  # type: ignore[attr-defined]
        [(port,)] = connection.execute("select setting::int from pg_settings where name = 'port'").fetchall()
    return int(port)


def test_behind_one_address_an_older_timeline_is_refused_and_a_newer_one_is_not(pair: Pair) -> None:
    old, new = pair
    with a_proxy(old.url) as door:
        primary = Primary(Settings(url=door.url))
        primary.connect().close()
        new.promote()
        door.lead_to(new.url)
        primary.connect().close()  # a failover: nothing to do
        door.lead_to(old.url)
        with pytest.raises(StoreUnavailable, match=r"HF3406.*timeline 1 .*worked with timeline 2"):
            primary.connect()
        door.lead_to(new.url)
        primary.connect().close()


def test_another_database_is_refused(pair: Pair) -> None:
    with a_pair() as (stranger, _):
        do(stranger.url, f"alter role postgres password '{pair[0].password}'")  # one URL has one password
        primary = Primary(Settings(url=both(pair[0], stranger)))
        with pytest.raises(StoreUnavailable, match=r"HF3406.*not copies of one database"):
            primary.connect()
        stranger.stop()
        primary.connect().close()
        stranger.start()
        pair[0].stop()
        with pytest.raises(StoreUnavailable, match=r"HF3406.*we worked with timeline 1"):
            primary.connect()


def test_an_ordinary_role_may_ask_who_a_server_is(pair: Pair) -> None:
    do(pair[0].url, f"create role plain login password '{ROLES_PASSWORD}'")
    primary = Primary(Settings(url=as_role(both(*pair), "plain")))
    [(_, server)] = primary.writable()
    assert server is not None
    assert server.timeline == 1


def test_a_lease_that_another_server_calls_lost_costs_no_attempt(tmp_path: Path, pair: Pair) -> None:
    """A handler succeeds on a connection of its own, which leads to the old primary."""
    old, new = pair
    app = OWN.replace("OLD", old.url).replace("NEW", new.url)
    scene = Scene(tmp_path, both(old, new), app)
    scene.prepare()
    try:
        wait_until(lambda: ask(new.url, "select to_regclass('held')::text") == "held")
        fail_over(old, new)
        scene.enqueue(new.url, "own", 5)
        scene.start()
        wait_until(lambda: scene.ran().total() >= 5, timeout=LIVE)
        (tmp_path / "right").touch()
        scene.await_done(new.url, 5)
        assert scene.states(new.url) == {"succeeded": 5}
        assert scene.charged(new.url) == 0
    finally:
        scene.close()


OWN = """
import psycopg
from pathlib import Path
from holdfast import Holdfast, JobContext

HERE = Path(__file__).parent
hf = Holdfast()

@hf.task(max_attempts=1)
def own(ctx: JobContext) -> None:
    with psycopg.connect("NEW" if (HERE / "right").exists() else "OLD") as db:
        with open(HERE / "ran", "a") as ledger:
            ledger.write(f"{ctx.job.id}\\n")
        ctx.succeed(conn=db)
"""


def test_a_server_that_fell_silent_does_not_keep_us_from_its_heir(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our old session seems to live: nobody has said that it ended."""
    monkeypatch.setattr("holdfast.store.postgres.primary.CONNECT_TIMEOUT", 2)
    old, new = pair
    primary = Primary(Settings(url=both(old, new)))
    with closing(primary.connect()) as before:
        assert before.info.port == old.port
        directory = Path(ask(old.url, "show data_directory"))
        process = int((directory / "postmaster.pid").read_text().split()[0])
        os.kill(process, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable):  # there is no other yet
                primary.connect()
            new.promote()
            with closing(primary.connect()) as after:
                assert after.info.port == new.port
        finally:
            os.kill(process, signal.SIGCONT)
