"""Metrics: what is counted when, and that it arrives at real backends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest

from airflow_kubernetes_callbacks import metrics
from airflow_kubernetes_callbacks.actions import FailureKind
from airflow_kubernetes_callbacks.metrics import METRICS, CallbackMetrics, deadline_of
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, pod_view
from tests import pods
from tests.fakes.scheduler import data_of, pod_tells_api_that_it_runs, set_row, state_of
from tests.telemetry import OtlpCollector, StatsdListener, attributes_of

ROOT = Path(__file__).parent.parent
PREFIX = "kubernetes_executor.callback_"
PENDING = pod_view(pods.pod("Pending"))
RUNNING = pod_view(pods.pod("Running", [pods.status(state=pods.running())]))
SUCCEEDED = pod_view(pods.pod("Succeeded", [pods.status(state=pods.terminated(0))]))
GONE = pod_view(pods.pod("Failed"), deleted=True)


class Recorder:
    """Stands where Airflow's Stats is."""

    def __init__(self):
        self.calls = []

    def incr(self, name, *, tags):
        self.calls.append((name, 1, tags))

    def gauge(self, name, value, *, tags):
        self.calls.append((name, value, tags))

    def timing(self, name, value, *, tags):
        self.calls.append((name, value.total_seconds(), tags))


@pytest.fixture
def told(monkeypatch):
    recorder = Recorder()
    monkeypatch.setattr(metrics, "Stats", recorder)
    return recorder.calls


CASES = [
    pytest.param(
        lambda m: m.launched(PENDING, PENDING.created_at - 7, again=False),
        [("launches", 1, {}), ("deadline_to_pod", 7.0, {})],
        id="launched",
    ),
    pytest.param(
        lambda m: m.launched(PENDING, None, again=True),
        [("launches", 1, {}), ("retries", 1, {})],
        id="launched_again_without_a_known_deadline",
    ),
    pytest.param(
        lambda m: m.launched(PENDING, PENDING.created_at + 3, again=False),
        [("launches", 1, {}), ("deadline_to_pod", 0.0, {})],
        id="clocks_differ",
    ),
    pytest.param(
        lambda m: m.launch_refused(for_now=True),
        [("launch_failures", 1, {"status": "refused"})],
        id="refused_for_now",
    ),
    pytest.param(
        lambda m: m.launch_refused(for_now=False),
        [("launch_failures", 1, {"status": "failed"})],
        id="refused_for_good",
    ),
    pytest.param(lambda m: m.adopted(), [("adoptions", 1, {})], id="adopted"),
    pytest.param(lambda m: m.reemitted(), [("reemitted", 1, {})], id="reported_again"),
    pytest.param(
        lambda m: m.ended(CallbackOutcome.SUCCEEDED, None, SUCCEEDED, path="alerts.notify", dag_id="reports"),
        [
            ("outcomes", 1, {"outcome": "success", "reason": "none"}),
            ("pod_to_running", 5.0, {}),
            ("deadline_alerts.callback_success", 1, {"path": "alerts.notify", "dag_id": "reports"}),
        ],
        id="succeeded",
    ),
    pytest.param(
        lambda m: m.ended(
            CallbackOutcome.FAILED, FailureKind.LOST, None, path="alerts.notify", dag_id="reports"
        ),
        [
            ("outcomes", 1, {"outcome": "failed", "reason": "lost"}),
            ("failures.lost", 1, {}),
            ("deadline_alerts.callback_failed", 1, {"path": "alerts.notify", "dag_id": "reports"}),
        ],
        id="lost",
    ),
    pytest.param(
        lambda m: m.recorded(SUCCEEDED, SUCCEEDED.ended_at + 2.5),
        [("end_to_recorded", 2.5, {})],
        id="recorded",
    ),
    pytest.param(lambda m: m.recorded(PENDING, 1.0), [], id="recorded_without_an_end"),
    pytest.param(
        lambda m: m.gauge([PENDING, RUNNING, RUNNING, SUCCEEDED, GONE]),
        [("pending", 1, {}), ("running", 2, {})],
        id="gauges",
    ),
]


def in_full(name):
    return name if name.startswith("deadline_alerts.") else PREFIX + name


@pytest.mark.parametrize("team", [None, "blue"])
@pytest.mark.parametrize(("event", "expected"), CASES)
def test_what_is_told(told, event, expected, team):
    event(CallbackMetrics(team))
    own = {"team_name": team} if team else {}
    assert told == [(in_full(name), value, {**own, **tags}) for name, value, tags in expected]


def test_every_metric_is_in_the_list_with_its_tags_and_each_of_the_list_is_told(told):
    counts = CallbackMetrics(None)
    for case in CASES:
        case.values[0](counts)
    for kind in FailureKind:
        counts.ended(CallbackOutcome.FAILED, kind, None, path="", dag_id="")
    listed = {metric.name: set(metric.tags) for metric in METRICS}
    assert len(listed) == len(METRICS)
    assert {(name, frozenset(tags)) for name, _, tags in told} == {
        (name, frozenset(tags)) for name, tags in listed.items()
    }


def test_names_pass_every_backend_of_airflow():
    for metric in METRICS:
        assert re.fullmatch(r"[a-z0-9_.]{1,250}", metric.name)
        assert metric.type in ("counter", "gauge", "timer")
        assert metric.meaning.endswith(".")


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [
        pytest.param("2026-06-01T10:00:00+00:00", 1780308000.0, id="text"),
        pytest.param("2026-06-01T10:00:00Z", 1780308000.0, id="text_with_z"),
        pytest.param(datetime(2026, 6, 1, 10, tzinfo=UTC), 1780308000.0, id="time"),
        pytest.param("soon", None, id="no_time"),
        pytest.param(None, None, id="none"),
        pytest.param({"__type": "x"}, None, id="object"),
    ],
)
def test_deadline_of_a_workload(deadline, expected):
    data = {"kwargs": {"context": {"deadline": {"deadline_time": deadline}}}}
    assert deadline_of(SimpleNamespace(callback=SimpleNamespace(data=data))) == expected


@pytest.mark.parametrize(
    "data", [None, {}, {"kwargs": None}, {"kwargs": {"context": []}}, {"kwargs": {"context": {}}}]
)
def test_workload_without_a_deadline_is_no_error(data):
    assert deadline_of(SimpleNamespace(callback=SimpleNamespace(data=data))) is None
    assert deadline_of(None) is None


# Real backends --------------------------------------------------------------------------------------


@pytest.fixture
def statsd():
    with StatsdListener() as listener:
        yield listener


@pytest.fixture
def backend_of_airflow(monkeypatch):
    """Airflow's metrics are switched off again after the test, for the whole process."""
    import statsd
    from airflow._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.observability import stats
    from airflow.sdk.observability import stats as sdk_stats

    clients = []

    class Client(statsd.StatsClient):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            clients.append(self)

    monkeypatch.setattr(statsd, "StatsClient", Client)
    yield
    for module in (stats, sdk_stats):
        module.initialize(factory=NoStatsLogger, export_legacy_names=False)
    for client in clients:
        client.close()


def test_life_of_callbacks_arrives_at_statsd(
    api_server, new_scheduler, new_callback, statsd, backend_of_airflow
):
    scheduler = new_scheduler(
        METRICS__STATSD_ON="True", METRICS__STATSD_HOST="127.0.0.1", METRICS__STATSD_PORT=str(statsd.port)
    )
    good, bad = new_callback(), new_callback()
    context = {"deadline": {"deadline_time": "2026-06-01T10:00:00+00:00"}}
    set_row(good, data={**data_of(good), "kwargs": {"context": context}})
    by_id = scheduler.until(
        lambda: {
            pod["metadata"]["annotations"]["callback_id"]: pod
            for pod in api_server.pods()
            if len(api_server.pods()) == 2
        }
    )
    scheduler.settle(2)
    for callback_id, exit_code in ((good, 0), (bad, 1)):
        api_server.node.bind(by_id[callback_id])
        pod_tells_api_that_it_runs(callback_id)
        api_server.node.start(by_id[callback_id])
        api_server.node.finish(by_id[callback_id], exit_code)
    scheduler.until(lambda: (state_of(good), state_of(bad)) == ("success", "failed"))
    scheduler.until(lambda: len(statsd.samples("airflow." + PREFIX + "end_to_recorded")) == 2)
    scheduler.settle(2)

    def total(name):
        return statsd.total("airflow." + in_full(name))

    assert total("launches") == 2
    assert total("outcomes") == 2
    assert total("failures.callback") == 1
    assert total("deadline_alerts.callback_success") == 1
    assert total("deadline_alerts.callback_failed") == 1
    (since_deadline,) = statsd.samples("airflow." + PREFIX + "deadline_to_pod")
    assert since_deadline.kind == "ms"
    assert len(statsd.samples("airflow." + PREFIX + "pod_to_running")) == 2
    pending = [sample.value for sample in statsd.samples("airflow." + PREFIX + "pending")]
    assert max(pending) == 2
    assert pending[-1] == 0
    ours = {name for name in statsd.names() if name.startswith("airflow." + PREFIX)}
    assert ours <= {f"airflow.{metric.name}" for metric in METRICS}


def test_wait_for_a_slot_counts_into_the_time_from_deadline_to_pod(
    api_server, new_scheduler, new_callback, statsd, backend_of_airflow
):
    scheduler = new_scheduler(
        METRICS__STATSD_ON="True",
        METRICS__STATSD_HOST="127.0.0.1",
        METRICS__STATSD_PORT=str(statsd.port),
        KUBERNETES_CALLBACKS__MAX_ACTIVE_CALLBACKS="1",
    )
    context = {"deadline": {"deadline_time": "2026-06-01T10:00:00+00:00"}}
    for callback_id in (new_callback(), new_callback()):
        set_row(callback_id, data={**data_of(callback_id), "kwargs": {"context": context}})
    for number in (1, 2):
        scheduler.until(lambda number=number: len(api_server.pods()) == 1)
        (pod,) = api_server.pods()
        api_server.node.bind(pod)
        pod_tells_api_that_it_runs(pod["metadata"]["annotations"]["callback_id"])
        api_server.node.start(pod)
        api_server.node.finish(pod, 0)
        ended = pod["metadata"]["name"]
        scheduler.until(
            lambda ended=ended: ended not in [one["metadata"]["name"] for one in api_server.pods()]
        )
        scheduler.until(
            lambda number=number: len(statsd.samples("airflow." + PREFIX + "deadline_to_pod")) == number
        )


PROCESS = """
from airflow_kubernetes_callbacks import KubernetesExecutor
from airflow_kubernetes_callbacks.actions import FailureKind
from airflow_kubernetes_callbacks.metrics import CallbackMetrics
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, pod_view
from tests import pods

KubernetesExecutor()  # sets up the backend, as the scheduler's does
counts = CallbackMetrics("blue")
running = pod_view(pods.pod("Running", [pods.status(state=pods.running())]))
counts.launched(running, running.created_at - 7, again=False)
for kind in (FailureKind.LOST, FailureKind.LOST, FailureKind.CALLBACK):
    counts.ended(CallbackOutcome.FAILED, kind, running, path="alerts.notify", dag_id="reports")
counts.gauge([running])
"""


def test_tags_arrive_at_an_opentelemetry_collector():
    with OtlpCollector() as collector:
        environment = {
            **os.environ,
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        command = [sys.executable, "-c", PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found = collector.metrics()
    prefix = "airflow." + PREFIX

    by_reason = {
        (attributes_of(point)["reason"], attributes_of(point)["team_name"]): point.as_double or point.as_int
        for point in found[prefix + "outcomes"].sum.data_points
    }
    assert by_reason == {("lost", "blue"): 2, ("callback", "blue"): 1}
    (gauge,) = found[prefix + "running"].gauge.data_points
    assert (gauge.as_double or gauge.as_int) == 1
    histogram = found[prefix + "deadline_to_pod"]
    (points,) = histogram.exponential_histogram.data_points or histogram.histogram.data_points
    assert (points.count, points.sum) == (1, 7000.0)
    (failed,) = found["airflow.deadline_alerts.callback_failed"].sum.data_points
    assert attributes_of(failed) == {"path": "alerts.notify", "dag_id": "reports", "team_name": "blue"}
