"""What the API server refuses, and who may do what."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from kubernetes_tests.cluster.pods import container, pod, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.cluster.launcher import LocalCluster
    from kubernetes_tests.cluster.pods import Namespace

pytest_plugins = ["kubernetes_tests.cluster.fixtures"]


@pytest.fixture
def service_account(namespace: Namespace, local_cluster: LocalCluster) -> Iterator[client.CoreV1Api]:
    """A client that speaks for a service account without any rights."""
    namespace.core.create_namespaced_service_account(namespace.name, {"metadata": {"name": "worker"}})
    token = _token(namespace)
    configuration = client.Configuration()
    administrator = local_cluster.client()
    configuration.host = administrator.configuration.host
    configuration.ssl_ca_cert = administrator.configuration.ssl_ca_cert
    configuration.api_key = {"authorization": f"Bearer {token}"}
    administrator.close()
    with client.ApiClient(configuration) as api_client:
        yield client.CoreV1Api(api_client)


def _token(namespace: Namespace) -> str:
    request = {"spec": {"audiences": [], "expirationSeconds": 600}}
    answer = namespace.core.create_namespaced_service_account_token(
        "worker", namespace.name, request, _preload_content=False
    )
    token: str = json.loads(answer.data)["status"]["token"]
    return token


def test_requested_token_is_reviewed_as_its_service_account(
    namespace: Namespace, service_account: client.CoreV1Api
) -> None:
    review = client.AuthenticationV1Api(namespace.core.api_client).create_token_review(
        {"spec": {"token": _token(namespace)}}
    )
    assert review.status.authenticated
    assert review.status.user.username == f"system:serviceaccount:{namespace.name}:worker"


def test_forged_token_is_not_authenticated(namespace: Namespace, service_account: client.CoreV1Api) -> None:
    header, payload, signature = _token(namespace).split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["sub"] = "system:serviceaccount:kube-system:default"
    forged = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    review = client.AuthenticationV1Api(namespace.core.api_client).create_token_review(
        {"spec": {"token": f"{header}.{forged}.{signature}"}}
    )
    assert not review.status.authenticated


def test_service_account_may_do_what_its_role_says(
    namespace: Namespace, service_account: client.CoreV1Api, rbac: client.RbacAuthorizationV1Api
) -> None:
    with pytest.raises(ApiException) as raised:
        service_account.list_namespaced_pod(namespace.name)
    assert raised.value.status == 403
    message = json.loads(raised.value.body)["message"]
    assert f'"system:serviceaccount:{namespace.name}:worker" cannot list resource "pods"' in message

    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    rbac.create_namespaced_role(namespace.name, {"metadata": {"name": "lister"}, "rules": rules})
    rbac.create_namespaced_role_binding(
        namespace.name,
        {
            "metadata": {"name": "lister"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "lister"},
            "subjects": [{"kind": "ServiceAccount", "name": "worker", "namespace": namespace.name}],
        },
    )

    def allowed() -> bool:
        try:
            return bool(service_account.list_namespaced_pod(namespace.name).items == [])
        except ApiException:
            return False

    until("the role counts", allowed)
    with pytest.raises(ApiException) as refused:
        service_account.delete_namespaced_pod("any", namespace.name)
    assert refused.value.status == 403


def test_quota_refuses_the_pod_that_exceeds_it(namespace: Namespace) -> None:
    namespace.core.create_namespaced_resource_quota(
        namespace.name, {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}}
    )
    until(
        "the quota has a status",
        lambda: namespace.core.read_namespaced_resource_quota("few", namespace.name).status.hard,
    )
    namespace.create(pod("first", container("base", "sleep 60")))
    with pytest.raises(ApiException) as raised:
        namespace.create(pod("second", container("base", "sleep 60")))
    assert raised.value.status == 403
    assert "exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1" in raised.value.body
    namespace.delete("first", 0)

    def created() -> bool:
        try:
            return bool(namespace.create(pod("second", container("base", "exit 0"))))
        except ApiException as error:
            assert error.status == 403  # noqa: PT017 - any other refusal is a failure
            return False

    until("the quota is free again", created)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"hostNetwork": True}, "host namespaces (hostNetwork=true)", id="host_network"),
        pytest.param({}, "runAsNonRoot != true", id="no_security_context"),
    ],
)
def test_pod_security_refuses_what_the_namespace_does_not_allow(
    namespace: Namespace, spec: dict[str, Any], text: str
) -> None:
    namespace.core.patch_namespace(
        namespace.name, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )

    def refusal() -> str | None:
        try:
            namespace.core.create_namespaced_pod(
                namespace.name, pod("unsafe", container("base", "exit 0"), **spec), dry_run="All"
            )
        except ApiException as error:
            assert error.status == 403  # noqa: PT017
            return str(error.body)
        return None

    body = until("pod security counts", refusal)
    assert 'violates PodSecurity \\"restricted:latest\\"' in body
    assert text in body


def test_restricted_pod_runs(namespace: Namespace) -> None:
    namespace.core.patch_namespace(
        namespace.name, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 50000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    namespace.create(pod("safe", container("base", "exit 0", securityContext=security)))
    assert namespace.wait_for_end("safe")["status"]["phase"] == "Succeeded"


def test_finished_job_and_its_pod_are_removed_after_their_ttl(namespace: Namespace) -> None:
    template = pod("unused", container("base", "exit 0"))["spec"]
    batch = client.BatchV1Api(namespace.core.api_client)
    batch.create_namespaced_job(
        namespace.name,
        {"metadata": {"name": "job"}, "spec": {"ttlSecondsAfterFinished": 0, "template": {"spec": template}}},
    )
    until("the job's pod ran", lambda: namespace.core.list_namespaced_pod(namespace.name).items)
    until("the pod is gone", lambda: not namespace.core.list_namespaced_pod(namespace.name).items)
    until("the job is gone", lambda: not batch.list_namespaced_job(namespace.name).items)


def test_deleted_owner_takes_its_secret_with_it(namespace: Namespace) -> None:
    namespace.create(pod("owner", container("base", "sleep 60")))
    uid = (namespace.pod("owner") or {})["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": uid}
    namespace.core.create_namespaced_secret(
        namespace.name, {"metadata": {"name": "owned", "ownerReferences": [owner]}, "stringData": {"a": "b"}}
    )
    namespace.delete("owner", 0)
    until("the secret is gone", lambda: not namespace.core.list_namespaced_secret(namespace.name).items)
