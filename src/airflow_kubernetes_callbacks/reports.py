"""Reports to the scheduler, and what becomes of them.

Core takes the reports out of the event buffer before it commits what they say (apache/airflow#69975):
a commit that fails loses them. So an end counts as told only when the row is seen to be terminal, and
is reported again until then. Nothing is reported after an end.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.pauses import LONGEST_PAUSE, growing_pause
from airflow_kubernetes_callbacks.redact import presentable
from airflow_kubernetes_callbacks.situation import RowState

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.actions import FailureKind
    from airflow_kubernetes_callbacks.cache import CallbackCache
    from airflow_kubernetes_callbacks.metrics import CallbackMetrics
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.situation import RowView

log = logging.getLogger(__name__)


class ExecutorPort(Protocol):
    """What the controller needs of the executor whose callbacks it looks after."""

    def occupy(self, callback_id: str) -> None: ...

    def try_occupy(self, callback_id: str) -> bool: ...

    def release(self, callback_id: str) -> None: ...

    def report(self, callback_id: str, outcome: CallbackOutcome, info: str | None) -> None: ...

    def note(self, event: str, dag_id: str, run_id: str, text: str) -> None: ...

    def has_report(self, callback_id: str) -> bool: ...


class EndReports:
    """The reports of one executor that are not known to be recorded."""

    def __init__(self, cache: CallbackCache, executor: ExecutorPort, metrics: CallbackMetrics) -> None:
        self._cache = cache
        self._executor = executor
        self._metrics = metrics
        self._untaken: dict[str, None] = {}

    def running(self, callback_id: str) -> None:
        """Report that the callback runs, unless its end, or this, is reported already."""
        if callback_id not in self._untaken and not self._executor.has_report(callback_id):
            self._executor.report(callback_id, CallbackOutcome.RUNNING, None)

    def succeeded(self, callback_id: str, row: RowView) -> None:
        """Report the success, unless a report of the end waits to be taken."""
        self._end(callback_id, CallbackOutcome.SUCCEEDED, None, None, row)

    def failed(self, callback_id: str, reason: str, kind: FailureKind, row: RowView | None = None) -> None:
        """Report the failure with its reason, unless a report of the end waits to be taken."""
        # Most reasons are masked where they are read; nothing else stands between one and its readers.
        self._end(callback_id, CallbackOutcome.FAILED, presentable(reason), kind, row)

    def waiting(self, callback_id: str) -> bool:
        """Tell whether a report of the end waits to be taken: until then nothing is decided anew."""
        return callback_id in self._untaken and self._executor.has_report(callback_id)

    def _end(
        self,
        callback_id: str,
        outcome: CallbackOutcome,
        info: str | None,
        kind: FailureKind | None,
        row: RowView | None,
    ) -> None:
        track = self._cache.track(callback_id)
        if self.waiting(callback_id):
            return
        if track.reports:
            log.warning("The end of callback %s was not recorded; reporting it again.", callback_id)
            self._metrics.reemitted()
        else:
            self._note(callback_id, outcome, info, kind, row)
        track.reports += 1
        self._untaken[callback_id] = None
        self._executor.report(callback_id, outcome, info)

    def _note(
        self,
        callback_id: str,
        outcome: CallbackOutcome,
        info: str | None,
        kind: FailureKind | None,
        row: RowView | None,
    ) -> None:
        """Tell the metrics, and of a failure the audit log, how the callback ended."""
        view = self._latest(callback_id)
        path = row.path if row else ""
        dag_id = (view.dag_id if view else "") or (row.dag_id if row else "")
        self._metrics.ended(outcome, kind, view, path=path, dag_id=dag_id)
        if info is not None:
            run_id = (view.run_id if view else "") or (row.run_id if row else "")
            self._executor.note("callback failed", dag_id, run_id, f"Callback {callback_id} {path}: {info}")

    def recorded(self, callback_id: str, row: RowView) -> None:
        """The row was seen to be terminal, or gone: the report has done its work."""
        track, view = self._cache.tracked(callback_id), self._latest(callback_id)
        if row.state is RowState.TERMINAL and track is not None and track.reports and view is not None:
            self._metrics.recorded(view, time.time())
            track.reports = 0
        self._untaken.pop(callback_id, None)

    def look_at_taken(self) -> None:
        """The scheduler has taken these reports and should have recorded them: see whether it has."""
        for callback_id in list(self._untaken):
            if self._executor.has_report(callback_id):
                continue
            del self._untaken[callback_id]
            reports = self._cache.track(callback_id).reports
            if reports <= 1:
                self._cache.mark_dirty(callback_id)
            else:
                self._cache.look_at(callback_id, time.time() + growing_pause(reports - 1, 1.0, LONGEST_PAUSE))

    def _latest(self, callback_id: str) -> PodView | None:
        return next(reversed(self._cache.pods(callback_id)), None)
