"""Puts the parts of one executor together. The only place that knows all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.executors.executor_loader import ExecutorLoader

from airflow_kubernetes_callbacks.api_clients import impatient
from airflow_kubernetes_callbacks.callback_store import CallbackStore
from airflow_kubernetes_callbacks.connection_test_store import ConnectionTestStore
from airflow_kubernetes_callbacks.connection_tests import ConnectionTests
from airflow_kubernetes_callbacks.controller import CallbackController
from airflow_kubernetes_callbacks.errors import ExecutorConflictError
from airflow_kubernetes_callbacks.launch_plan import LaunchPlanner
from airflow_kubernetes_callbacks.metrics import CallbackMetrics
from airflow_kubernetes_callbacks.pod_client import PodClient
from airflow_kubernetes_callbacks.pod_launcher import CallbackKubernetesScheduler
from airflow_kubernetes_callbacks.pod_requests import Requests
from airflow_kubernetes_callbacks.routing import ExecutorEntry
from airflow_kubernetes_callbacks.version_compat import EXECUTION_API_OWNS_RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_kubernetes_callbacks.rules import PodRules
    from airflow_kubernetes_callbacks.settings import CallbackSettings
    from airflow_kubernetes_callbacks.slots import ExecutorSlots
    from airflow_kubernetes_callbacks.traces import CallbackTraces

STOCK_MODULE_PATH = "airflow.providers.cncf.kubernetes.executors.kubernetes_executor.KubernetesExecutor"
OWN_MODULE_PATH = "airflow_kubernetes_callbacks.KubernetesExecutor"


def configured_executors() -> list[ExecutorEntry]:
    """Return the executors of ``[core] executor`` in their order."""
    return [
        ExecutorEntry(name.module_path, name.alias, name.team_name)
        for name in ExecutorLoader.get_executor_names()
    ]


def refuse_beside_stock(executor_class: type) -> None:
    """Make sure that no stock KubernetesExecutor runs in the same scheduler.

    :raises ExecutorConflictError: it does. Its watcher selects pods by the scheduler's job id, so it
        would meet callback pods, and dies on the first one.
    """
    if any(entry.module_path == STOCK_MODULE_PATH for entry in configured_executors()):
        raise ExecutorConflictError(
            f"[core] executor names the stock KubernetesExecutor beside {executor_class.__module__}."
            f"{executor_class.__name__}. The stock one fails on the pods of callbacks. Name only this one; it runs "
            f"tasks as the stock one does: 'KubernetesExecutor:{OWN_MODULE_PATH}' (the alias keeps Dags that "
            'say executor="KubernetesExecutor" working).'
        )


def stock_namespaces(kube_config: Any) -> list[str] | None:
    """Return the namespaces that the stock watchers cover; None for the whole cluster."""
    if not kube_config.multi_namespace_mode:
        return [kube_config.kube_namespace]
    listed: list[str] | None = kube_config.multi_namespace_mode_namespace_list
    return list(listed) if listed else None


def callback_namespaces(kube_config: Any, rules: PodRules) -> list[str] | None:
    """Return the namespaces in which callback pods may be; None for the whole cluster."""
    stock = stock_namespaces(kube_config)
    return None if stock is None else sorted({*stock, *rules.namespaces})


def pod_client(core: Any, kube_config: Any, rules: PodRules, *, connections: int = 1) -> PodClient:
    """Build what makes the requests about callback pods; *core* is the executor's client.

    From *connections* threads it makes launches, and from as many other requests; a connection that is not
    kept for the next one costs more than the request.

    It waits at most a minute for an answer, so that a list that hangs does not hold up the reconciler.
    Retries that the deployment has configured are left as they are.
    """
    if not conf.getjson("kubernetes_executor", "api_client_retry_configuration", fallback={}):
        core = impatient(core, repeats=1, connections=2 * connections)
    return PodClient(
        core,
        namespaces=callback_namespaces(kube_config, rules),
        request_args=kube_config.kube_client_request_args,
    )


def launcher_class(
    executor: Any, settings: CallbackSettings, rules: PodRules
) -> Callable[..., CallbackKubernetesScheduler]:
    """Return what the parent's ``start()`` is to build in place of the stock launcher."""

    def build(*args: Any, kube_client: Any, kube_config: Any, **kwargs: Any) -> CallbackKubernetesScheduler:
        client = pod_client(kube_client, kube_config, rules, connections=settings.launch_concurrency)
        return CallbackKubernetesScheduler(
            *args,
            kube_client=kube_client,
            kube_config=kube_config,
            planner=build_planner(executor, settings, rules, client),
            callback_pods=client,
            extra_namespaces=[
                name for name in client.namespaces or () if name not in (stock_namespaces(kube_config) or ())
            ],
            **kwargs,
        )

    return build


def build_planner(
    executor: Any, settings: CallbackSettings, rules: PodRules, client: PodClient
) -> LaunchPlanner:
    """Build what plans the pods of this executor's callbacks; the command line uses it too."""
    from airflow.settings import get_policy_plugin_manager, pod_mutation_hook

    kube_config = executor.kube_config
    return LaunchPlanner(
        settings=settings,
        rules=rules,
        me=str(executor.job_id),
        namespace=kube_config.kube_namespace,
        watched_namespaces=client.namespaces,
        stock_template=kube_config.pod_template_file,
        kube_image=kube_config.kube_image,
        fresh_token=partial(_fresh_token, executor, settings),
        may_create_secrets=lambda namespace: client.may("create", "secrets", namespace),
        hook=pod_mutation_hook,
        has_hook=bool(get_policy_plugin_manager().hook.pod_mutation_hook.get_hookimpls()),
        executor_names=_names(executor),
        team=executor.team_name,
        execution_timeout=conf.getint("callbacks", "callback_execution_timeout", fallback=0),
    )


def _names(executor: Any) -> tuple[str, ...]:
    path = executor.name.module_path if executor.name else OWN_MODULE_PATH
    alias = executor.name.alias if executor.name else None
    return tuple(dict.fromkeys(name for name in (alias, path.rpartition(".")[2], path) if name))


def _fresh_token(executor: Any, settings: CallbackSettings, callback_id: str, wide: bool) -> str:
    """Return a token for one launch.

    On Airflow 3.3 the token of a callback may not read Connections and Variables (the execution API
    answers 403), whatever the executor; one with the scope of a task may. From 3.4 on the pod itself
    exchanges its token for such a one.
    """
    from airflow.executors.workloads import ExecuteCallback

    if EXECUTION_API_OWNS_RUNNING or not wide:
        return ExecuteCallback.generate_token(callback_id, executor.jwt_generator)
    lifetime = conf.getint("execution_api", "jwt_expiration_time") + settings.pending_timeout
    token: str = executor.jwt_generator.generate(
        {"sub": callback_id, "scope": "execution"}, valid_for=lifetime
    )
    return token


def _own_entry(executor: Any, entries: list[ExecutorEntry]) -> ExecutorEntry:
    name = executor.name
    if name is not None:
        return ExecutorEntry(name.module_path, name.alias, name.team_name)
    return entries[0]


def build_controller(
    executor: Any, slots: ExecutorSlots, settings: CallbackSettings, rules: PodRules
) -> CallbackController:
    """Build the controller for a started executor."""
    entries = configured_executors()
    store = CallbackStore(
        entries,
        _own_entry(executor, entries),
        multi_team=conf.getboolean("core", "multi_team", fallback=False),
        namespace_of=executor.kube_scheduler.planner.namespace_of,
    )
    kube_config = executor.kube_config
    client = pod_client(executor.kube_client, kube_config, rules, connections=settings.launch_concurrency)
    requests = Requests(
        client=client,
        store=store,
        launcher=executor.kube_scheduler,
        token_generator=lambda: executor.jwt_generator,
        me=str(executor.job_id),
        concurrency=settings.launch_concurrency,
        batch_size=kube_config.worker_pods_creation_batch_size if kube_config.async_pod_creation else 1,
        log_folder=conf.get("logging", "base_log_folder") if settings.save_logs else None,
        log_limit=settings.log_limit_bytes,
    )
    return CallbackController(
        settings=settings,
        me=str(executor.job_id),
        executor=slots,
        store=store,
        client=client,
        clock=executor.kube_scheduler.clock,
        requests=requests,
        metrics=CallbackMetrics(executor.team_name, _traces(requests, store)),
        api_owns_running=EXECUTION_API_OWNS_RUNNING,
        keep_finished=not kube_config.delete_worker_pods,
        keep_failed=not kube_config.delete_worker_pods_on_failure,
    )


def _traces(requests: Requests, store: CallbackStore) -> CallbackTraces | None:
    if not conf.getboolean("traces", "otel_on", fallback=False):
        return None
    from airflow_kubernetes_callbacks.traces import CallbackTraces

    return CallbackTraces(requests.in_background, store.trace_carrier)


def build_connection_tests(executor: Any, settings: CallbackSettings, rules: PodRules) -> ConnectionTests:
    """Build what runs the connection tests of a started executor."""
    kube_config = executor.kube_config
    launcher: CallbackKubernetesScheduler = executor.kube_scheduler
    return ConnectionTests(
        client=pod_client(executor.kube_client, kube_config, rules),
        planner=launcher.planner,
        store=ConnectionTestStore(),
        settings=settings,
        serialize=executor.kube_client.api_client.sanitize_for_serialization,
        timeout=conf.getint("connection_test", "timeout", fallback=60),
        keep_finished=not kube_config.delete_worker_pods,
    )
