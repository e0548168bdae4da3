"""Spans of callbacks: what is in them, and that they arrive at a real collector in the Dag run's trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from airflow_kubernetes_callbacks.outcome import CallbackOutcome, pod_view
from airflow_kubernetes_callbacks.traces import CallbackTraces
from tests import pods
from tests.fakes.scheduler import pod_tells_api_that_it_runs, state_of
from tests.telemetry import OtlpCollector, attributes_of

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"}
CREATED = 1780308000

SUCCEEDED = pod_view(pods.pod("Succeeded", [pods.status(state=pods.terminated(0))]))
FAILED = pod_view(
    pods.pod("Failed", [pods.status(state=pods.terminated(137, "OOMKilled"))]),
)


@pytest.fixture
def spans(monkeypatch):
    """What is exported, with a provider such as Airflow installs."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter.get_finished_spans
    provider.shutdown()


def at_once(work):
    work()


def test_span_of_a_success(spans):
    CallbackTraces(at_once, lambda *_: SAMPLED).ended(SUCCEEDED, CallbackOutcome.SUCCEEDED, "alerts.notify")
    (span,) = spans()
    assert span.name == "callback_run.alerts.notify"
    assert span.status.status_code is trace.StatusCode.OK
    assert (span.start_time, span.end_time) == (CREATED * 10**9, (CREATED + 9) * 10**9)
    assert [(event.name, event.timestamp) for event in span.events] == [
        ("container began", (CREATED + 5) * 10**9)
    ]
    assert span.attributes["airflow.callback.id"] == pods.CALLBACK_ID
    assert span.attributes["airflow.callback.outcome"] == "success"
    assert span.attributes["airflow.dag_id"] == "d"
    assert span.attributes["airflow.dag_run.run_id"] == "r"
    assert span.attributes["k8s.pod.name"] == SUCCEEDED.name


def test_span_of_a_failure_has_the_reason(spans):
    CallbackTraces(at_once, lambda *_: None).ended(FAILED, CallbackOutcome.FAILED, "")
    (span,) = spans()
    assert span.name == "callback_run"
    assert span.status.status_code is trace.StatusCode.ERROR
    assert "OOMKilled" in span.status.description


def test_span_is_in_the_trace_of_its_dag_run(spans):
    CallbackTraces(at_once, lambda *_: SAMPLED).ended(SUCCEEDED, CallbackOutcome.SUCCEEDED, "a")
    (span,) = spans()
    assert trace.format_trace_id(span.context.trace_id) == TRACE_ID
    assert trace.format_span_id(span.parent.span_id) == SPAN_ID


def test_callback_of_a_dag_run_that_is_not_sampled_has_no_span(spans):
    CallbackTraces(at_once, lambda *_: NOT_SAMPLED).ended(SUCCEEDED, CallbackOutcome.SUCCEEDED, "a")
    assert spans() == ()


def carrier_not_to_be_had(dag_id, run_id):
    raise ConnectionError("the database is away")


@pytest.mark.parametrize(
    "carrier_of",
    [
        pytest.param(lambda *_: None, id="none"),
        pytest.param(lambda *_: {}, id="empty"),
        pytest.param(lambda *_: {"traceparent": "nonsense"}, id="nonsense"),
        pytest.param(carrier_not_to_be_had, id="database_is_away"),
    ],
)
def test_without_a_trace_of_the_dag_run_the_span_is_a_root(spans, carrier_of):
    CallbackTraces(at_once, carrier_of).ended(SUCCEEDED, CallbackOutcome.SUCCEEDED, "a")
    (span,) = spans()
    assert span.parent is None


def test_nothing_is_asked_in_the_callers_thread(spans):
    later = []
    CallbackTraces(later.append, carrier_not_to_be_had).ended(SUCCEEDED, CallbackOutcome.SUCCEEDED, "a")
    assert spans() == ()
    later[0]()
    assert len(spans()) == 1


def test_callback_that_the_executor_ran_is_traced_under_its_dag_run(
    spans, api_server, new_scheduler, new_callback
):
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    scheduler = new_scheduler(TRACES__OTEL_ON="True")
    callback_id = new_callback(run_id="manual__traced")
    with create_session(scoped=False) as session:
        run = session.scalar(select(DagRun).where(DagRun.run_id == "manual__traced"))
        run.context_carrier = SAMPLED
    [pod] = scheduler.until(api_server.pods)
    api_server.node.bind(pod)
    pod_tells_api_that_it_runs(callback_id)
    api_server.node.start(pod)
    api_server.node.finish(pod)
    scheduler.until(lambda: state_of(callback_id) == "success")
    (span,) = scheduler.until(spans)
    assert trace.format_trace_id(span.context.trace_id) == TRACE_ID
    assert span.attributes["airflow.callback.id"] == callback_id
    assert span.attributes["airflow.dag_run.run_id"] == "manual__traced"


def test_no_span_and_no_question_where_airflow_does_not_trace(spans, api_server, new_scheduler, new_callback):
    scheduler = new_scheduler()
    assert scheduler.callbacks._metrics._traces is None


PROCESS = """
from airflow import settings  # installs the tracer provider
settings.initialize()
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.traces import CallbackTraces
from tests.test_traces import SAMPLED, SUCCEEDED, at_once

CallbackTraces(at_once, lambda *_: SAMPLED).ended(SUCCEEDED, CallbackOutcome.SUCCEEDED, "alerts.notify")
"""


def test_span_arrives_at_an_opentelemetry_collector():
    root = Path(__file__).parent.parent
    with OtlpCollector() as collector:
        environment = {
            **os.environ,
            "AIRFLOW__TRACES__OTEL_ON": "True",
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)]),
        }
        command = [sys.executable, "-c", PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (span,) = collector.spans()
    assert span.trace_id.hex() == TRACE_ID
    assert span.parent_span_id.hex() == SPAN_ID
    assert attributes_of(span)["airflow.callback.id"] == pods.CALLBACK_ID
