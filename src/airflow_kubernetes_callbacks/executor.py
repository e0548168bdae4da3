"""The executor: the stock KubernetesExecutor, and callbacks as pods beside its tasks.

:class:`CallbackPodsMixin` adds callbacks to any subclass of the stock executor; each override hands
tasks on to its parent unchanged and callbacks to the
:class:`~airflow_kubernetes_callbacks.controller.CallbackController`. Below Airflow 3.3, where core
has no callbacks for executors, the class is the stock executor and nothing more.
"""

from __future__ import annotations

from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import (
    KubernetesExecutor as StockKubernetesExecutor,
)

from airflow_kubernetes_callbacks.version_compat import SUPPORTS_EXECUTOR_CALLBACKS

if SUPPORTS_EXECUTOR_CALLBACKS:
    from airflow_kubernetes_callbacks.mixin import CallbackPodsMixin as CallbackPodsMixin
else:

    class CallbackPodsMixin:  # type: ignore[no-redef]
        """Adds nothing: this Airflow has no callbacks for executors (they came with 3.3)."""


class KubernetesExecutor(CallbackPodsMixin, StockKubernetesExecutor):
    """Runs tasks as the stock KubernetesExecutor does, and callbacks as pods.

    The name is the stock one: metric names, routing by the last part of the class path and Helm's
    ``contains "KubernetesExecutor"`` go on working.
    """
