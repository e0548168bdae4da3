"""Executor callbacks (Deadline Alerts with ``SyncCallback``) as pods on Airflow's KubernetesExecutor.

Importing the package is cheap: Airflow imports it for the provider's metadata in every process, so
the executor, and with it the Kubernetes client, is only loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.executor import CallbackPodsMixin, KubernetesExecutor

__all__ = ["CallbackPodsMixin", "KubernetesExecutor", "__version__"]


def __getattr__(name: str) -> Any:
    if name in ("CallbackPodsMixin", "KubernetesExecutor"):
        from airflow_kubernetes_callbacks import executor

        return getattr(executor, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
