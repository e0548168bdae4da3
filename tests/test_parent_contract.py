"""What the package uses of the stock provider and of core is there, and looks as it did.

When a new version moves something, the test that fails names it. Behaviour is tested elsewhere; here
it is names and signatures, so that an upgrade is understood in one line.
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
from airflow.executors import base_executor, workloads
from airflow.executors.base_executor import BaseExecutor
from airflow.executors.executor_loader import ExecutorLoader
from airflow.jobs.job import Job, JobState
from airflow.models.callback import Callback, CallbackKey, CallbackType, ExecutorCallback
from airflow.models.dag import DagModel
from airflow.models.log import Log
from airflow.providers.cncf.kubernetes.executors import kubernetes_executor, kubernetes_executor_utils
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor as Stock
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import (
    KubernetesJob,
    KubernetesResults,
    KubernetesWatch,
)
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import (
    AirflowKubernetesScheduler,
    KubernetesJobWatcher,
)
from airflow.providers.cncf.kubernetes.kube_config import KubeConfig
from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from airflow.utils.session import create_session
from airflow.utils.state import CallbackState
from kubernetes.client import AuthorizationV1Api, CoreV1Api

import airflow_kubernetes_callbacks
from airflow_kubernetes_callbacks.assembly import STOCK_MODULE_PATH
from airflow_kubernetes_callbacks.identity import DONE_LABEL, OWNER_LABEL, STOCK_EXECUTOR_LABEL
from airflow_kubernetes_callbacks.version_compat import EXECUTION_API_OWNS_RUNNING, HAS_WORKLOAD_TYPES


class SeamMovedError(AssertionError):
    """Something that this package uses is not where it was."""


def seam(owner: Any, name: str, *parameters: str) -> Any:
    """Return the attribute; its parameters, as far as named, have to be these and in this order.

    ``name=`` stands for one with a default, ``*`` before a name for keyword-only, ``**`` for any keywords.
    """
    where = (
        f"{getattr(owner, '__module__', None) or 'module'}.{getattr(owner, '__qualname__', owner.__name__)}"
    )
    if not hasattr(owner, name):
        raise SeamMovedError(f"{where} has no {name!r} any more; airflow_kubernetes_callbacks uses it")
    found = inspect.getattr_static(owner, name)
    function = found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    if parameters:
        present = _written(inspect.signature(inspect.unwrap(function)))
        if present[: len(parameters)] != list(parameters):
            raise SeamMovedError(
                f"{where}.{name} takes ({', '.join(present)}) now; airflow_kubernetes_callbacks expects "
                f"({', '.join(parameters)})"
            )
    return found


def _written(signature: inspect.Signature) -> list[str]:
    written = []
    for parameter in signature.parameters.values():
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**", parameter.KEYWORD_ONLY: "*"}
        suffix = "=" if parameter.default is not parameter.empty else ""
        written.append(prefix.get(parameter.kind, "") + parameter.name + suffix)
    return written


def refers_to(function: Any, name: str) -> None:
    """Make sure that the function looks *name* up when it is called, not before."""
    code = inspect.unwrap(function).__code__
    if name not in (*code.co_names, *code.co_varnames):
        raise SeamMovedError(
            f"{function.__qualname__} does not name {name} any more: it cannot be substituted"
        )


SEAMS = [
    (Stock, "__init__", ("self", "*args", "**kwargs")),
    (Stock, "start", ("self",)),
    (Stock, "sync", ("self",)),
    (Stock, "end", ("self",)),
    (Stock, "queue_workload", ("self", "workload", "session")),
    (Stock, "_process_workloads", ("self", "workloads")),
    (Stock, "_change_state", ("self", "results", "*session=")),
    (Stock, "fail", ("self", "key", "info=")),
    (Stock, "success", ("self", "key", "info=")),
    (Stock, "running_state", ("self", "key", "info=")),
    (Stock, "slots_available", ()),
    (Stock, "jwt_generator", ()),
    (
        AirflowKubernetesScheduler,
        "__init__",
        (
            "self",
            "kube_config",
            "result_queue",
            "kube_client",
            "scheduler_job_id",
            "team_name=",
            "supports_task_instance_uuid=",
        ),
    ),
    (AirflowKubernetesScheduler, "run_next", ("self", "next_job")),
    (AirflowKubernetesScheduler, "run_next_batch", ("self", "next_jobs")),
    (AirflowKubernetesScheduler, "_build_pod_request", ("self", "next_job")),
    (AirflowKubernetesScheduler, "run_pod_async", ("self", "pod", "**kwargs")),
    (AirflowKubernetesScheduler, "_run_pods_async", ("self", "jobs_and_pods")),
    (AirflowKubernetesScheduler, "_make_kube_watcher", ("self", "namespace")),
    (AirflowKubernetesScheduler, "_make_kube_watchers", ("self",)),
    (AirflowKubernetesScheduler, "process_watcher_task", ("self", "task")),
    (AirflowKubernetesScheduler, "terminate", ("self",)),
    (
        KubernetesJobWatcher,
        "__init__",
        (
            "self",
            "namespace",
            "watcher_queue",
            "resource_version",
            "scheduler_job_id",
            "kube_config",
            "supports_task_instance_uuid=",
            "team_name=",
        ),
    ),
    (KubernetesJobWatcher, "run", ("self",)),
    (KubernetesJobWatcher, "_pod_events", ("self", "kube_client", "query_kwargs")),
    (
        KubernetesJobWatcher,
        "_run",
        ("self", "kube_client", "resource_version", "scheduler_job_id", "kube_config"),
    ),
    (PodGenerator, "reconcile_pods", ("base_pod", "client_pod")),
    (PodGenerator, "deserialize_model_dict", ("pod_dict",)),
    (ExecutorLoader, "get_executor_names", ("cls", "validate_teams=")),
    (workloads.ExecuteCallback, "make", ("cls", "callback", "dag_run")),
    (workloads.ExecuteCallback, "generate_token", ()),
    (DagModel, "get_team_name", ("dag_id", "*session=")),
    (CoreV1Api, "create_namespaced_pod", ("self", "namespace", "body", "**kwargs")),
    (CoreV1Api, "create_namespaced_secret", ("self", "namespace", "body", "**kwargs")),
    (CoreV1Api, "read_namespaced_pod", ("self", "name", "namespace", "**kwargs")),
    (CoreV1Api, "patch_namespaced_pod", ("self", "name", "namespace", "body", "**kwargs")),
    (CoreV1Api, "delete_namespaced_pod", ("self", "name", "namespace", "**kwargs")),
    (CoreV1Api, "list_namespaced_pod", ("self", "namespace", "**kwargs")),
    (CoreV1Api, "list_pod_for_all_namespaces", ("self", "**kwargs")),
    (CoreV1Api, "read_namespaced_pod_log", ("self", "name", "namespace", "**kwargs")),
    (CoreV1Api, "list_namespaced_event", ("self", "namespace", "**kwargs")),
    (AuthorizationV1Api, "create_self_subject_access_review", ("self", "body", "**kwargs")),
]


@pytest.mark.parametrize(
    ("owner", "name", "parameters"), SEAMS, ids=[f"{owner.__name__}.{name}" for owner, name, _ in SEAMS]
)
def test_seam_is_where_it_was(owner, name, parameters):
    seam(owner, name, *parameters)


def test_moved_seam_is_named_with_what_was_expected():
    with pytest.raises(SeamMovedError, match="KubernetesExecutor has no 'teleport' any more"):
        seam(Stock, "teleport")
    with pytest.raises(
        SeamMovedError, match=r"_change_state takes \(self, results, \*session=\) now.*expects"
    ):
        seam(Stock, "_change_state", "self", "outcome")
    with pytest.raises(SeamMovedError, match="Warp"):
        refers_to(Stock.start, "Warp")


def test_watch_stream_is_still_the_first_way_to_events_that_the_watcher_takes():
    refers_to(KubernetesJobWatcher._run, "_pod_events")
    refers_to(KubernetesJobWatcher.run, "_run")


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Stock.start, "AirflowKubernetesScheduler"),
        (AirflowKubernetesScheduler._make_kube_watcher, "KubernetesJobWatcher"),
    ],
    ids=["launcher", "watcher"],
)
def test_class_is_looked_up_in_the_module_where_it_is_substituted(function, name):
    refers_to(function, name)
    assert hasattr(kubernetes_executor_utils, name)
    if function is Stock.start:
        assert name not in vars(kubernetes_executor), (
            f"{name} is imported at the top of kubernetes_executor now"
        )


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (KubernetesJob, ("key", "command", "kube_executor_config", "pod_template_file")),
        (
            KubernetesResults,
            ("key", "state", "pod_name", "namespace", "resource_version", "failure_details"),
        ),
        (
            KubernetesWatch,
            ("pod_name", "namespace", "state", "annotations", "resource_version", "failure_details"),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_messages_of_the_stock_executor_have_these_fields_in_this_order(kind, fields):
    assert kind._fields[: len(fields)] == fields
    assert set(kind._fields[len(fields) :]) <= set(kind._field_defaults)


@pytest.mark.parametrize(
    "name",
    [
        "async_pod_creation",
        "delete_worker_pods",
        "delete_worker_pods_on_failure",
        "kube_client_request_args",
        "kube_image",
        "kube_namespace",
        "multi_namespace_mode",
        "multi_namespace_mode_namespace_list",
        "parallelism",
        "pod_template_file",
        "worker_pods_creation_batch_size",
    ],
)
def test_kube_config_has(name):
    assert hasattr(KubeConfig(), name), f"KubeConfig has no {name} any more"


@pytest.mark.parametrize(
    "name",
    [
        "_task_event_logs",
        "conf",
        "event_buffer",
        "job_id",
        "kube_client",
        "kube_config",
        "kube_scheduler",
        "name",
        "running",
        "slots_available",
        "task_queue",
        "result_queue",
        "team_name",
    ],
)
def test_stock_executor_that_is_not_started_has(name):
    assert hasattr(Stock(), name), f"the stock KubernetesExecutor has no {name} any more"


def test_labels_of_the_stock_executor_are_the_ones_that_are_avoided_or_shared():
    source = inspect.getsource(kubernetes_executor)
    assert f'"{STOCK_EXECUTOR_LABEL}=True' in source
    assert OWNER_LABEL in source
    assert DONE_LABEL == kubernetes_executor_utils.POD_EXECUTOR_DONE_KEY
    assert f"{Stock.__module__}.{Stock.__qualname__}" == STOCK_MODULE_PATH


def test_stock_executor_still_has_no_callbacks_of_its_own():
    """The day it has, this package has to step aside: see the design, section 1."""
    if HAS_WORKLOAD_TYPES:
        assert workloads.WorkloadType.EXECUTE_CALLBACK not in Stock.supported_workload_types
    else:
        assert Stock.supports_callbacks is False


def test_batch_creation_answers_one_pair_per_job_in_order():
    """``run_next_batch`` returns ``(job, error or None)``; the launcher's answers rest on it."""
    annotation = inspect.signature(AirflowKubernetesScheduler.run_next_batch).return_annotation
    assert annotation == "list[tuple[KubernetesJob, Exception | None]]"
    annotation = inspect.signature(AirflowKubernetesScheduler._run_pods_async).return_annotation
    assert annotation == "list[Exception | None]"


# Core -----------------------------------------------------------------------------------------------


def test_session_can_be_one_that_is_not_the_schedulers_own():
    seam(inspect.getmodule(create_session), "create_session", "scoped=")


def test_callback_rows_have_the_columns_that_are_read():
    for column in ("id", "state", "type", "data", "output", "priority_weight"):
        assert column in Callback.__table__.columns, f"callback has no column {column} any more"
    assert CallbackType.EXECUTOR.value == "executor"
    assert issubclass(ExecutorCallback, Callback)


def test_callback_states_are_the_ones_that_are_sorted():
    assert {state.name for state in CallbackState} == {
        "SCHEDULED",
        "PENDING",
        "QUEUED",
        "RUNNING",
        "SUCCESS",
        "FAILED",
    }


def test_callback_key_is_a_value_with_the_id_in_it():
    assert [field.name for field in dataclasses.fields(CallbackKey)] == ["id"]
    assert CallbackKey("a") == CallbackKey("a")
    assert CallbackKey("a") != "a"
    assert hash(CallbackKey("a")) == hash(CallbackKey("a"))


def test_jobs_tell_which_schedulers_are_alive():
    for column in ("id", "job_type", "state", "latest_heartbeat"):
        assert column in Job.__table__.columns, f"job has no column {column} any more"
    assert JobState.RUNNING == "running"


def test_audit_log_takes_a_row_without_task():
    entry = Log(event="callback failed", dag_id="dag", run_id="run", extra="text")
    assert (entry.dag_id, entry.run_id, entry.task_id) == ("dag", "run", None)


def test_execution_api_owns_running_as_the_token_says():
    scope = getattr(workloads.ExecuteCallback, "token_scope", "workload")
    assert {"workload": False, "callback": True}[scope] is EXECUTION_API_OWNS_RUNNING


def test_every_attribute_of_the_base_executor_is_there():
    """G5: core asks any executor for any of these (apache/airflow#41891, #41525)."""
    ours = airflow_kubernetes_callbacks.KubernetesExecutor()
    expected = {name for name in dir(BaseExecutor()) if not name.startswith("__")}
    missing = {name for name in expected if name not in set(dir(ours))}
    assert not missing
    for name in expected - {"jwt_generator"}:
        if not isinstance(inspect.getattr_static(BaseExecutor, name, None), base_executor_flags()):
            getattr(ours, name)


def base_executor_flags() -> tuple[type, ...]:
    """Accessors that warn when they are read (3.4), properties over the same queues among them."""
    legacy = getattr(base_executor, "_LegacyWorkloadFlag", None)
    return (property, legacy) if legacy else ()


def test_overrides_take_what_the_parent_takes():
    mixin = airflow_kubernetes_callbacks.CallbackPodsMixin
    own = [name for name, value in vars(mixin).items() if inspect.isfunction(value) and hasattr(Stock, name)]
    assert {"start", "sync", "end", "queue_workload", "_process_workloads", "_change_state"} <= set(own)
    for name in own:
        theirs = inspect.signature(inspect.unwrap(getattr(Stock, name)))
        ours = inspect.signature(inspect.unwrap(getattr(mixin, name)))
        positional = [p.name for p in theirs.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        keywords = {p.name: None for p in theirs.parameters.values() if p.kind is p.KEYWORD_ONLY}
        ours.bind(*positional, **keywords)


def test_legacy_hooks_that_core_no_longer_calls_are_not_overridden():
    mixin = airflow_kubernetes_callbacks.CallbackPodsMixin
    for name in ("trigger_tasks", "trigger_connection_tests", "order_queued_tasks_by_priority"):
        assert name not in vars(mixin)
