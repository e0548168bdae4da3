"""What this executor tells Airflow's metrics backend about callbacks. Names beside the stock ones.

``METRICS`` is the one list of them. A backend without tags (plain StatsD) adds up what differs only by
tags; what must be told apart there has a name of its own.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

# Core's, which is set up where executors are made. The copy that the Task SDK has of it is set up where
# tasks run; in a scheduler of Airflow 3.4 it drops everything.
from airflow.observability.stats import Stats

from airflow_kubernetes_callbacks.actions import FailureKind
from airflow_kubernetes_callbacks.outcome import CallbackOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.traces import CallbackTraces

PREFIX = "kubernetes_executor.callback_"


class Metric(NamedTuple):
    """One metric: its name, type, tags (beside ``team_name``) and what it tells."""

    name: str
    type: str
    tags: tuple[str, ...]
    meaning: str


METRICS: tuple[Metric, ...] = (
    Metric(PREFIX + "launches", "counter", (), "Pods that were created."),
    Metric(
        PREFIX + "launch_failures",
        "counter",
        ("status",),
        "Requests to create a pod that were not taken: for now (status `refused`; it is tried again) or for "
        "good (`failed`).",
    ),
    Metric(
        PREFIX + "outcomes",
        "counter",
        ("outcome", "reason"),
        "Callbacks that ended: outcome `success` or `failed`, and of a failure the class of its reason.",
    ),
    *(
        Metric(f"{PREFIX}failures.{kind.value}", "counter", (), f"Callbacks that failed: {meaning}.")
        for kind, meaning in {
            FailureKind.CALLBACK: "the callback ran and failed",
            FailureKind.UNSTARTED: "its container never began",
            FailureKind.LOST: "its pod is gone and nobody saw how it ended",
            FailureKind.REFUSED: "its pod could not be created",
            FailureKind.CANCELLED: "a person cancelled it, and Airflow wrote over that once",
        }.items()
    ),
    Metric(PREFIX + "retries", "counter", (), "Pods that were created after an earlier one did not start."),
    Metric(PREFIX + "adoptions", "counter", (), "Pods taken over from a scheduler that is no more."),
    Metric(
        PREFIX + "reemitted",
        "counter",
        (),
        "Results that were reported again because the database had not kept them.",
    ),
    Metric(PREFIX + "pending", "gauge", (), "Pods whose container has not begun."),
    Metric(PREFIX + "running", "gauge", (), "Pods whose container runs."),
    Metric(PREFIX + "deadline_to_pod", "timer", (), "From the missed deadline to the creation of the pod."),
    Metric(PREFIX + "pod_to_running", "timer", (), "From the creation of the pod to its container's begin."),
    Metric(
        PREFIX + "end_to_recorded", "timer", (), "From the container's end to its record in the database."
    ),
    Metric(
        "deadline_alerts.callback_success",
        "counter",
        ("path", "dag_id"),
        "Callbacks that succeeded; the triggerer counts its own under the same name.",
    ),
    Metric(
        "deadline_alerts.callback_failed",
        "counter",
        ("path", "dag_id"),
        "Callbacks that failed; the triggerer counts its own under the same name.",
    ),
)


class CallbackMetrics:
    """Counts for one executor.

    :param team: goes into every metric as ``team_name`` where there is one.
    :param traces: gets a span per callback; None where tracing is off.
    """

    def __init__(self, team: str | None, traces: CallbackTraces | None = None) -> None:
        self._tags = {"team_name": team} if team else {}
        self._traces = traces

    def _count(self, name: str, **tags: str) -> None:
        Stats.incr(PREFIX + name, tags={**self._tags, **tags})

    def _time(self, name: str, seconds: float) -> None:
        # Two clocks are compared; one that is a little ahead must not give a negative time.
        Stats.timing(PREFIX + name, timedelta(seconds=max(0.0, seconds)), tags=self._tags)

    def launched(self, view: PodView, deadline: float | None, *, again: bool) -> None:
        """A pod was created; *deadline* is when its deadline was missed (epoch seconds), if known."""
        self._count("launches")
        if again:
            self._count("retries")
        if deadline is not None:
            self._time("deadline_to_pod", view.created_at - deadline)

    def launch_refused(self, *, for_now: bool) -> None:
        """The API server did not take the pod: for now, or for good."""
        self._count("launch_failures", status="refused" if for_now else "failed")

    def adopted(self) -> None:
        self._count("adoptions")

    def reemitted(self) -> None:
        self._count("reemitted")

    def ended(
        self,
        outcome: CallbackOutcome,
        kind: FailureKind | None,
        view: PodView | None,
        *,
        path: str,
        dag_id: str,
    ) -> None:
        """The end of a callback is reported to the scheduler for the first time."""
        succeeded = outcome is CallbackOutcome.SUCCEEDED
        state = "success" if succeeded else "failed"
        self._count("outcomes", outcome=state, reason=kind.value if kind else "none")
        if kind is not None:
            self._count(f"failures.{kind.value}")
        if view is not None and view.started_at is not None:
            self._time("pod_to_running", view.started_at - view.created_at)
        Stats.incr(f"deadline_alerts.callback_{state}", tags={**self._tags, "path": path, "dag_id": dag_id})
        if self._traces is not None and view is not None:
            self._traces.ended(view, outcome, path)

    def recorded(self, view: PodView, now: float) -> None:
        """The end of this pod's callback is in the database."""
        if view.ended_at is not None:
            self._time("end_to_recorded", now - view.ended_at)

    def gauge(self, views: Iterable[PodView]) -> None:
        """Tell how many pods wait and run."""
        waiting = running = 0
        for view in views:
            if not view.gone:
                waiting += view.outcome is CallbackOutcome.PENDING
                running += view.outcome is CallbackOutcome.RUNNING
        Stats.gauge(PREFIX + "pending", waiting, tags=self._tags)
        Stats.gauge(PREFIX + "running", running, tags=self._tags)


def deadline_of(workload: Any) -> float | None:
    """Return when the deadline of this workload's callback was (epoch seconds), if it says so."""
    try:
        value = workload.callback.data["kwargs"]["context"]["deadline"]["deadline_time"]
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        return moment.timestamp()
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return None
