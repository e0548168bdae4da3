"""The deployment's ``pod_mutation_hook`` and what it may change in a callback's pod."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks import identity
from airflow_kubernetes_callbacks.errors import LaunchDelayedError, LaunchError
from airflow_kubernetes_callbacks.pod_identity import check_annotations, put_identity
from airflow_kubernetes_callbacks.pod_spec import base_container_of, never_restart
from airflow_kubernetes_callbacks.pod_template import FILE_ERRORS_FOR_GOOD

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kubernetes.client import models as k8s


def apply_mutation_hook(
    pod: k8s.V1Pod,
    hook: Callable[[k8s.V1Pod], object],
    *,
    watched_namespaces: Collection[str] | None = None,
) -> k8s.V1Pod:
    """Let the deployment's ``pod_mutation_hook`` change *pod*, and put back what makes it a callback pod.

    Put back: the name (it is what makes a launch happen once), identity labels and annotations,
    ``restartPolicy: Never`` of the pod and of its base container, the finalizer. Everything else that the
    hook does is respected, a changed namespace too if it is watched.

    :raises LaunchError: whatever else the hook raises (``SystemExit`` and a library's panic too), or if what
        it leaves is no pod that could run the callback.
    :raises LaunchDelayedError: the hook raises an ``OSError`` that is not about a file which is missing or may
        not be read: what it asks does not answer (those of ``requests`` are such errors too).
    """
    name, namespace = pod.metadata.name, pod.metadata.namespace
    labels = _reserved(pod.metadata.labels)
    annotations = _reserved(pod.metadata.annotations)
    finalizers = list(pod.metadata.finalizers or [])
    try:
        hook(pod)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # a person's, at the command line
        passing = isinstance(error, OSError) and not isinstance(error, FILE_ERRORS_FOR_GOOD)
        raised = LaunchDelayedError if passing else LaunchError
        raise raised(
            f"pod_mutation_hook failed for this callback's pod: {type(error).__name__}: {error}. A callback "
            f"pod has the label {identity.WORKLOAD_TYPE_LABEL}={identity.CALLBACK_WORKLOAD} and neither task_id "
            "nor try_number; make the hook in airflow_local_settings pass over what it does not know."
        ) from error
    _check_hooked(pod)
    if watched_namespaces is not None and pod.metadata.namespace not in watched_namespaces:
        raise LaunchError(_unwatched(pod.metadata.namespace, watched_namespaces, before_hook=namespace))
    pod.metadata.name, pod.metadata.generate_name = name, None
    pod.spec.restart_policy = "Never"
    never_restart(base_container_of(pod))
    put_identity(pod, labels, annotations)
    if identity.RESULT_FINALIZER in finalizers and identity.RESULT_FINALIZER not in (
        pod.metadata.finalizers or []
    ):
        pod.metadata.finalizers = [*(pod.metadata.finalizers or []), identity.RESULT_FINALIZER]
    check_annotations(pod)
    return pod


def _reserved(values: dict[str, str] | None) -> dict[str, str]:
    return {key: value for key, value in (values or {}).items() if key in identity.RESERVED_KEYS}


def _check_hooked(pod: k8s.V1Pod) -> None:
    if pod.metadata is None or pod.spec is None or not pod.spec.containers:
        raise LaunchError("pod_mutation_hook left a pod without metadata or containers; correct the hook.")
    for what in ("labels", "annotations"):
        if not isinstance(found := getattr(pod.metadata, what) or {}, dict):
            raise LaunchError(
                f"pod_mutation_hook left {what} of type {type(found).__name__}, not a dictionary; correct the hook."
            )


def _unwatched(namespace: str, watched: Collection[str], *, before_hook: str) -> str:
    told = (
        f"which this executor does not watch ({', '.join(sorted(watched))}): nobody would learn its result."
    )
    if namespace != before_hook:
        return (
            f"pod_mutation_hook put the pod into namespace {namespace!r}, {told} Use one of these, or add it to "
            "[kubernetes_executor] multi_namespace_mode_namespace_list."
        )
    return (
        f"The pod would go to namespace {namespace!r}, {told} Set [kubernetes_callbacks] namespace, or add "
        f"{namespace!r} to [kubernetes_executor] multi_namespace_mode_namespace_list."
    )
