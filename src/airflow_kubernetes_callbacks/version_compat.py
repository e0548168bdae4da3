"""Every branch on an Airflow version or capability.

Capabilities are asked of the installed code ("does it have this?"); version numbers are compared
only where the difference lies in another process (the worker image, the execution API).
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.executors.base_executor import BaseExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

try:
    from airflow.executors.workloads import ExecuteCallback as ExecuteCallback
    from airflow.executors.workloads import TestConnection as TestConnection
    from airflow.models.callback import CallbackKey as CallbackKey
    from airflow.models.connection_test import ConnectionTestKey as ConnectionTestKey
    from airflow.utils.state import CallbackState as CallbackState

    # Asked of the class's dictionary: on 3.4 reading the attribute itself warns.
    SUPPORTS_EXECUTOR_CALLBACKS = "supports_callbacks" in vars(BaseExecutor)
except ImportError:  # Airflow 3.2 and older know no callback workloads for executors
    SUPPORTS_EXECUTOR_CALLBACKS = False

try:
    from airflow.executors.workloads import WorkloadType

    HAS_WORKLOAD_TYPES = hasattr(BaseExecutor, "supported_workload_types")
except ImportError:
    HAS_WORKLOAD_TYPES = False

#: On Airflow 3.4 the pod itself moves the row from QUEUED to RUNNING (``PATCH
#: /execution/callbacks/{id}/run``) and an executor that writes RUNNING breaks it; on 3.3 nobody
#: but the executor does. The token scope of the workload tells which of the two it is.
EXECUTION_API_OWNS_RUNNING = (
    SUPPORTS_EXECUTOR_CALLBACKS and getattr(ExecuteCallback, "token_scope", "workload") == "callback"
)

if not SUPPORTS_EXECUTOR_CALLBACKS:
    ExecuteCallback = CallbackKey = CallbackState = None  # type: ignore[assignment,misc]
    TestConnection = ConnectionTestKey = None  # type: ignore[assignment,misc]


def callback_support_attributes() -> dict[str, Any]:
    """Return the class attributes by which an executor declares, on this Airflow, what it runs.

    3.3 reads the flags ``supports_callbacks`` and ``supports_connection_test``; 3.4 reads
    ``supported_workload_types`` and warns about the flags, so only one of the two ways may be taken.
    Empty below 3.3.
    """
    if HAS_WORKLOAD_TYPES:
        return {
            "supported_workload_types": frozenset(
                {
                    WorkloadType.EXECUTE_TASK,
                    WorkloadType.EXECUTE_CALLBACK,
                    WorkloadType.TEST_CONNECTION,
                }
            )
        }
    if SUPPORTS_EXECUTOR_CALLBACKS:
        return {"supports_callbacks": True, "supports_connection_test": True}
    return {}


def queued_callbacks_of(executor: Any) -> MutableMapping[Any, Any]:
    """Return the executor's own dictionary of queued callbacks (key to workload), to be changed in place."""
    if HAS_WORKLOAD_TYPES:
        queues: MutableMapping[Any, Any] = executor.executor_queues[WorkloadType.EXECUTE_CALLBACK]
        return queues
    queue: MutableMapping[Any, Any] = executor.queued_callbacks
    return queue


def queued_connection_tests_of(executor: Any) -> MutableMapping[Any, Any]:
    """Return the executor's own dictionary of queued connection tests, to be changed in place."""
    if HAS_WORKLOAD_TYPES:
        queues: MutableMapping[Any, Any] = executor.executor_queues[WorkloadType.TEST_CONNECTION]
        return queues
    queue: MutableMapping[Any, Any] = executor.queued_connection_tests
    return queue


@contextmanager
def substituted(module: object, name: str, replacement: Any) -> Iterator[None]:
    """Have *module* (or another object) offer *replacement* under *name* for the time of the block.

    The stock provider names the classes of its launcher and watcher in the middle of methods, with
    no other way to say which class to build (``KubernetesExecutor.start``, ``_make_kube_watcher``).
    """
    original = getattr(module, name)
    setattr(module, name, replacement)
    try:
        yield
    finally:
        setattr(module, name, original)
