"""The API server accepts every pod and Secret that the package builds, up to the very limits."""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes.client.exceptions import ApiException

from airflow_kubernetes_callbacks.payload import (
    MAX_SECRET_BYTES,
    ArgumentPayload,
    SecretPayload,
    construct_payload_secret,
)
from airflow_kubernetes_callbacks.pod_identity import MAX_ANNOTATION_BYTES
from airflow_kubernetes_callbacks.pod_settings import PodSettings
from airflow_kubernetes_callbacks.pod_spec import construct_callback_pod
from kubernetes_tests.airflow_env import wait_for
from tests.callback_pods import GOLDEN, as_json, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kubernetes_tests.clusters import Cluster

ENFORCE = "pod-security.kubernetes.io/enforce"
GOLDEN_NAMES = sorted(path.stem for path in GOLDEN.glob("*.yaml"))

#: Their templates have containers beside the base container, or say that they run as root.
NOT_RESTRICTED = {
    "every_setting_on_helm_template",
    "helm_template",
    "security_context_none",
    "setting_labels_and_annotations",
    "setting_node_selector_and_tolerations",
    "setting_resources",
    "setting_service_account",
    "sidecars_and_restart_policy",
    "template_as_root",
}


@contextlib.contextmanager
def _namespace(cluster: Cluster, labels: dict[str, str]) -> Iterator[str]:
    name = f"acceptance-{secrets.token_hex(4)}"
    cluster.core.create_namespace({"metadata": {"name": name, "labels": labels}})
    try:
        yield name
    finally:
        cluster.core.delete_namespace(name)


@pytest.fixture(scope="module")
def free(cluster: Cluster) -> Iterator[str]:
    with _namespace(cluster, {}) as name:
        wait_for("the namespace is ready", lambda: _accepts(cluster, name), timeout=60)
        yield name


@pytest.fixture(scope="module")
def restricted(cluster: Cluster) -> Iterator[str]:
    with _namespace(cluster, {ENFORCE: "restricted"}) as name:
        wait_for("the namespace is ready", lambda: _accepts(cluster, name), timeout=60)
        yield name


def _accepts(cluster: Cluster, namespace: str) -> bool:
    """Tell whether the namespace has its default service account, without which no pod is accepted."""
    try:
        create(cluster, namespace, as_json(construct_callback_pod(request())))
    except ApiException:
        return False
    return True


def create(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> None:
    """Have the API server look at the pod as if it were created."""
    spec = {
        key: value
        for key, value in pod["spec"].items()
        if key not in ("serviceAccountName", "priorityClassName")
    }
    pod = {**pod, "metadata": {**pod["metadata"], "namespace": namespace}, "spec": spec}
    cluster.core.create_namespaced_pod(namespace, pod, dry_run="All", field_validation="Strict")


def golden(name: str) -> dict[str, Any]:
    pod = yaml.safe_load((GOLDEN / f"{name}.yaml").read_text())
    assert isinstance(pod, dict)
    return pod


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_golden_pod_is_accepted(name: str, cluster: Cluster, free: str) -> None:
    create(cluster, free, golden(name))


@pytest.mark.parametrize("name", sorted(set(GOLDEN_NAMES) - NOT_RESTRICTED))
def test_golden_pod_passes_the_restricted_level(name: str, cluster: Cluster, restricted: str) -> None:
    create(cluster, restricted, golden(name))


@pytest.mark.parametrize("name", sorted(NOT_RESTRICTED))
def test_restricted_level_is_enforced(name: str, cluster: Cluster, restricted: str) -> None:
    with pytest.raises(ApiException) as refused:
        create(cluster, restricted, golden(name))

    assert refused.value.status == 403
    assert "violates PodSecurity" in json.loads(refused.value.body)["message"]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=250)


def test_pod_is_accepted_whatever_the_names_are(cluster: Cluster, restricted: str) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        dag_id=NAMES,
        run_id=NAMES,
        team=NAMES | st.none(),
        executor=NAMES | st.none(),
        callback_id=st.uuids(),
        attempt=st.integers(1, 10**6),
    )
    def accepted(callback_id: Any, **names: Any) -> None:
        wanted = request(callback_id=str(callback_id), callback_path=f"{names['dag_id']}.f", **names)
        create(cluster, restricted, as_json(construct_callback_pod(wanted)))

    accepted()


def test_longest_argument_is_accepted(cluster: Cluster, restricted: str) -> None:
    wanted = request(payload=ArgumentPayload("é" * 65_535 + "x"))

    create(cluster, restricted, as_json(construct_callback_pod(wanted)))


@pytest.mark.parametrize("over", [0, 1])
def test_limit_of_a_secret_is_the_servers(over: int, cluster: Cluster, free: str) -> None:
    secret = construct_payload_secret(
        SecretPayload("x" * (MAX_SECRET_BYTES + over)),
        namespace=free,
        labels={},
        pod_name=f"callback-{over}",
        pod_uid="00000000-0000-0000-0000-000000000000",
    )

    if over:
        with pytest.raises(ApiException, match="may not be more than 1048576 bytes"):
            cluster.core.create_namespaced_secret(free, secret)
    else:
        cluster.core.create_namespaced_secret(free, secret)


@pytest.mark.parametrize("over", [0, 1])
def test_limit_of_annotations_is_the_servers(over: int, cluster: Cluster, free: str) -> None:
    used = sum(
        len(key) + len(value) for key, value in golden("plain_template")["metadata"]["annotations"].items()
    )
    note = "x" * (MAX_ANNOTATION_BYTES - used - len("note"))
    pod = as_json(construct_callback_pod(request(settings=PodSettings(annotations={"note": note}))))
    pod["metadata"]["annotations"]["note"] += "x" * over

    if over:
        with pytest.raises(ApiException, match="may not be more than 262144 bytes"):
            create(cluster, free, pod)
    else:
        create(cluster, free, pod)
