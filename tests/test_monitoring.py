"""Dashboard, alert rules and the page on metrics name only metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from airflow_kubernetes_callbacks.metrics import METRICS, PREFIX

DOCS = Path(__file__).parent.parent / "docs"
DASHBOARD = json.loads((DOCS / "monitoring/grafana-dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((DOCS / "monitoring/prometheus-rules.yaml").read_text(encoding="utf-8"))

ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
TARGETS = [(panel, target) for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [
    *[pytest.param(rule["expr"], id=rule["alert"]) for rule in ALERTS],
    *[
        pytest.param(target["expr"], id=f"{panel['title']}: {target['legendFormat']}".replace(" ", "_"))
        for panel, target in TARGETS
    ],
]
FUNCTIONS = {"absent", "increase", "max", "min_over_time", "rate", "sum", "vector", "on"}
KEYWORDS = {"or", "unless", "offset", "quantile"}


def prometheus_names(name, kind):
    """What Prometheus' statsd exporter makes of a metric without a mapping of its own."""
    base = "airflow_" + name.replace(".", "_").replace("-", "_")
    return {base, f"{base}_sum", f"{base}_count"} if kind == "timer" else {base}


OWN = {exported for metric in METRICS for exported in prometheus_names(metric.name, metric.type)}


@pytest.fixture(scope="module")
def known():
    """Our metrics and those of this Airflow's core."""
    from airflow._shared.observability.metrics.metrics_registry import MetricsRegistry

    core = {"deadline_alerts.deadline_missed", "scheduler_heartbeat"}
    for name in core:
        assert MetricsRegistry().get(name=name) is not None, f"core has no metric {name} any more"
    return OWN | {exported for name in core for exported in prometheus_names(name, "counter")}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_names_metrics_that_there_are(expression, known):
    named = set(re.findall(r"\bairflow_\w+", expression))
    assert named
    assert named <= known


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expression_is_well_formed(expression):
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    words = re.sub(r"\[[^]]*\]|\{[^}]*\}|\b\d+[smh]\b", " ", expression)
    words = set(re.findall(r"[A-Za-z_]\w*", words))
    assert {word for word in words if not word.startswith("airflow_")} <= FUNCTIONS | KEYWORDS
    for ranged in re.findall(r"\b(?:increase|rate|min_over_time)\(([^()]*)\)", expression):
        assert re.search(r"\[(\d+m|\$__range|\$__rate_interval)\]", ranged), ranged


def test_every_metric_of_ours_is_on_the_dashboard_or_in_a_rule():
    text = json.dumps([target["expr"] for _, target in TARGETS]) + str([rule["expr"] for rule in ALERTS])
    for metric in METRICS:
        (base, *_) = sorted(prometheus_names(metric.name, metric.type), key=len)
        assert re.search(rf"\b{base}(_sum|_count)?\b", text), metric.name


def test_rules_have_what_prometheus_and_people_need():
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS)
    for rule in ALERTS:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"].endswith(".")


def test_commands_in_the_rules_exist():
    from airflow.cli import cli_parser

    parser = cli_parser.get_parser()
    text = " ".join(rule["annotations"].get("description", "") for rule in ALERTS)
    commands = re.findall(r"airflow (kubernetes-callbacks [a-z]+(?: --state \w+| --stuck)?)", text)
    assert len(commands) >= 4
    for command in commands:
        parser.parse_args(command.split())


def test_panels_do_not_overlap_and_have_a_datasource_to_choose():
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource"]
    taken = set()
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["description"]
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
    assert max(x for x, _ in taken) < 24
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_page_lists_every_metric_as_it_is():
    page = (DOCS / "reference/metrics.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split("|") for line in page.splitlines() if line.startswith("| `")]
    listed = [[cell.strip() for cell in row] for row in rows]
    assert listed == [
        [f"`{metric.name}`", metric.type, ", ".join(f"`{tag}`" for tag in metric.tags), metric.meaning]
        for metric in METRICS
    ]
    assert PREFIX in page
