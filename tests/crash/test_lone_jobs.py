"""Jobs that come one at a time, while their workers are killed, frozen, stopped and cut off: each is done, under one
claim that counts."""

from __future__ import annotations

import random

import msgspec
import pytest

from holdfast.model.job import NewJob
from tests.crash.fleet import Fleet, assert_each_success_is_of_its_newest_claim

pytestmark = pytest.mark.parametrize("engine", ["postgres"])

CUT_OFF = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'holdfast-listener'"


def enqueue(fleet: Fleet) -> str:
    return fleet.store.enqueue(NewJob(task="aquick", args=msgspec.json.encode({}))).id


def test_jobs_one_at_a_time_while_everything_goes_wrong(hasty_fleet: Fleet) -> None:
    fleet, luck = hasty_fleet, random.Random(5)
    workers = fleet.start_many(2, processes=1)
    ids: list[str] = []
    for round in range(12):
        ids += [enqueue(fleet) for _ in range(luck.randrange(5, 10))]
        match round % 4:
            case 0:
                fleet.kill(workers.pop(0))
            case 1:
                fleet.sql(CUT_OFF)
            case 2:
                fleet.stop(workers.pop(0))
            case 3:
                fleet.freeze(workers[0])
                ids += [enqueue(fleet) for _ in range(5)]
                fleet.thaw(workers[0])
        if len(workers) < 2:
            ids.append(enqueue(fleet))
            workers.append(fleet.start(processes=1))
    fleet.await_states(succeeded=len(ids))
    assert_each_success_is_of_its_newest_claim(fleet, fleet.jobs(ids))
    runs = [(trace.job, trace.fence) for trace in fleet.traces("start")]
    assert len(runs) == len(set(runs)), "no claim was run twice"
    fleet.stop(*workers)
    # (One of nobody keeps a claim from happening whose reply was lost; it runs out like any other.)
    assert fleet.sql("select count(*) from {leases} where worker <> 'nobody'") == [(0,)]
