"""What a container finds: variables, volumes, files, arguments, and how to reach the API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_tests.cluster.pods import ENTRYPOINT_IMAGE, PYTHON, container, pod

if TYPE_CHECKING:
    from kubernetes_tests.cluster.pods import Namespace

pytest_plugins = ["kubernetes_tests.cluster.fixtures"]

SHOW = f"{PYTHON} -c 'import json, os; print(json.dumps(dict(os.environ)))'"


@pytest.fixture(scope="module")
def objects(shared_namespace: Namespace) -> Namespace:
    """A namespace with a Secret and a ConfigMap."""
    core, name = shared_namespace.core, shared_namespace.name
    core.create_namespaced_secret(
        name, {"metadata": {"name": "secret"}, "stringData": {"user": "amy", "password": "pass word"}}
    )
    core.create_namespaced_config_map(
        name, {"metadata": {"name": "map"}, "data": {"color": "blue", "size": "9"}}
    )
    return shared_namespace


def _environment(namespace: Namespace, name: str, **fields: Any) -> dict[str, str]:
    made = pod(name, container("base", SHOW, **fields))
    made["metadata"]["labels"] = {"role": "tester"}
    made["metadata"]["annotations"] = {"note": "kept in full"}
    namespace.create(made)
    namespace.wait_for_end(name)
    found: dict[str, str] = json.loads(namespace.log(name))
    return found


def _variable(name: str, **source: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": source}


def test_variables_come_from_every_source(objects: Namespace) -> None:
    environment = _environment(
        objects,
        "variables",
        resources={"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "512Mi"}},
        envFrom=[{"secretRef": {"name": "secret"}, "prefix": "S_"}, {"configMapRef": {"name": "map"}}],
        env=[
            {"name": "LITERAL", "value": "a b"},
            {"name": "EXPANDED", "value": "<$(LITERAL)> $$(LITERAL)"},
            _variable("SECRET", secretKeyRef={"name": "secret", "key": "user"}),
            _variable("MAP", configMapKeyRef={"name": "map", "key": "color"}),
            _variable("OPTIONAL", secretKeyRef={"name": "absent", "key": "k", "optional": True}),
            _variable("POD", fieldRef={"fieldPath": "metadata.name"}),
            _variable("NAMESPACE", fieldRef={"fieldPath": "metadata.namespace"}),
            _variable("ROLE", fieldRef={"fieldPath": "metadata.labels['role']"}),
            _variable("NOTE", fieldRef={"fieldPath": "metadata.annotations['note']"}),
            _variable("NODE", fieldRef={"fieldPath": "spec.nodeName"}),
            _variable("IP", fieldRef={"fieldPath": "status.podIP"}),
            _variable("CPU", resourceFieldRef={"resource": "limits.cpu"}),
            _variable("MEMORY", resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"}),
        ],
    )
    expected = {
        "LITERAL": "a b",
        "EXPANDED": "<a b> $(LITERAL)",
        "SECRET": "amy",
        "MAP": "blue",
        "S_user": "amy",
        "S_password": "pass word",
        "color": "blue",
        "size": "9",
        "POD": "variables",
        "NAMESPACE": objects.name,
        "ROLE": "tester",
        "NOTE": "kept in full",
        "NODE": "127.0.0.1",
        "CPU": "2",
        "MEMORY": "512",
        "HOSTNAME": "variables",
    }
    assert {name: environment.get(name) for name in expected} == expected
    assert "OPTIONAL" not in environment
    assert environment["IP"].startswith("127.")


def test_environment_of_the_machine_is_not_inherited(
    objects: Namespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = _environment(objects, "clean")
    left = {name for name in environment if not name.startswith(("KUBERNETES_", "LOCAL_CLUSTER_"))}
    assert left <= {"HOME", "HOSTNAME", "LC_CTYPE", "PATH", "PWD", "OLDPWD", "SHLVL", "_"}


def test_volumes_are_at_their_mount_paths(objects: Namespace) -> None:
    made = pod(
        "volumes",
        container(
            "base",
            "set -e; cd /opt/volumes; cat secret/user map/renamed one; echo; cat /etc/podinfo/labels; echo;"
            " cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; cat projected/a projected/b; echo;"
            " test ! -e secret/absent; echo written > empty/file; cat empty/file; ls empty; test -s projected/token",
            volumeMounts=[
                {"name": "secret", "mountPath": "/opt/volumes/secret", "readOnly": True},
                {"name": "map", "mountPath": "/opt/volumes/map"},
                {"name": "map", "mountPath": "/opt/volumes/one", "subPath": "renamed"},
                {"name": "info", "mountPath": "/etc/podinfo"},
                {"name": "empty", "mountPath": "/opt/volumes/empty"},
                {"name": "projected", "mountPath": "/opt/volumes/projected"},
            ],
        ),
        volumes=[
            {"name": "secret", "secret": {"secretName": "secret"}},
            {"name": "map", "configMap": {"name": "map", "items": [{"key": "color", "path": "renamed"}]}},
            {
                "name": "info",
                "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
            {"name": "empty", "emptyDir": {"medium": "Memory"}},
            {
                "name": "projected",
                "projected": {
                    "sources": [
                        {"secret": {"name": "secret", "items": [{"key": "user", "path": "a"}]}},
                        {"configMap": {"name": "map", "items": [{"key": "size", "path": "b"}]}},
                        {
                            "serviceAccountToken": {
                                "path": "token",
                                "audience": "someone",
                                "expirationSeconds": 600,
                            }
                        },
                    ]
                },
            },
        ],
    )
    made["metadata"]["labels"] = {"role": "tester"}
    objects.create(made)
    ended = objects.wait_for_end("volumes")
    assert ended["status"]["phase"] == "Succeeded", objects.log("volumes")
    assert objects.log("volumes").split() == [
        "amyblueblue",
        'role="tester"',
        objects.name,
        "amy9",
        "written",
        "file",
    ]


def test_read_only_volume_cannot_be_written(objects: Namespace) -> None:
    objects.create(
        pod(
            "read-only",
            container(
                "base", "touch /v/file", volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": True}]
            ),
            volumes=[{"name": "v", "emptyDir": {}}],
        )
    )
    assert objects.wait_for_end("read-only")["status"]["phase"] == "Failed"
    assert "Read-only file system" in objects.log("read-only")


def test_containers_of_a_pod_share_a_volume_and_nothing_else(objects: Namespace) -> None:
    mounts = [{"name": "work", "mountPath": "/work"}]
    objects.create(
        pod(
            "share",
            container("base", "echo there > /work/file; touch scratch; sleep 1", volumeMounts=mounts),
            container(
                "other", "until [ -s /work/file ]; do sleep 0.1; done; test ! -e scratch", volumeMounts=mounts
            ),
            volumes=[{"name": "work", "emptyDir": {}}],
        )
    )
    assert objects.wait_for_end("share")["status"]["phase"] == "Succeeded"


def test_working_folder_is_the_one_of_the_container(objects: Namespace) -> None:
    objects.create(pod("folder", container("base", "pwd", workingDir="/usr/lib")))
    objects.wait_for_end("folder")
    assert objects.log("folder").strip() == "/usr/lib"


@pytest.mark.parametrize(
    ("name", "fields", "output"),
    [
        pytest.param("image-command", {}, "entrypoint: default", id="entrypoint_with_command_of_image"),
        pytest.param("args", {"args": ["a", "b"]}, "entrypoint: a b", id="args_replace_command_of_image"),
        pytest.param(
            "expanded-args",
            {
                "args": ["$$5", "$(PAID)", "$$(PAID)", "$(ABSENT)"],
                "env": [{"name": "PAID", "value": "$$7"}],
            },
            "entrypoint: $5 $7 $(PAID) $(ABSENT)",
            id="variables_are_expanded_in_args",
        ),
        pytest.param("command", {"command": ["echo", "own"]}, "own", id="command_replaces_entrypoint"),
    ],
)
def test_entrypoint_of_image(objects: Namespace, name: str, fields: dict[str, Any], output: str) -> None:
    objects.create(pod(name, container("base", image=ENTRYPOINT_IMAGE, **fields)))
    objects.wait_for_end(name)
    assert objects.log(name).strip() == output


def test_variables_of_container_win_over_those_of_image(objects: Namespace) -> None:
    environment = _environment(
        objects, "image-env", image=ENTRYPOINT_IMAGE, env=[{"name": "OVERRIDDEN", "value": "container"}]
    )
    assert (environment["FROM_IMAGE"], environment["OVERRIDDEN"]) == ("image", "container")


READ_OWN_POD = """
import os
from kubernetes import client, config
config.load_incluster_config()
pod = client.CoreV1Api().read_namespaced_pod(os.environ["HOSTNAME"], os.environ["NAMESPACE"])
print(pod.metadata.uid)
"""


def test_pod_reaches_api_server_with_its_service_account(objects: Namespace, rbac: Any) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    rbac.create_namespaced_role(objects.name, {"metadata": {"name": "reader"}, "rules": rules})
    rbac.create_namespaced_role_binding(
        objects.name,
        {
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": objects.name}],
        },
    )
    objects.create(
        pod(
            "inside",
            container(
                "base",
                command=[PYTHON, "-c", READ_OWN_POD],
                env=[_variable("NAMESPACE", fieldRef={"fieldPath": "metadata.namespace"})],
            ),
        )
    )
    ended = objects.wait_for_end("inside")
    assert objects.log("inside").strip() == ended["metadata"]["uid"]
