"""Metrics and spans of callbacks leave a real scheduler and arrive at real backends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy import text

from kubernetes_tests.airflow_env import wait_for
from tests.telemetry import OtlpCollector, StatsdListener, attributes_of, sent_to

if TYPE_CHECKING:
    from kubernetes_tests.scenario import Scenario

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def trace_runs(scenario: Scenario) -> None:
    """Give every Dag run the trace context that Airflow gives it where tracing is on."""
    context = {"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-01"}
    carrier = json.dumps({"__var": context, "__type": "dict"})  # as Airflow stores a dictionary
    with scenario.installation.engine.begin() as connection:
        connection.execute(text("UPDATE dag_run SET context_carrier = :carrier"), {"carrier": carrier})


def test_metrics_and_spans_of_callbacks_arrive(scenario: Scenario) -> None:
    (good,) = scenario.miss("succeed")
    (bad,) = scenario.miss("fail")
    trace_runs(scenario)
    with StatsdListener() as statsd, OtlpCollector() as collector:
        scheduler = scenario.start_scheduler(**sent_to(statsd, collector))
        scenario.wait_for_state(good, "success")
        scenario.wait_for_state(bad, "failed")
        spans = wait_for(
            "spans of both callbacks",
            lambda: len(found := callback_spans(collector)) == 2 and found,
            30,
            otherwise=scenario.describe,
        )
        recorded = "airflow.kubernetes_executor.callback_end_to_recorded"
        wait_for("both ends are recorded", lambda: len(statsd.samples(recorded)) == 2, 30)
        assert scheduler.running

    prefix = "airflow.kubernetes_executor.callback_"
    assert statsd.total(f"{prefix}launches") == 2
    assert statsd.total(f"{prefix}failures.callback") == 1
    assert statsd.total("airflow.deadline_alerts.callback_success") == 1
    assert statsd.total("airflow.deadline_alerts.callback_failed") == 1
    for timer in ("deadline_to_pod", "pod_to_running"):
        samples = statsd.samples(prefix + timer)
        assert len(samples) == 2, timer
        assert all(0 <= sample.value < 300_000 for sample in samples), timer

    assert set(spans) == {good.id, bad.id}
    for callback_id, span in spans.items():
        assert span.trace_id.hex() == TRACE_ID
        assert span.parent_span_id.hex() == SPAN_ID
        assert attributes_of(span)["k8s.pod.name"] == f"callback-{callback_id}-1"
        assert span.end_time_unix_nano > span.start_time_unix_nano
    assert "ValueError: the webhook refused the alert" in spans[bad.id].status.message


def callback_spans(collector: OtlpCollector) -> dict[str, Any]:
    """Return the spans of callbacks by the callback's id."""
    return {
        str(attributes_of(span)["airflow.callback.id"]): span
        for span in collector.spans()
        if span.name.startswith("callback_run")
    }
