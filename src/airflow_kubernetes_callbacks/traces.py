"""One span per callback, from the creation of its pod to its end, in the trace of its Dag run.

Airflow sets up OpenTelemetry (``[traces] otel_on``); spans go to the tracer provider that it installs.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from airflow_kubernetes_callbacks.outcome import CallbackOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_kubernetes_callbacks.outcome import PodView

log = logging.getLogger(__name__)


class CallbackTraces:
    """Spans of one executor's callbacks.

    :param in_background: has a function called in a worker thread.
    :param carrier_of: returns the trace context of the Dag run with these ids, if it has one; asks the
        database, so it is called in the background.
    """

    def __init__(
        self,
        in_background: Callable[[Callable[[], None]], None],
        carrier_of: Callable[[str, str], Mapping[str, str] | None],
    ) -> None:
        self._in_background = in_background
        self._carrier_of = carrier_of
        self._tracer = trace.get_tracer(__name__)

    def ended(self, view: PodView, outcome: CallbackOutcome, path: str) -> None:
        """The callback of this pod has ended."""
        now = time.time()
        self._in_background(lambda: self._emit(view, outcome, path, now))

    def _emit(self, view: PodView, outcome: CallbackOutcome, path: str, now: float) -> None:
        succeeded = outcome is CallbackOutcome.SUCCEEDED
        span = self._tracer.start_span(
            f"callback_run.{path}" if path else "callback_run",
            context=self._parent(view),
            start_time=_nanoseconds(view.created_at),
            attributes={
                "airflow.callback.id": view.callback_id,
                "airflow.callback.path": path,
                "airflow.callback.outcome": "success" if succeeded else "failed",
                "airflow.callback.attempt": view.attempt,
                "airflow.dag_id": view.dag_id,
                "airflow.dag_run.run_id": view.run_id,
                "k8s.namespace.name": view.namespace,
                "k8s.pod.name": view.name,
                "k8s.pod.uid": view.uid,
                "k8s.node.name": view.node or "",
            },
        )
        if view.started_at is not None:
            span.add_event("container began", timestamp=_nanoseconds(view.started_at))
        span.set_status(Status(StatusCode.OK) if succeeded else Status(StatusCode.ERROR, view.reason))
        span.end(_nanoseconds(view.ended_at or now))

    def _parent(self, view: PodView) -> Context:
        try:
            carrier = self._carrier_of(view.dag_id, view.run_id) or {}
        except Exception as error:  # noqa: BLE001 - any database driver's own; the span is then a root
            log.debug("The trace of Dag run %s cannot be read: %s", view.run_id, error)
            carrier = {}
        return TraceContextTextMapPropagator().extract(carrier, context=Context())


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)
