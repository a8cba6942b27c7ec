"""The campaign in small, and that what judges it sees what is wrong. `make chaos` runs it for longer."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast
from tests.adopt.campaign import MAPPING, Campaign, Place, a_place, check_arguments
from tests.adopt.systems.database import Database
from tests.adopt.systems.ledger import Ledger
from tests.adopt.systems.proof import assert_never_two_at_once

SECONDS = float(os.environ.get("HOLDFAST_ADOPT_SECONDS", "8"))
ALWAYS = {"kills", "foreign claims", "snapshots", "reset", "edit"}


@pytest.fixture
def place(engine: str, tmp_path: Path) -> Iterator[Place]:
    with a_place(engine, tmp_path) as place:
        yield place


def test_both_sides_at_once(place: Place, tmp_path: Path) -> None:
    campaign = Campaign(place, tmp_path, seed=21)
    campaign.run(SECONDS, needed=ALWAYS)
    assert {name for name in {*ALWAYS, "native jobs"} if not campaign.done[name]} == set()


# -- it has teeth ------------------------------------------------------------------------------------------------------


@pytest.fixture
def unheard(place: Place) -> Iterator[Database]:
    """A connection whose writes no trigger hears of, with an adopted row whose job is in step."""
    with Holdfast(place.url, synchronous="off") as hf, closing(place.connect()) as db:
        hf.migrate()
        hf.adopt("audits", **MAPPING).install()
        db.changed("insert into audits (url) values ('a')")
        hf.store.adopted.settle("audits")
        assert db.rows(place.unknown) == []
        if place.engine == "postgres":
            db.changed("set session_replication_role = replica")
        else:
            for row in db.rows("select name from sqlite_master where type = 'trigger'"):
                db.changed(f'drop trigger "{row["name"]}"')
        yield db


@pytest.mark.parametrize(
    "wrong",
    [
        "update audits set status = 'completed'",
        "update audits set status = 'processing'",
        "update audits set status = 'draft'",
        "insert into audits (url) values ('b')",
        "insert into audits (url, status) values ('b', 'processing')",
        "delete from audits",
        "update {jobs} set state = 'cancelled', ready_at = null, finished_at = run_at",
        "delete from {jobs}",
    ],
)
def test_a_difference_that_nothing_tells_of_is_seen(place: Place, unheard: Database, wrong: str) -> None:
    unheard.changed(wrong.replace("{jobs}", place.jobs))
    assert len(unheard.rows(place.unknown)) == 1


def test_a_difference_that_is_known_is_none(place: Place, unheard: Database) -> None:
    unheard.changed("update audits set status = 'completed'")
    if place.engine == "postgres":
        unheard.changed("insert into holdfast.inbox (source, source_id) select 'audits', id::text from audits")
    else:
        unheard.changed(f"update {place.jobs} set owed = 1")
    assert unheard.rows(place.unknown) == []


def test_two_holders_are_seen(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for what, who in (("start", "ours"), ("end", "ours"), ("start", "old"), ("died", "old"), ("start", "ours")):
        ledger.note(what, "1", who)
    assert_never_two_at_once(ledger)
    ledger.note("start", "1", "old")
    with pytest.raises(AssertionError, match="old runs 1, and so does ours"):
        assert_never_two_at_once(ledger)


def test_stale_arguments_are_seen(tmp_path: Path) -> None:
    read = Ledger(tmp_path / "read")
    read.note("a", "1", "fence")
    check_arguments({("fence", "1"): "a"}, read)
    with pytest.raises(AssertionError):
        check_arguments({("fence", "1"): "a!"}, read)


def test_a_statement_of_others_that_fails_ends_it(place: Place, tmp_path: Path) -> None:
    campaign = Campaign(place, tmp_path, seed=1)
    campaign._insert = lambda db, chance: db.changed("insert into audits (nonsense) values (1)")  # type: ignore[method-assign,assignment]
    with pytest.raises((psycopg.Error, sqlite3.Error), match="nonsense"):
        campaign.run(30)


def test_a_statement_of_others_that_waits_for_long_ends_it(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.adopt.campaign.LONGEST", 0.5)
    monkeypatch.setattr("tests.adopt.campaign.STAND", 4.0)
    campaign = Campaign(place, tmp_path, seed=1)
    everything = "select 1" if place.engine == "sqlite" else "lock table audits"

    def hold(db: Database, chance: random.Random) -> None:
        campaign._locked(db, chance, everything)
        campaign._ended.wait(2)  # or what we enqueue ourselves waits for too long

    campaign._trouble = hold  # type: ignore[method-assign]
    with pytest.raises((psycopg.errors.LockNotAvailable, sqlite3.OperationalError), match="lock"):
        campaign.run(30)
