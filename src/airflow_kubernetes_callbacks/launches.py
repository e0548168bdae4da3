"""Launches: which threads make them, and what is looked at right before the pod is created.

Several threads make requests; one at a time reads rows, for all of them. Each with a query of its own would
need a database connection each, and they would keep the scheduler's thread from its work.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from airflow_kubernetes_callbacks.api_errors import ApiAnswer
from airflow_kubernetes_callbacks.launch_failure import launch_failure, without_workload
from airflow_kubernetes_callbacks.metrics import deadline_of
from airflow_kubernetes_callbacks.pod_launcher import Launched
from airflow_kubernetes_callbacks.redact import mask_secrets
from airflow_kubernetes_callbacks.request_answer import Answer
from airflow_kubernetes_callbacks.situation import RowState
from airflow_kubernetes_callbacks.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_kubernetes_callbacks.api_errors import ApiFailure
    from airflow_kubernetes_callbacks.callback_store import CallbackStore
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_launcher import LaunchOrder

    #: A launch, and the workload for it.
    Ready = tuple[LaunchOrder, Any]

log = logging.getLogger(__name__)

#: How many rows are read together before their callbacks are launched, and for how long (seconds) what was
#: read counts as fresh.
_ROWS_AT_ONCE = 50
_ROWS_FRESH_FOR = 1.0
#: For how long (seconds) workloads are made anew before those that there are by then are launched.
_MAKING_FOR = 0.2
#: Seconds after which the others do not wait any longer for the thread that reads.
_HANGS_AFTER = 15.0


class Launcher(Protocol):
    """Creates callback pods; see :mod:`airflow_kubernetes_callbacks.pod_launcher`."""

    def launch(self, orders: Sequence[tuple[LaunchOrder, Any]]) -> list[Launched]: ...

    def ensure_payload(self, pod: PodView, make_workload: Callable[[], Any]) -> None: ...


class Launches:
    """Makes launches in threads of their own.

    :param make_workload: makes the workload of a callback anew, by its id.
    :param answer: takes what came of each launch.
    :param batch_size: with a value above 1, that many launches are handed to the launcher together
        (``async_pod_creation``), by one thread; with 1 each launch is a request of its own.
    """

    def __init__(
        self,
        *,
        store: CallbackStore,
        launcher: Launcher,
        make_workload: Callable[[str], Any],
        answer: Callable[[Answer], None],
        concurrency: int,
        batch_size: int,
    ) -> None:
        self._store = store
        self._launcher = launcher
        self._make_workload = make_workload
        self._answer = answer
        self._batch_size = batch_size
        self._pool = WorkerPool(1 if batch_size > 1 else concurrency, "callback-launches")
        self._orders: SimpleQueue[LaunchOrder] = SimpleQueue()
        #: Held by the thread that takes what it launches, and reads the rows of it where that is to be done.
        self._taking = threading.Lock()
        #: Those whose rows say that they are to be launched, and when these were read (monotonic seconds).
        self._ready: list[Ready] = []
        self._read_at = 0.0
        #: How many of those were handed out since, and how many are whatever their age.
        self._handed_out = 0
        self._at_once = max(batch_size, concurrency)
        self._stopping = False

    def add(self, order: LaunchOrder) -> None:
        """Have the order carried out when its turn comes."""
        self._orders.put(order)
        self._pool.submit(self._launch_some)

    def stop(self) -> None:
        """Begin nothing more."""
        self._stopping = True
        self._pool.stop()

    def _launch_some(self) -> None:
        """Launch what one thread takes at a time. It is called as often as there are orders."""
        if some := self._take_ready():
            self._launch(some)

    def _take_ready(self) -> list[Ready]:
        """Return the next ones to launch, whose rows were read just now.

        One for each thread is returned however long the reading took: a slow database slows launches down,
        and does not stop them.
        """
        if not self._taking.acquire(timeout=_HANGS_AFTER):
            # The connection of the thread that reads is dead, perhaps: this one reads for itself.
            return self._still_queued(self._take_orders(self._batch_size))
        try:
            if self._stopping:
                return []
            stale = time.monotonic() - self._read_at > _ROWS_FRESH_FOR and self._handed_out >= self._at_once
            if stale or not self._ready:
                again = self._ready or self._take_orders(max(self._batch_size, _ROWS_AT_ONCE))
                self._read_at, self._handed_out = time.monotonic(), 0
                self._ready = self._still_queued(again)
            some, self._ready = self._ready[: self._batch_size], self._ready[self._batch_size :]
            self._handed_out += len(some)
            return some
        finally:
            self._taking.release()

    def _take_orders(self, most: int) -> list[Ready]:
        """Return the next orders with their workloads; those for which none can be made are answered."""
        orders: list[Ready] = []
        until = time.monotonic() + _MAKING_FOR
        while len(orders) < most:
            if orders and time.monotonic() > until:
                break
            try:
                order = self._orders.get_nowait()
            except Empty:
                break
            try:
                workload = (
                    order.workload if order.workload is not None else self._make_workload(order.callback_id)
                )
            except BaseException as error:  # noqa: BLE001 - it is answered
                self._report(order, Launched(error=without_workload(error)))
            else:
                orders.append((order, workload))
        return orders

    def _launch(self, ready: list[Ready]) -> None:
        try:
            results = self._launcher.launch(ready)
        except BaseException as error:  # noqa: BLE001 - without an answer the callback would wait for ever
            results = [Launched(error=error)] * len(ready)
        for (order, workload), result in zip(ready, results, strict=True):
            self._report(order, result, deadline_of(workload))

    def _report(self, order: LaunchOrder, result: Launched, deadline: float | None = None) -> None:
        failure = launch_failure(result.error) if result.error is not None else None
        if result.error is not None and failure is not None and _is_unexpected(failure):
            # Not as exc_info: an error that quotes its input (pydantic's do) has the token in it.
            trace = mask_secrets("".join(traceback.format_exception(result.error)))
            log.error("Launch of callback %s failed unexpectedly.\n%s", order.callback_id, trace)
        self._answer(
            Answer(
                order.callback_id,
                view=result.view,
                failure=failure,
                launched_attempt=order.attempt,
                deadline=deadline,
            )
        )

    def _still_queued(self, orders: list[Ready]) -> list[Ready]:
        """Return the orders that are to be carried out; the others are answered.

        The rows are read anew however fresh the decisions are: within a second another scheduler's pod of
        such an attempt can have been refused by its node and deleted, and its name would be free again.
        """
        if not orders:
            return []
        try:
            rows = self._store.rows([order.callback_id for order, _ in orders])
        except BaseException as error:  # noqa: BLE001 - it is answered
            for order, _ in orders:
                self._report(order, Launched(error=without_workload(error)))
            return []
        ready = []
        for order, workload in orders:
            row = rows[order.callback_id]
            if row.state is not RowState.QUEUED or row.next_attempt > order.attempt:
                skipped = Answer(order.callback_id, launched_attempt=order.attempt, skipped=True)
                self._answer(skipped)
            else:
                ready.append((order, workload))
        return ready


def _is_unexpected(failure: ApiFailure) -> bool:
    return failure.status is None and failure.answer is ApiAnswer.PERMANENT and failure.may_have_arrived
