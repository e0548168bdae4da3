"""The cluster that a test run uses: local, kind or the current context, behind one small interface."""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kubernetes_tests.cluster.launcher import LocalCluster


@dataclass(frozen=True)
class Cluster:
    """A cluster that is up, and what pods need to know to run Airflow's workloads there.

    :param name: ``local``, ``kind`` or ``current-context``.
    :param image: image with Airflow, this package and the fixture Dags.
    :param host: address on which Airflow and the ledger of this run listen.
    :param host_from_pods: address at which pods reach them.
    :param environment: what the image does not know by itself.
    :param pod_security_context: what pods need to be allowed to start here.
    :param local: the launcher, for what only a local cluster can do to itself.
    """

    name: str
    kubeconfig: Path
    context: str | None
    image: str
    image_pull_policy: str
    host: str
    host_from_pods: str
    environment: dict[str, str] = field(default_factory=dict)
    pod_security_context: dict[str, Any] = field(default_factory=dict)
    local: LocalCluster | None = None

    @functools.cached_property
    def core(self) -> client.CoreV1Api:
        return client.CoreV1Api(
            config.new_client_from_config(config_file=str(self.kubeconfig), context=self.context)
        )

    @property
    def executor_config(self) -> dict[str, object]:
        """Options by which the executor finds the cluster and the image."""
        repository, _, tag = self.image.rpartition(":")
        options: dict[str, object] = {
            "kubernetes_executor.in_cluster": False,
            "kubernetes_executor.config_file": self.kubeconfig,
            "kubernetes_executor.worker_container_repository": repository,
            "kubernetes_executor.worker_container_tag": tag,
        }
        if self.context:
            options["kubernetes_executor.cluster_context"] = self.context
        return options

    def pod_template(self, environment: dict[str, str]) -> dict[str, Any]:
        """Return a pod template as a user would write it for this cluster."""
        variables = {**self.environment, **environment}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "placeholder"},
            "spec": {
                "restartPolicy": "Never",
                "securityContext": self.pod_security_context,
                "terminationGracePeriodSeconds": 5,
                "containers": [
                    {
                        "name": "base",
                        "image": self.image,
                        "imagePullPolicy": self.image_pull_policy,
                        "env": [{"name": name, "value": value} for name, value in variables.items()],
                    }
                ],
            },
        }

    @contextlib.contextmanager
    def namespace(self) -> Iterator[Namespace]:
        """Make a namespace and delete it, without waiting for that, at the end."""
        name = f"callbacks-{secrets.token_hex(4)}"
        self.core.create_namespace(
            client.V1Namespace(
                metadata=client.V1ObjectMeta(name=name, labels={"app": "airflow-kubernetes-callbacks-tests"})
            )
        )
        try:
            namespace = Namespace(self, name)
            namespace.wait_until_usable()
            yield namespace
        finally:
            self.core.delete_namespace(name, grace_period_seconds=0)


@dataclass(frozen=True)
class Namespace:
    """One namespace and the pods in it, as the API server's JSON."""

    cluster: Cluster
    name: str

    def wait_until_usable(self) -> None:
        """Wait until pods can be created: they need the namespace's default service account."""

        def ready() -> bool:
            try:
                self.cluster.core.read_namespaced_service_account("default", self.name)
            except ApiException as error:
                if error.status != 404:
                    raise
                return False
            return True

        wait_for(f"service account of namespace {self.name}", ready, 60)

    def pods(self, selector: str = "") -> list[dict[str, Any]]:
        answer = self.cluster.core.list_namespaced_pod(
            self.name, label_selector=selector, _preload_content=False
        )
        items: list[dict[str, Any]] = json.loads(answer.data)["items"]
        return items

    def callback_pods(self) -> list[dict[str, Any]]:
        return self.pods("airflow-workload-type=callback")

    def pod_of(self, callback_id: str) -> dict[str, Any] | None:
        """Return the newest pod of the callback, if there is one."""
        pods = [
            pod
            for pod in self.callback_pods()
            if pod["metadata"].get("annotations", {}).get("callback_id") == callback_id
        ]
        return max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None)

    def secrets(self) -> list[dict[str, Any]]:
        answer = self.cluster.core.list_namespaced_secret(self.name, _preload_content=False)
        items: list[dict[str, Any]] = json.loads(answer.data)["items"]
        return items

    def events(self) -> list[dict[str, Any]]:
        answer = self.cluster.core.list_namespaced_event(self.name, _preload_content=False)
        items: list[dict[str, Any]] = json.loads(answer.data)["items"]
        return items

    def delete_pod(self, name: str, *, grace_seconds: int | None = None) -> None:
        self.cluster.core.delete_namespaced_pod(name, self.name, grace_period_seconds=grace_seconds)

    def patch_pod(self, name: str, patch: object) -> None:
        self.cluster.core.patch_namespaced_pod(name, self.name, patch)

    def describe(self) -> str:
        """Return pods and events as text, for the message of a failure."""
        lines = [f"--- pods in {self.name}"]
        for pod in self.pods():
            statuses = pod["status"].get("containerStatuses", [])
            states = {status["name"]: status["state"] for status in statuses}
            lines.append(
                f"{pod['metadata']['name']} {pod['status'].get('phase')} {json.dumps(states)}"
                f" deleting={pod['metadata'].get('deletionTimestamp')}"
            )
        for event in self.events()[-20:]:
            lines.append(
                f"{event.get('lastTimestamp')} {event['involvedObject'].get('name')}"
                f" {event.get('reason')}: {event.get('message')}"
            )
        return "\n".join(lines)


def write_template(path: Path, template: object) -> Path:
    path.write_text(yaml.safe_dump(template, sort_keys=False))
    return path


def seconds_since(start: float) -> str:
    return f"{time.monotonic() - start:.1f} s"
