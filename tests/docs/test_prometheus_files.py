"""The files for Prometheus under deploy/: they parse, and name metrics and labels that are exported."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from holdfast.model.alerts import ADVICE, Thresholds
from holdfast.model.metrics import ENDED
from holdfast.model.outcome import Error
from holdfast.prometheus import exposition
from holdfast.store.base import Store
from holdfast.store.metrics import measure
from tests.factories import a_queued_job, a_running_job, ref

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRAPE: Any = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
[GROUP] = yaml.safe_load((DEPLOY / "holdfast-alerts.yml").read_text())["groups"]
RULES: list[Any] = GROUP["rules"]
FUNCTIONS = {"absent", "and", "histogram_quantile", "increase", "max", "offset", "or", "rate", "sum", "vector"}


@pytest.fixture
def exported(store: Store) -> dict[str, set[str]]:
    """The names of all samples, and their labels."""
    a_queued_job(store)
    store.attempts.fail(ref(a_running_job(store, task="other")), Error("X", "x"))
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(exposition(measure(store)).decode())
        for sample in family.samples
    }


def test_the_scrape_example_reads_a_worker_and_the_rules() -> None:
    [scrape] = SCRAPE["scrape_configs"]
    assert scrape["static_configs"][0]["targets"] == ["127.0.0.1:8081"]
    assert SCRAPE["rule_files"] == ["holdfast-alerts.yml"]


@pytest.mark.parametrize("engine", ["sqlite"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_names_what_is_exported(rule: Any, exported: dict[str, set[str]]) -> None:
    expression = re.sub(r"\[\w+\]|\b\d[\w.]*|offset \w+", " ", rule["expr"])
    names = set(re.findall(r"holdfast_\w+", expression))
    assert names
    assert names <= exported.keys()
    labels = {label for group in re.findall(r"by \((.*?)\)", expression) for label in re.split(r", *", group)}
    chosen = dict(re.findall(r'{(\w+)="(\w+)"}', expression))
    assert labels | chosen.keys() <= set().union(*(exported[name] for name in names))
    assert chosen.get("outcome") in (None, *ENDED)
    words = set(re.findall(r"[a-z_]+", re.sub(r"by \(.*?\)|{.*?}", "", expression)))
    assert words <= FUNCTIONS | names
    assert expression.count("(") == expression.count(")")
    said = str(rule["annotations"])
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels
    assert rule["annotations"].keys() == {"summary", "description"}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_rules_have_the_thresholds_that_alerts_have() -> None:
    of = {rule["alert"]: rule for rule in RULES}
    ours = Thresholds()
    assert of["HoldfastQueueDeep"]["expr"].endswith(f"> {ours.depth}")
    assert of["HoldfastQueueDeep"]["for"] == f"{ours.depth_for / 60:g}m"
    assert f"> {ours.failures}\n" in of["HoldfastFailures"]["expr"].replace(" and", "\n")
    assert f"> {ours.failures_times:g} *" in of["HoldfastFailures"]["expr"]
    assert of["HoldfastJobsSlow"]["expr"].endswith(f"> {ours.p95:g}")
    assert of["HoldfastJobWaits"]["expr"].endswith(f"> {ours.age:g}")
    assert len(of) == len(RULES) == len(ADVICE) + 2
