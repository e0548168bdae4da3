"""From a workload to the pod that runs it: token, payload, settings, template, mutation hook.

Nothing here talks to the API server. A template is read from its file, and again only when the file
has changed.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.payload import Payload, plan_payload
from airflow_kubernetes_callbacks.pod_settings import PodSettings
from airflow_kubernetes_callbacks.pod_spec import (
    PodRequest,
    apply_mutation_hook,
    construct_callback_pod,
    identity_labels,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kubernetes.client import models as k8s

    from airflow_kubernetes_callbacks.settings import CallbackSettings


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The pod of one launch, and what its Secret needs if it has one."""

    pod: k8s.V1Pod
    payload: Payload
    request: PodRequest

    def secret_parts(self) -> dict[str, Any]:
        """Return what :func:`~airflow_kubernetes_callbacks.payload.construct_payload_secret` needs."""
        return {
            "payload": self.payload,
            "callback_id": self.request.callback_id,
            "attempt": self.request.attempt,
            "labels": identity_labels(self.request),
        }


class TemplateFiles:
    """Pod templates by path, read anew when the file changes."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[float, k8s.V1Pod]] = {}

    def get(self, path: str) -> k8s.V1Pod:
        """Return the template in the file.

        :raises LaunchError: the file is absent or holds no pod; names the file and the remedy.
        """
        from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator

        if not path:
            raise LaunchError(
                "Could not start: no pod template is configured. Set [kubernetes_executor] pod_template_file."
            )
        try:
            changed = Path(path).stat().st_mtime
            known = self._read.get(path)
            if known is None or known[0] != changed:
                known = (changed, PodGenerator.deserialize_model_file(path))
                self._read[path] = known
        except Exception as error:
            raise LaunchError(
                f"Could not start: pod template {path} cannot be used ({type(error).__name__}: {error}). Correct "
                "the file, or [kubernetes_executor] pod_template_file; then run the callback again."
            ) from error
        if known[1].spec is None or not known[1].spec.containers:
            raise LaunchError(
                f"Could not start: pod template {path} has no containers. It needs one named 'base'."
            )
        return known[1]


@dataclass
class LaunchPlanner:
    """Plans launches for one executor.

    :param fresh_token: returns a new token for the callback's id.
    :param hook: the deployment's ``pod_mutation_hook``; called by one thread at a time.
    """

    settings: CallbackSettings
    me: str
    namespace: str
    stock_template: str
    kube_image: str | None
    watched_namespaces: Collection[str] | None
    fresh_token: Callable[[str], str]
    hook: Callable[[k8s.V1Pod], object]
    executor_name: str | None = None
    team: str | None = None
    execution_timeout: int = 0
    secrets_allowed: Callable[[str], bool] = lambda _namespace: False
    templates: TemplateFiles = field(default_factory=TemplateFiles)
    _hook_lock: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, workload: Any, attempt: int) -> LaunchPlan:
        """Return the pod for this launch, with a fresh token.

        :raises LaunchError: the callback cannot be launched like this, now or later.
        """
        data = workload.callback.data
        callback_id = workload.callback.id
        workload = workload.model_copy(update={"token": self.fresh_token(callback_id)})
        payload = plan_payload(workload.model_dump_json(), "argument", secrets_allowed=False)
        request = PodRequest(
            callback_id=callback_id,
            attempt=attempt,
            owner=self.me,
            dag_id=str(data.get("dag_id") or ""),
            run_id=_run_id(workload),
            callback_path=str(data.get("path") or ""),
            namespace=self.namespace,
            payload=payload,
            template=self.templates.get(self.stock_template),
            settings=PodSettings(),
            kube_image=self.kube_image,
            deadline_id=data.get("deadline_id"),
            team=self.team,
            executor=self.executor_name,
            finalizer=self.settings.pod_finalizer,
            watched_namespaces=self.watched_namespaces,
        )
        pod = construct_callback_pod(request)
        with self._hook_lock:
            pod = apply_mutation_hook(pod, self.hook, watched_namespaces=self.watched_namespaces)
        return LaunchPlan(pod, payload, request)


def _run_id(workload: Any) -> str:
    """Return the Dag run's id: the part of the log path between the Dag's id and the callback's."""
    parts = str(workload.log_path or "").split("/")
    return "/".join(parts[2:-1])
