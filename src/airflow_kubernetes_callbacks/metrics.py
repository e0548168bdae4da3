"""What this executor tells Airflow's metrics backend about callbacks. Names beside the stock ones.

=============================================  =======  =========================================
name (``kubernetes_executor.callback_…``)      type     tags beside ``team_name``
=============================================  =======  =========================================
``launches``                                   counter  ``status``: created, refused, failed
``outcomes``                                   counter  ``outcome``: success, failed; ``reason``
``retries``, ``adoptions``, ``reemitted``      counter
``pending``, ``running``                       gauge
``deadline_to_pod``                            timer
``pod_to_running``                             timer
``end_to_recorded``                            timer
=============================================  =======  =========================================

``deadline_alerts.callback_success`` and ``…callback_failed`` are counted as the triggerer counts them
for its own callbacks.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Stats

from airflow_kubernetes_callbacks.outcome import CallbackOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_kubernetes_callbacks.actions import FailureKind
    from airflow_kubernetes_callbacks.outcome import PodView

PREFIX = "kubernetes_executor.callback_"


class CallbackMetrics:
    """Counts for one executor.

    :param team: goes into every metric as ``team_name`` where there is one.
    """

    def __init__(self, team: str | None) -> None:
        self._tags = {"team_name": team} if team else {}

    def _count(self, name: str, **tags: str) -> None:
        Stats.incr(PREFIX + name, tags={**self._tags, **tags})

    def _time(self, name: str, seconds: float) -> None:
        # Two clocks are compared; one that is a little ahead must not give a negative time.
        Stats.timing(PREFIX + name, timedelta(seconds=max(0.0, seconds)), tags=self._tags)

    def launched(self, view: PodView, deadline: float | None, *, again: bool) -> None:
        """A pod was created; *deadline* is when its deadline was missed (epoch seconds), if known."""
        self._count("launches", status="created")
        if again:
            self._count("retries")
        if deadline is not None:
            self._time("deadline_to_pod", view.created_at - deadline)

    def launch_refused(self, *, for_now: bool) -> None:
        """The API server did not take the pod: for now, or for good."""
        self._count("launches", status="refused" if for_now else "failed")

    def adopted(self) -> None:
        self._count("adoptions")

    def reemitted(self) -> None:
        self._count("reemitted")

    def ended(
        self, outcome: CallbackOutcome, kind: FailureKind | None, view: PodView | None, path: str
    ) -> None:
        """The end of a callback is reported to the scheduler for the first time."""
        succeeded = outcome is CallbackOutcome.SUCCEEDED
        state = "success" if succeeded else "failed"
        self._count("outcomes", outcome=state, reason=kind.value if kind else "none")
        if view is not None and view.started_at is not None:
            self._time("pod_to_running", view.started_at - view.created_at)
        Stats.incr(f"deadline_alerts.callback_{state}", tags={**self._tags, "path": path})

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
