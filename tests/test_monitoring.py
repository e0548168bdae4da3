"""Dashboard and alert rules: what they name is there, and promtool and a real statsd exporter agree with them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from airflow_kubernetes_callbacks.metrics import METRICS, PREFIX

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RULES_FILE = DOCS / "monitoring/prometheus-rules.yaml"
RULE_TESTS_FILE = ROOT / "tests/monitoring/alert_rules_test.yaml"
DASHBOARD = json.loads((DOCS / "monitoring/grafana-dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load(RULES_FILE.read_text(encoding="utf-8"))
RULE_TESTS = yaml.safe_load(RULE_TESTS_FILE.read_text(encoding="utf-8"))["tests"]

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
KEYWORDS = {"and", "or", "unless", "offset", "quantile"}
#: Of core's metrics these are looked at.
CORE = ("deadline_alerts.deadline_missed", "scheduler_heartbeat")


def prometheus_names(name, kind):
    """What Prometheus' statsd exporter makes of a metric without a mapping of its own."""
    base = "airflow_" + name.replace(".", "_").replace("-", "_")
    return {base, f"{base}_sum", f"{base}_count"} if kind == "timer" else {base}


OWN = {exported for metric in METRICS for exported in prometheus_names(metric.name, metric.type)}


@pytest.fixture(scope="module")
def known():
    """Our metrics and those of this Airflow's core."""
    from airflow._shared.observability.metrics.metrics_registry import MetricsRegistry

    for name in CORE:
        assert MetricsRegistry().get(name=name) is not None, f"core has no metric {name} any more"
    return OWN | {exported for name in CORE for exported in prometheus_names(name, "counter")}


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


# promtool and the exporter ----------------------------------------------------------------------------


def tool(name):
    """Return a program of 'make monitoring-tools'. In CI it has to be there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    own = cache / "airflow-kubernetes-callbacks/monitoring"
    found = shutil.which(name, path=os.pathsep.join([str(own), os.environ.get("PATH", "")]))
    if found is None and os.environ.get("CI"):
        pytest.fail(f"there is no {name}: 'make monitoring-tools' should have made it")
    if found is None:
        pytest.skip(f"there is no {name}; 'make monitoring-tools' gets it")
    return found


def promtool(*arguments):
    done = subprocess.run(
        [tool("promtool"), *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_takes_the_rules():
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", str(RULES_FILE))


def test_alerts_come_when_they_should_and_not_otherwise():
    assert "SUCCESS" in promtool("test", "rules", str(RULE_TESTS_FILE))


@pytest.mark.parametrize("alert", [rule["alert"] for rule in ALERTS])
def test_alert_has_a_case_that_raises_it_and_one_that_does_not(alert):
    cases = [case for test in RULE_TESTS for case in test["alert_rule_test"] if case["alertname"] == alert]
    assert {bool(case.get("exp_alerts")) for case in cases} == {True, False}


def test_prometheus_takes_the_expressions_of_the_dashboard(tmp_path):
    given = {"$__range": "1h", "$__rate_interval": "5m"}
    expressions = [target["expr"] for _, target in TARGETS]
    for name, value in given.items():
        expressions = [expression.replace(name, value) for expression in expressions]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(expressions)]
    path = tmp_path / "dashboard.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", str(path))


#: Sends each metric once, as the executor and the scheduler do, through Airflow's own client.
SENDER = """
import json, sys
from datetime import timedelta
from airflow.observability.stats import Stats
from airflow_kubernetes_callbacks import KubernetesExecutor

KubernetesExecutor()  # sets up the backend, as the scheduler's does
for name, kind, tags in json.loads(sys.argv[1]):
    if kind == "gauge":
        Stats.gauge(name, 3, tags=tags)
    elif kind == "timer":
        Stats.timing(name, timedelta(seconds=7), tags=tags)
    else:
        Stats.incr(name, tags=tags)
"""


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def statsd_exporter():
    """Run Prometheus' own exporter; yield its UDP port and the address of what it exports."""
    statsd, web = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM)
    command = [
        tool("statsd_exporter"),
        f"--statsd.listen-udp=127.0.0.1:{statsd}",
        "--statsd.listen-tcp=",
        f"--web.listen-address=127.0.0.1:{web}",
    ]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield statsd, f"http://127.0.0.1:{web}/metrics"
        finally:
            process.terminate()


def scraped(url):
    """Return what the exporter has of Airflow: value by name, and type by name."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
    except urllib.error.URLError:
        return {}, {}
    values = re.findall(r"^(airflow_\w+)(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    types = re.findall(r"^# TYPE (airflow_\w+) (\w+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in values}, dict(types)


def send_probe(port):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.sendto(b"airflow.probe:1|c", ("127.0.0.1", port))


def until_exported(url, name, *, meanwhile=lambda: None):
    """Return what is exported, once *name* is; until the exporter listens, what is sent to it is lost."""
    end = time.monotonic() + 60
    while name not in (exported := scraped(url))[0]:
        assert time.monotonic() < end, f"{name} is not exported: {exported}"
        meanwhile()
        time.sleep(0.1)
    return exported


@pytest.mark.once
def test_exporter_makes_the_names_that_rules_and_dashboard_use():
    sent = [(metric.name, metric.type, dict.fromkeys(metric.tags, "x")) for metric in METRICS]
    sent += [(name, "counter", {}) for name in CORE]
    with statsd_exporter() as (port, url):
        until_exported(url, "airflow_probe", meanwhile=lambda: send_probe(port))
        environment = {
            **os.environ,
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(port),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        done = subprocess.run(
            [sys.executable, "-c", SENDER, json.dumps(sent)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        last = next(iter(prometheus_names(sent[-1][0], "counter")))
        found, types = until_exported(url, last)
    expected = {exported for name, kind, _ in sent for exported in prometheus_names(name, kind)}
    assert expected <= found.keys()
    for name, kind, _ in sent:
        (base, *_) = sorted(prometheus_names(name, kind), key=len)
        assert types[base] == {"timer": "summary"}.get(kind, kind)
        if kind == "timer":  # milliseconds on the wire, seconds in Prometheus
            assert (found[f"{base}_count"], found[f"{base}_sum"]) == (1, 7)
        else:
            assert found[base] == (3 if kind == "gauge" else 1)
