"""Below Airflow 3.3 the executor is the stock one: core has no callbacks that it could run."""

from __future__ import annotations

import inspect
from unittest import mock

import pytest
from airflow.executors.base_executor import BaseExecutor
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import (
    KubernetesExecutor as StockKubernetesExecutor,
)

import airflow_kubernetes_callbacks
from airflow_kubernetes_callbacks import version_compat
from airflow_kubernetes_callbacks.executor import CallbackPodsMixin, KubernetesExecutor

pytestmark = pytest.mark.skipif(
    version_compat.SUPPORTS_EXECUTOR_CALLBACKS, reason="this Airflow has executor callbacks"
)

#: What Python gives every class anew.
OF_EVERY_CLASS = {
    "__dict__",
    "__doc__",
    "__module__",
    "__weakref__",
    "__firstlineno__",
    "__static_attributes__",
}


def test_mixin_adds_nothing() -> None:
    assert set(vars(CallbackPodsMixin)) <= OF_EVERY_CLASS


def test_every_attribute_is_the_stock_executors_own() -> None:
    changed = {
        name
        for name in set(dir(KubernetesExecutor)) | set(dir(StockKubernetesExecutor))
        if name not in OF_EVERY_CLASS
        and inspect.getattr_static(KubernetesExecutor, name, None)
        is not inspect.getattr_static(StockKubernetesExecutor, name, None)
    }
    assert changed <= {"__init_subclass__", "__subclasshook__", "__abstractmethods__", "_abc_impl"}


def test_class_keeps_the_stock_name_and_is_offered_by_the_package() -> None:
    assert KubernetesExecutor.__name__ == StockKubernetesExecutor.__name__
    assert airflow_kubernetes_callbacks.KubernetesExecutor is KubernetesExecutor
    assert issubclass(KubernetesExecutor, StockKubernetesExecutor)


def test_executor_is_made_and_ended_like_the_stock_one() -> None:
    executor = KubernetesExecutor()
    assert isinstance(executor, BaseExecutor)
    executor.end()  # not started: nothing to end


def test_tasks_are_queued_as_the_stock_executor_queues_them() -> None:
    executor, stock = KubernetesExecutor(), StockKubernetesExecutor()
    assert executor.slots_available == stock.slots_available
    assert executor.queued_tasks == stock.queued_tasks == {}


def test_workload_that_is_no_task_is_refused_as_by_the_stock_executor() -> None:
    workload = mock.sentinel.workload
    with pytest.raises(Exception) as of_stock:
        StockKubernetesExecutor().queue_workload(workload, None)
    with pytest.raises(of_stock.type):
        KubernetesExecutor().queue_workload(workload, None)
