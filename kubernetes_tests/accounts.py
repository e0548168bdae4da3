"""Service accounts that may do just what a test says, and kubeconfigs that speak for them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import yaml
from kubernetes import client

from kubernetes_tests.airflow_env import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kubernetes_tests.clusters import Cluster


def create_account(cluster: Cluster, namespace: str, name: str) -> None:
    """Make a service account that may do nothing."""
    cluster.core.create_namespaced_service_account(namespace, {"metadata": {"name": name}})


def grant(
    cluster: Cluster, namespace: str, role: Mapping[str, Any], *, account: str, account_namespace: str = ""
) -> None:
    """Make the Role in *namespace* and bind it to the account, and to nobody else."""
    rbac = client.RbacAuthorizationV1Api(cluster.core.api_client)
    document = copy.deepcopy(dict(role))
    document["metadata"]["namespace"] = namespace
    name = document["metadata"]["name"]
    rbac.create_namespaced_role(namespace, document)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": account_namespace or namespace}
    rbac.create_namespaced_role_binding(
        namespace,
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [subject],
        },
    )
    wait_until_granted(
        cluster, namespace, document, f"system:serviceaccount:{subject['namespace']}:{account}"
    )


def wait_until_granted(cluster: Cluster, namespace: str, role: Mapping[str, Any], user: str) -> None:
    """Wait until the API server's authorizer knows of the Role."""
    resource, verb = role["rules"][0]["resources"][0], role["rules"][0]["verbs"][0]
    attributes = {"namespace": namespace, "resource": resource, "verb": verb}
    review = {"spec": {"user": user, "resourceAttributes": attributes}}
    api = client.AuthorizationV1Api(cluster.core.api_client)

    def allowed() -> bool:
        return bool(api.create_subject_access_review(review).status.allowed)

    wait_for(f"{user} may {verb} {resource} in {namespace}", allowed, 30)


def write_kubeconfig(cluster: Cluster, namespace: str, account: str, path: Path) -> Path:
    """Write a kubeconfig whose every user is the service account, and return its path."""
    request = cluster.core.create_namespaced_service_account_token(
        account, namespace, {"spec": {"expirationSeconds": 3600}}
    )
    document = yaml.safe_load(cluster.kubeconfig.read_text())
    for user in document["users"]:
        user["user"] = {"token": request.status.token}
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    return path
