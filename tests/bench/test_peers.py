"""The comparison with other job systems: what it makes of its figures, and how handlers are counted."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest

from bench.peers.__main__ import Results, document
from bench.peers.contenders import CONTENDERS, OURS, POSTGRES, Contender
from bench.peers.rows import percentile
from bench.peers.table import report, winner
from bench.peers.tally import Recorder, read_long_starts, read_tally, read_waits_ms
from bench.peers.verdict import BARS, BEST_PEER, METRICS, Bar, judge, metric_named, rank

DRAIN = metric_named("drain")
PICKUP = metric_named("pickup_p50_ms")
RERUN = metric_named("rerun_seconds")
HOLDFAST = next(contender for contender in CONTENDERS if contender.name == OURS and contender.engine == POSTGRES)


def test_the_median_decides_not_the_best_run() -> None:
    ranking = rank(DRAIN, {OURS: [10.0, 10.0, 90.0], "graphile": [20.0, 20.0, 20.0]})
    assert ranking is not None
    assert (ranking.winner, ranking.rival, ranking.times_better) == ("graphile", OURS, 2.0)


def test_less_is_better_where_time_is_measured() -> None:
    ranking = rank(PICKUP, {OURS: [2.0], "graphile": [4.0], "pgqueuer": [5.0]})
    assert ranking is not None
    assert (ranking.winner, ranking.rival, ranking.times_better) == (OURS, "graphile", 2.0)


def test_a_lost_row_says_so_and_how_far_we_are_behind() -> None:
    said = winner(DRAIN, {OURS: [10.0], "pgqueuer": [15.0], "graphile": [25.0]})
    assert said == "LOST to Graphile Worker, 2.50 x better than Holdfast"


def test_a_won_row_is_measured_against_the_best_of_the_others() -> None:
    said = winner(DRAIN, {OURS: [30.0], "pgqueuer": [15.0], "graphile": [20.0]})
    assert said == "Holdfast, 1.50 x better than Graphile Worker"


def test_overlapping_ranges_are_called_noise() -> None:
    assert winner(PICKUP, {OURS: [3.0, 4.0, 6.0], "graphile": [5.0, 5.0, 5.0]}).endswith("; within the noise")
    assert "noise" not in winner(PICKUP, {OURS: [3.0, 4.0, 4.5], "graphile": [5.0, 5.0, 5.0]})


def test_who_never_got_there_loses_to_who_did() -> None:
    said = winner(RERUN, {OURS: [1.0], "graphile": [math.inf]})
    assert said == "Holdfast, beyond comparison with Graphile Worker"
    assert winner(RERUN, {OURS: [math.inf], "graphile": [math.inf]}) == "nobody"


def test_nothing_is_divided_by_an_idle_worker_that_asks_nothing() -> None:
    idle = metric_named("idle_statements_per_minute")
    assert "beyond comparison" in winner(idle, {OURS: [0.0], "graphile": [30.0]})
    assert "equal to" in winner(idle, {OURS: [0.0], "graphile": [0.0]})


@pytest.mark.parametrize(("ours", "reached"), [(29.9, False), (30.0, True)])
def test_a_bar_over_one_peer(ours: float, reached: bool) -> None:
    bar = Bar(POSTGRES, "drain", 3.0, peer="pgqueuer")
    judgement = judge(bar, {POSTGRES: {"drain": {OURS: [ours], "pgqueuer": [10.0], "graphile": [1000.0]}}})
    assert judgement.found == pytest.approx(ours / 10)
    assert judgement.reached is reached


@pytest.mark.parametrize(("ours", "reached"), [(2.4, True), (2.5, False)])
def test_a_bar_over_the_best_peer_where_less_is_better(ours: float, reached: bool) -> None:
    bar = Bar(POSTGRES, "pickup_p50_ms", 0.6, peer=BEST_PEER)
    figures = {POSTGRES: {"pickup_p50_ms": {OURS: [ours], "graphile": [4.0], "procrastinate": [6.0]}}}
    assert judge(bar, figures).reached is reached


def test_a_bar_over_ourselves_and_one_over_nobody() -> None:
    figures = {POSTGRES: {"drain": {OURS: [10.0]}, "drain_two_workers": {OURS: [9.0]}, "rerun_seconds": {OURS: [1.5]}}}
    assert judge(Bar(POSTGRES, "drain_two_workers", 1.0, own="drain"), figures).reached is False
    assert judge(Bar(POSTGRES, "rerun_seconds", 2.0), figures).reached is True


def test_a_bar_over_a_peer_that_is_missing_is_not_reached_but_unmeasured() -> None:
    judgement = judge(Bar(POSTGRES, "drain", 1.6, peer="graphile"), {POSTGRES: {"drain": {OURS: [50_000.0]}}})
    assert judgement.found is None
    assert judgement.reached is None


def test_every_bar_names_a_metric_and_a_peer_of_its_engine() -> None:
    metrics = {metric.name for metric in METRICS}
    for bar in BARS:
        assert bar.metric in metrics
        assert bar.peer in (None, BEST_PEER) or any(
            contender.name == bar.peer and contender.engine == bar.engine for contender in CONTENDERS
        )


def test_the_report_shows_medians_ranges_bars_and_notes() -> None:
    figures = {
        POSTGRES: {
            "drain": {OURS: [20_000.0, 21_000.0, 25_000.0], "graphile": [24_000.0, 24_000.0, 24_000.0]},
            "rerun_seconds": {OURS: [1.5], "graphile": [math.inf]},
            "steady_enqueued": {OURS: [500.0], "graphile": [300.0]},
        }
    }
    text = report(figures, ["Huey is left out: no network"])
    assert "21,000 (20,000-25,000)" in text
    assert "LOST to Graphile Worker" in text
    assert "| > 60 " in text
    assert "0.88 x" in text
    assert "NOT REACHED" in text
    assert "not measured" in text  # the bar over PgQueuer
    assert "Graphile Worker on postgres enqueued only 300 of 500 jobs/s" in text
    assert "- Huey is left out: no network" in text


def test_the_document_is_plain_json_even_where_something_never_happened() -> None:
    results = Results()
    results.add(HOLDFAST, {"drain": 10.0})
    results.add(Contender("graphile", "Graphile Worker", POSTGRES, "", ""), {"rerun_seconds": math.inf})
    read = json.loads(document({"settings": {"jobs": 10}}, results))
    assert read["figures"][POSTGRES] == {"drain": {OURS: [10.0]}, "rerun_seconds": {"graphile": [None]}}
    assert {bar["metric"] for bar in read["bars"]} == {bar.metric for bar in BARS}


def test_percentiles() -> None:
    values = [float(value) for value in range(101)]
    assert percentile(values, 50) == 50
    assert percentile(values, 99) == 99


def test_handlers_are_counted_by_process_with_their_waits(tmp_path: Path) -> None:
    assert read_tally(tmp_path).count == 0
    recorder = Recorder(tmp_path)
    began = time.monotonic_ns()
    recorder.started(0)
    recorder.started(began)
    recorder.started_long()
    tally = read_tally(tmp_path)
    assert (tally.count, tally.processes) == (2, 1)
    assert began <= tally.first_ns <= time.monotonic_ns()
    [wait] = read_waits_ms(tmp_path)
    assert 0 <= wait < 10_000
    assert len(read_long_starts(tmp_path)) == 1
