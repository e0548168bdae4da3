"""The executor's own bookkeeping, as far as callbacks touch it: slots, queue and event buffer."""

from __future__ import annotations

from collections import deque
from typing import Any

from airflow.models.log import Log

from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.version_compat import CallbackKey, queued_callbacks_of

#: Airflow 3.3 drops each entry of the audit log on the way to its insert, and the insert then fails, unless
#: somebody else holds it (``SchedulerJobRunner._process_task_event_logs`` feeds a bulk insert from a generator).
_NOTES_KEPT = 2000


class ExecutorSlots:
    """What the controller asks of the executor, by the id of a callback.

    :param max_active: how many callbacks may have, or wait for, a slot; 0 for as many as there are slots.

    Everything in the executor is keyed by ``CallbackKey``: a plain id would never match, and core
    takes an event with another kind of key for a defect (apache/airflow#67268).
    """

    def __init__(self, executor: Any, max_active: int = 0) -> None:
        self._executor = executor
        self._max_active = max_active
        self._notes: deque[Log] = deque(maxlen=_NOTES_KEPT)

    def within_budget(self) -> bool:
        """Tell whether ``max_active_callbacks`` lets one more callback run or wait for its slot."""
        if not self._max_active:
            return True
        active = sum(isinstance(key, CallbackKey) for key in self._executor.running)
        return active + len(queued_callbacks_of(self._executor)) < self._max_active

    def occupy(self, callback_id: str) -> None:
        """Count the callback as running: it has a pod, whether or not a slot was free."""
        self._executor.running.add(CallbackKey(callback_id))

    def try_occupy(self, callback_id: str) -> bool:
        """Count the callback as running if it already is or a slot is free; tell whether it is."""
        key = CallbackKey(callback_id)
        if key in self._executor.running:
            return True
        if self._executor.slots_available <= 0 or not self.within_budget():
            return False
        self._executor.running.add(key)
        return True

    def release(self, callback_id: str) -> None:
        """Free the callback's slot without an event."""
        key = CallbackKey(callback_id)
        self._executor.running.discard(key)
        queued_callbacks_of(self._executor).pop(key, None)

    def has_report(self, callback_id: str) -> bool:
        """Tell whether the scheduler has yet to take the last report."""
        return CallbackKey(callback_id) in self._executor.event_buffer

    def note(self, event: str, dag_id: str, run_id: str, text: str) -> None:
        """Have the scheduler write an entry into the audit log of the Dag run."""
        if dag_id:
            entry = Log(event=event, dag_id=dag_id, run_id=run_id or None, extra=text)
            self._notes.append(entry)
            self._executor._task_event_logs.append(entry)

    def report(self, callback_id: str, outcome: CallbackOutcome, info: str | None) -> None:
        """Put an event into the buffer; one that ends the callback frees its slot."""
        key = CallbackKey(callback_id)
        if outcome is CallbackOutcome.RUNNING:
            self._executor.running_state(key)
        elif outcome is CallbackOutcome.SUCCEEDED:
            self._executor.success(key)
        else:
            self._executor.fail(key, info)
