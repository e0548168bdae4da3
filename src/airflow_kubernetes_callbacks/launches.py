"""Launches: which threads make them, and what is looked at right before the pod is created."""

from __future__ import annotations

import logging
import time
import traceback
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from airflow_kubernetes_callbacks.api_errors import ApiAnswer
from airflow_kubernetes_callbacks.launch_failure import launch_failure
from airflow_kubernetes_callbacks.metrics import deadline_of
from airflow_kubernetes_callbacks.redact import mask_secrets
from airflow_kubernetes_callbacks.request_answer import Answer
from airflow_kubernetes_callbacks.situation import RowState
from airflow_kubernetes_callbacks.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_kubernetes_callbacks.callback_store import CallbackStore
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_launcher import LaunchOrder

    #: A launch, and the workload for it.
    Ready = tuple[LaunchOrder, Any]

log = logging.getLogger(__name__)

#: How many rows one thread reads together before it launches their callbacks, and for how long (seconds)
#: what it read counts as fresh.
_ROWS_AT_ONCE = 8
_ROWS_FRESH_FOR = 1.0


class Launcher(Protocol):
    """Creates callback pods; see :mod:`airflow_kubernetes_callbacks.pod_launcher`."""

    def launch(self, orders: Sequence[tuple[LaunchOrder, Any]]) -> list[PodView | BaseException]: ...

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
        self._concurrency = concurrency
        self._batch_size = batch_size
        self._pool = WorkerPool(1 if batch_size > 1 else concurrency, "callback-launches")
        self._orders: SimpleQueue[LaunchOrder] = SimpleQueue()
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
        """Launch what one thread takes at a time; in a storm it takes more, to read their rows together."""
        share = self._orders.qsize() // self._concurrency
        orders = self._take_orders(max(self._batch_size, min(share, _ROWS_AT_ONCE), 1))
        ready = self._with_workloads(orders)
        while ready and not self._stopping:
            ready = self._launch_while_fresh(ready)

    def _launch_while_fresh(self, orders: list[Ready]) -> list[Ready]:
        """Launch these for as long as their rows count as fresh; return those whose rows are to be read again.

        The first ones are launched however long the reading took: a slow database slows launches down, and
        does not stop them.
        """
        read_at = time.monotonic()
        ready = self._still_queued(orders)
        while ready and not self._stopping:
            some, ready = ready[: self._batch_size], ready[self._batch_size :]
            self._launch(some)
            if time.monotonic() - read_at > _ROWS_FRESH_FOR:
                break
        return ready

    def _take_orders(self, most: int) -> list[LaunchOrder]:
        orders: list[LaunchOrder] = []
        while len(orders) < most:
            try:
                orders.append(self._orders.get_nowait())
            except Empty:
                break
        return orders

    def _launch(self, ready: list[Ready]) -> None:
        try:
            results = self._launcher.launch(ready)
        except BaseException as error:  # noqa: BLE001 - without an answer the callback would wait for ever
            results = [error] * len(ready)
        for (order, workload), result in zip(ready, results, strict=True):
            self._report(order, result, deadline_of(workload))

    def _report(
        self, order: LaunchOrder, result: PodView | BaseException, deadline: float | None = None
    ) -> None:
        if isinstance(result, BaseException):
            failure = launch_failure(result)
            if failure.status is None and failure.answer is ApiAnswer.PERMANENT and failure.may_have_arrived:
                # Not as exc_info: an error that quotes its input (pydantic's do) has the token in it.
                trace = mask_secrets("".join(traceback.format_exception(result)))
                log.error("Launch of callback %s failed unexpectedly.\n%s", order.callback_id, trace)
            self._answer(Answer(order.callback_id, failure=failure, launched_attempt=order.attempt))
        else:
            created = Answer(
                order.callback_id, view=result, launched_attempt=order.attempt, deadline=deadline
            )
            self._answer(created)

    def _with_workloads(self, orders: list[LaunchOrder]) -> list[Ready]:
        """Return the orders with their workloads; those for which none can be made are answered."""
        ready = []
        for order in orders:
            try:
                workload = (
                    order.workload if order.workload is not None else self._make_workload(order.callback_id)
                )
            except BaseException as error:  # noqa: BLE001 - it is answered
                self._report(order, error)
            else:
                ready.append((order, workload))
        return ready

    def _still_queued(self, orders: list[Ready]) -> list[Ready]:
        """Return the orders that are to be carried out; the others are answered.

        The rows are read anew however fresh the decisions are: within a second another scheduler's pod of
        such an attempt can have been refused by its node and deleted, and its name would be free again.
        """
        try:
            rows = self._store.rows([order.callback_id for order, _ in orders])
        except BaseException as error:  # noqa: BLE001 - it is answered
            for order, _ in orders:
                self._report(order, error)
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
