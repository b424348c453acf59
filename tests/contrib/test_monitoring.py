"""The alert rules and the Grafana board in docs/monitoring ask for metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from django_setnx_lock import lock
from django_setnx_lock.contrib.prometheus import LockCollector, LockMetrics
from django_setnx_lock.core import State

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "monitoring"
RULES = FOLDER / "alerts.yml"
PAGE = ROOT / "docs" / "monitoring.md"
PROMTOOL = pytest.mark.needs("promtool")
# The labels that Prometheus adds, and the bound of a bucket.
ADDED = {"instance", "le"}


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return list(group["rules"])


def on_the_board() -> Iterator[str]:
    """Yield each expression of the board, with its variables filled in."""
    board = json.loads((FOLDER / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield re.sub(r"\$(cache|template)", ".*", target["expr"]).replace(
                "$__rate_interval", "5m"
            )


EXPRESSIONS = [*(one["expr"] for one in alerts()), *on_the_board()]


def metrics() -> dict[str, set[str]]:
    """Return the labels of each metric by the names of its samples."""
    registry = CollectorRegistry()
    metrics = LockMetrics(registry)
    metrics.connect()
    with lock("a"):
        metrics.disconnect()
    known: dict[str, set[str]] = {}
    for family in registry.collect():
        names = [family.name]
        if family.type == "histogram":
            names = [f"{family.name}_{suffix}" for suffix in ("bucket", "count", "sum")]
        if family.type == "counter":
            names = [f"{family.name}_total"]
        labels = {label for sample in family.samples for label in sample.labels}
        known.update(dict.fromkeys(names, labels | {"template"}))
    for gauge in LockCollector().describe():
        known[gauge.name] = set(gauge._labelnames)
    return known


def used(expression: str) -> set[str]:
    return set(re.findall(r"\bsetnx_lock_\w+", expression))


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=50, check=False
    )


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_metrics_and_labels_that_there_are(expression: str) -> None:
    known = metrics()

    assert used(expression)
    assert used(expression) <= set(known)
    labels = set().union(*(known[name] for name in used(expression)))
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    selected = re.findall(r"(\w+)=~?\"", expression)
    asked = {label.strip() for one in grouped for label in one.split(",")} | set(selected)
    assert asked <= labels | ADDED


def test_each_state_that_a_rule_names_is_one() -> None:
    named = set(re.findall(r'state="([^"]+)"', RULES.read_text()))

    assert named
    assert named <= {state.value.replace(" ", "-") for state in State}


def test_every_metric_is_on_the_board() -> None:
    shown = set().union(*map(used, on_the_board()))

    assert shown == set(metrics())


def test_every_rule_is_tested() -> None:
    tests = yaml.safe_load((FOLDER / "alerts_test.yml").read_text())["tests"]
    fired = {
        one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]
    }

    assert fired == {one["alert"] for one in alerts()}


@PROMTOOL
def test_the_rules_hold_in_the_unit_tests_of_prometheus() -> None:
    done = promtool("test", "rules", FOLDER / "alerts_test.yml")

    assert done.returncode == 0, done.stdout + done.stderr


@PROMTOOL
def test_prometheus_reads_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"checked:{number}", "expr": expression}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    written = tmp_path / "rules.yml"
    written.write_text(yaml.safe_dump({"groups": [{"name": "checked", "rules": rules}]}))

    done = promtool("check", "rules", written)

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_the_page_names_every_metric_and_every_alert() -> None:
    page = PAGE.read_text()

    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in metrics()}
    assert {name for name in families if f"`{name}`" not in page} == set()
    assert {one["alert"] for one in alerts() if f"`{one['alert']}`" not in page} == set()
