"""Callbacks for subclasses of the stock KubernetesExecutor (Airflow 3.3 and later)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils

from airflow_kubernetes_callbacks.api_clients import impatient
from airflow_kubernetes_callbacks.assembly import (
    build_connection_tests,
    build_controller,
    launcher_class,
    refuse_beside_stock,
)
from airflow_kubernetes_callbacks.rules import load_rules
from airflow_kubernetes_callbacks.settings import load_settings
from airflow_kubernetes_callbacks.slots import ExecutorSlots
from airflow_kubernetes_callbacks.version_compat import (
    CallbackKey,
    ConnectionTestKey,
    ExecuteCallback,
    TestConnection,
    callback_support_attributes,
    queued_callbacks_of,
    queued_connection_tests_of,
    substituted,
)
from airflow_kubernetes_callbacks.watcher import MOVED, RESYNC, view_from_plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    # For the type checker the mixin has the methods of the class that it is mixed into.
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor as _Base

    from airflow_kubernetes_callbacks.connection_tests import ConnectionTests
    from airflow_kubernetes_callbacks.controller import CallbackController
else:
    _Base = object

#: Connect and read timeout in seconds of the requests by which completed task pods are adopted.
TASK_ADOPTION_TIMEOUT = (2.0, 4.0)


class CallbackPodsMixin(_Base):
    """Mix in before a KubernetesExecutor: ``class X(CallbackPodsMixin, AwsEksExecutor)``.

    Nothing that a callback, its pod or the API server does raises out of the methods here: one bad
    callback costs itself only.
    """

    locals().update(callback_support_attributes())

    _callbacks: CallbackController | None = None
    _connection_tests: ConnectionTests | None = None
    _slots: ExecutorSlots | None = None
    #: Ids of callbacks that wait for ``max_active_callbacks``, in the order of their arrival.
    _parked: dict[str, None]

    def start(self) -> None:
        """Start the parent with a launcher and watchers that know callback pods, and look after them.

        :raises SettingsError: an option of ``[kubernetes_callbacks]`` cannot be used.
        :raises ExecutorConflictError: a stock KubernetesExecutor runs in the same scheduler.
        """
        refuse_beside_stock(type(self))
        settings = load_settings(self.conf)
        rules = load_rules(settings)
        launcher = launcher_class(self, settings, rules)
        with substituted(kubernetes_executor_utils, "AirflowKubernetesScheduler", launcher):
            super().start()
        self._parked = {}
        self._slots = ExecutorSlots(self, settings.max_active_callbacks)
        self._callbacks = build_controller(self, self._slots, settings, rules)
        self._connection_tests = build_connection_tests(self, settings, rules)

    def queue_workload(self, workload: Any, session: Any) -> None:
        """Queue the workload as core does; of a callback, remember that it is held here.

        A callback beyond ``max_active_callbacks`` is not queued but parked by its id alone: it takes no
        slot from tasks, and its workload is made anew when its turn comes.
        """
        if isinstance(workload, ExecuteCallback) and self._callbacks is not None:
            self._callbacks.hold(workload.callback.id)
            if self._slots is not None and not self._slots.within_budget():
                self._parked[workload.callback.id] = None
                return
        super().queue_workload(workload, session)

    def _process_workloads(self, workloads: Sequence[Any]) -> None:
        ours = (ExecuteCallback, TestConnection)
        tasks = [workload for workload in workloads if not isinstance(workload, ours)]
        for workload in workloads:
            if isinstance(workload, TestConnection):
                queued_connection_tests_of(self).pop(workload.key, None)
                if self._connection_tests is not None:
                    self.running.add(workload.key)
                    self._connection_tests.submit(workload)
            elif isinstance(workload, ExecuteCallback):
                queued_callbacks_of(self).pop(workload.key, None)
                self.running.add(workload.key)
                if self._callbacks is not None:
                    self._callbacks.submit(workload.callback.id, workload)
        if tasks:
            super()._process_workloads(tasks)

    def sync(self) -> None:
        """Sync tasks as the parent does, then do a bounded part of the work on callbacks."""
        super().sync()
        if self._callbacks is not None:
            with self._contained("the work on callbacks"):
                self._unpark(self._callbacks)
                self._callbacks.tick()
        if self._connection_tests is not None:
            with self._contained("the work on connection tests"):
                for test_id in self._connection_tests.tick():
                    self.running.discard(ConnectionTestKey(test_id))

    def fail_connection_test(self, key: Any) -> None:
        """Forget the test, which core has failed, and end its pod."""
        super().fail_connection_test(key)
        if self._connection_tests is not None:
            self._connection_tests.cancel(str(key))

    def revoke_callback(self, key: Any) -> None:
        """End a callback whose row has ended, or is gone, at the next heartbeat; ``revoke_task`` for callbacks.

        A waiting one is not launched, a running one gets its grace period. Nothing happens to a callback whose
        row is still QUEUED or RUNNING. That a row has ended is noticed without this call too, at the next
        comparison and by whichever scheduler has the callback: so do ``airflow kubernetes-callbacks cancel``
        and a deleted Dag run, in other processes, reach it.

        :param key: the ``CallbackKey``, or the id.
        """
        if self._callbacks is not None:
            with self._contained(f"the revocation of callback {key}"):
                self._callbacks.look_at(str(UUID(str(key))))

    def _unpark(self, callbacks: CallbackController) -> None:
        while self._parked and self._slots is not None:
            callback_id = next(iter(self._parked))
            if not self._slots.try_occupy(callback_id):
                return
            del self._parked[callback_id]
            callbacks.submit(callback_id, None)

    def _adopt_completed_pods(self, kube_client: Any) -> None:
        """Adopt completed pods of tasks as the parent does, in bounded time.

        The parent does this in the scheduler's loop, from time to time, and waits for ever for an API
        server that does not answer, or ends the scheduler over one that refuses.
        """
        with self._contained("the adoption of completed task pods"):
            hurried = impatient(kube_client, repeats=0, timeout=TASK_ADOPTION_TIMEOUT)
            with substituted(self, "kube_client", hurried):
                super()._adopt_completed_pods(hurried)

    def _change_state(self, results: Any, **kwargs: Any) -> None:
        """Take a result: a callback's is news for the controller, any other is the parent's."""
        if not isinstance(results.key, CallbackKey):
            super()._change_state(results, **kwargs)
        elif self._callbacks is not None:
            with self._contained(f"the event of callback {results.key}"):
                self._take_callback_event(self._callbacks, results)

    def _take_callback_event(self, callbacks: CallbackController, results: Any) -> None:
        if results.state == RESYNC:
            callbacks.resync()
            return
        view = view_from_plain(results.failure_details)
        if results.state == MOVED:
            callbacks.moved(view)
        else:
            callbacks.observe(view)

    def end(self) -> None:
        """Shut down; callbacks whose pod is not created yet are found by the next scheduler."""
        if self._callbacks is not None:
            self._callbacks.stop()
        if self._connection_tests is not None:
            self._connection_tests.stop()
        super().end()

    @contextmanager
    def _contained(self, what: str) -> Iterator[None]:
        """The outer guard of the scheduler loop (design, invariant 6)."""
        try:
            yield
        except Exception:
            self.log.exception("Error in %s; it is tried again at the next heartbeat.", what)
