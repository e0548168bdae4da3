"""Runs connection tests as pods and frees their slots when they are over.

The pod reports the result itself, so nothing is watched: while tests are under way, a list every
:data:`INTERVAL` seconds finds the pods that have ended. Now and then the same list finds pods that a
scheduler left behind which is no more.

The scheduler's thread hands over orders and takes back the ids of tests that are over. Everything else
belongs to one worker thread, which makes one pass at a time over orders, pods and rows.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify
from airflow_kubernetes_callbacks.connection_test import (
    LEFTOVER_GRACE,
    Progress,
    Step,
    active_deadline,
    decide_test,
    end_reason,
    is_leftover,
    start_limit,
    waits_with_an_error,
)
from airflow_kubernetes_callbacks.identity import connection_test_id_of
from airflow_kubernetes_callbacks.launch_failure import launch_failure
from airflow_kubernetes_callbacks.payload import SecretPayload
from airflow_kubernetes_callbacks.pod_launcher import create_secret
from airflow_kubernetes_callbacks.reason import could_not_start
from airflow_kubernetes_callbacks.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kubernetes.client import models as k8s

    from airflow_kubernetes_callbacks.connection_test_store import ConnectionTestStore
    from airflow_kubernetes_callbacks.launch_plan import LaunchPlanner
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient
    from airflow_kubernetes_callbacks.settings import CallbackSettings

T = TypeVar("T")

log = logging.getLogger(__name__)

#: Seconds between two looks at the pods of tests that are under way.
INTERVAL = 2.0
#: Seconds between two looks for leftovers, where there are no pods that others started.
SWEEP_INTERVAL = 300.0


@dataclass(slots=True)
class _Flight:
    """One test that this executor runs; times are monotonic seconds."""

    workload: Any
    submitted: float
    pod: PodView | None = None
    created: float = 0.0
    settled: float | None = None
    #: Since when its pod is seen to wait with an error.
    faulty_since: float | None = None


@dataclass(frozen=True, slots=True)
class _Cancel:
    test_id: str


class ConnectionTests:
    """The connection tests of one executor.

    :param serialize: returns a pod's model as JSON.
    :param timeout: ``[connection_test] timeout``, for pods whose workload is not known.
    :param keep_finished: pods that have ended are labelled, not deleted. Those of tests that failed are
        not kept by default, as those of tasks are: the row has the reason, and nobody else removes them.
    """

    def __init__(
        self,
        *,
        client: PodClient,
        planner: LaunchPlanner,
        store: ConnectionTestStore,
        settings: CallbackSettings,
        serialize: Callable[[k8s.V1Pod], dict[str, Any]],
        timeout: int,
        keep_finished: bool,
    ) -> None:
        self._client = client
        self._planner = planner
        self._store = store
        self._settings = settings
        self._serialize = serialize
        self._lifetime = float(active_deadline(timeout, settings) + settings.active_deadline_margin)
        self._keep_finished = keep_finished
        self._pool = WorkerPool(1, "connection-tests")
        self._orders: SimpleQueue[_Flight | _Cancel] = SimpleQueue()
        self._over: SimpleQueue[str] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._active: set[str] = set()
        self._next_pass = 0.0
        self._flights: dict[str, _Flight] = {}
        self._sweep_at = 0.0

    # In the scheduler's thread ---------------------------------------------------------------------

    def submit(self, workload: Any) -> None:
        """Run this test. Its pod is created by the next pass."""
        self._active.add(str(workload.connection_test_id))
        self._orders.put(_Flight(workload, time.monotonic()))

    def cancel(self, test_id: str) -> None:
        """End the test: core has failed it."""
        if test_id in self._active:
            self._active.discard(test_id)
            self._orders.put(_Cancel(test_id))

    def tick(self) -> list[str]:
        """Have a pass made if one is due; return the ids of tests that are over. Never waits."""
        over = list(_drain(self._over))
        self._active.difference_update(over)
        now = time.monotonic()
        due = now >= (self._next_pass if self._active else self._sweep_at)
        if self._idle.is_set() and (due or not self._orders.empty()):
            self._next_pass = now + INTERVAL
            self._idle.clear()
            self._pool.submit(self._pass)
        return over

    def stop(self) -> None:
        """Begin nothing more. Pods that run report their results all the same."""
        self._pool.stop()

    # In the worker thread --------------------------------------------------------------------------

    def _pass(self) -> None:
        try:
            for order in _drain(self._orders):
                if isinstance(order, _Flight):
                    self._flights[str(order.workload.connection_test_id)] = order
                else:
                    self._end_cancelled(order.test_id)
            for test_id, flight in list(self._flights.items()):
                if flight.pod is None:
                    self._try_create(test_id, flight)
            self._look()
        finally:
            self._idle.set()

    def _end_cancelled(self, test_id: str) -> None:
        flight = self._flights.pop(test_id, None)
        if flight is not None and flight.pod is not None:
            self._remove(flight.pod)

    def _try_create(self, test_id: str, flight: _Flight) -> None:
        try:
            flight.pod = self._create(flight.workload)
            flight.created = time.monotonic()
        except Exception as error:  # noqa: BLE001 - each error is this one test's, and is classified
            failure = launch_failure(error)
            if failure.retryable and time.monotonic() - flight.submitted < start_limit(
                flight.workload.timeout
            ):
                log.warning("Connection test %s: its pod cannot be created now: %s", test_id, failure.message)
                return
            self._fail(test_id, could_not_start(failure.message))
            self._forget(test_id)

    def _create(self, workload: Any) -> PodView:
        """Create the pod and its Secret; one that is there already is that of an earlier try."""
        plan = self._planner.plan_connection_test(workload)
        namespace, name = plan.pod.metadata.namespace, plan.pod.metadata.name
        log.info("Creating pod %s for %s", name, workload.display_name)
        try:
            view = self._client.create_pod(namespace, self._serialize(plan.pod), id_of=connection_test_id_of)
        except Exception as error:
            if classify(error).answer is not ApiAnswer.ALREADY_EXISTS:
                raise
            found = self._client.read_pod(namespace, name, id_of=connection_test_id_of)
            if found is None or found.deleting:
                raise  # its name comes free
            view = found
        if isinstance(plan.payload, SecretPayload) and view.started_at is None:
            create_secret(self._client, view, plan.secret_parts())
        return view

    def _look(self) -> None:
        """Compare pods with rows, and do what follows from it."""
        listed_at = time.monotonic()
        sweep = listed_at >= self._sweep_at
        if not self._flights and not sweep:
            return
        pods = self._pods()
        leftovers = self._leftovers(pods) if sweep and pods is not None else {}
        try:
            rows = self._store.progress({*self._flights, *leftovers})
        except Exception as error:  # noqa: BLE001 - any database driver's own errors; the next pass asks again
            log.warning("Rows of connection tests cannot be read now: %s: %s", type(error).__name__, error)
            return
        if sweep and pods is not None:
            strays = pods.keys() - self._flights.keys()
            self._sweep_at = listed_at + (LEFTOVER_GRACE if strays else SWEEP_INTERVAL)
        for test_id, flight in list(self._flights.items()):
            if flight.pod is not None and flight.created < listed_at:
                self._look_at(test_id, flight, rows[test_id], pods)
        for test_id, pod in leftovers.items():
            self._clear_away(test_id, pod, rows[test_id])

    def _pods(self) -> dict[str, PodView] | None:
        try:
            return {pod.callback_id: pod for pod in self._client.list_connection_tests()}
        except Exception as error:  # noqa: BLE001
            log.warning("Pods of connection tests cannot be listed now: %s", classify(error).message)
            return None

    def _leftovers(self, pods: dict[str, PodView]) -> dict[str, PodView]:
        now = time.time()
        return {
            test_id: pod
            for test_id, pod in pods.items()
            if test_id not in self._flights and is_leftover(pod, now, self._lifetime)
        }

    def _look_at(
        self, test_id: str, flight: _Flight, progress: Progress, pods: dict[str, PodView] | None
    ) -> None:
        now = time.monotonic()
        if progress is not Progress.ACTIVE:
            flight.settled = flight.settled or now
        elif pods is None:
            return
        pod = pods.get(test_id) if pods is not None else flight.pod
        flight.faulty_since = (flight.faulty_since or now) if waits_with_an_error(pod) else None
        decision = decide_test(
            pod,
            progress,
            waited=now - flight.submitted,
            faulty_for=now - (flight.faulty_since or now),
            settled_for=now - (flight.settled or now),
            timeout=flight.workload.timeout,
            error_grace=self._settings.start_error_grace,
        )
        if decision.step is Step.WAIT:
            return
        if decision.step is Step.FAIL:
            self._fail(test_id, decision.reason)
        if pod is not None:
            self._remove(pod)
        self._forget(test_id)

    def _clear_away(self, test_id: str, pod: PodView, progress: Progress) -> None:
        if progress is Progress.ABSENT:
            log.debug("Pod %s/%s is left alone: no such connection test here.", pod.namespace, pod.name)
            return
        log.info("Removing pod %s/%s of a connection test, which was left behind.", pod.namespace, pod.name)
        if progress is Progress.ACTIVE:
            self._fail(test_id, end_reason(pod))
        self._remove(pod)

    def _fail(self, test_id: str, reason: str) -> None:
        try:
            if self._store.fail(test_id, reason):
                log.warning("Connection test %s failed: %s", test_id, reason)
        except Exception as error:  # noqa: BLE001 - core fails it later, without the reason
            log.warning(
                "The failure of connection test %s (%s) cannot be recorded: %s: %s",
                test_id,
                reason,
                type(error).__name__,
                error,
            )

    def _remove(self, pod: PodView) -> None:
        """Delete the pod, or label it where such pods are kept; what fails is left to the next sweep."""
        try:
            if pod.outcome.terminal and self._keep_finished and not pod.still_runs:
                self._client.mark_done(pod)
            else:
                self._client.delete_pod(pod)
        except Exception as error:  # noqa: BLE001
            failure = classify(error)
            if failure.answer is not ApiAnswer.NOT_FOUND:
                log.warning("Pod %s/%s cannot be removed: %s", pod.namespace, pod.name, failure.message)

    def _forget(self, test_id: str) -> None:
        self._flights.pop(test_id, None)
        self._over.put(test_id)


def _drain(queue: SimpleQueue[T]) -> Iterator[T]:
    while True:
        try:
            yield queue.get_nowait()
        except Empty:
            return
