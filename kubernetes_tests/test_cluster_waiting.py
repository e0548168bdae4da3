"""Pods that cannot start, and containers that are started again. The pods of the table run at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kubernetes_tests.cluster.pods import (
    CPUS,
    container,
    pod,
    state_of,
    status_of,
    terminated,
    waiting_reason,
)

if TYPE_CHECKING:
    from kubernetes_tests.cluster.pods import Namespace

pytest_plugins = ["kubernetes_tests.cluster.fixtures"]


@dataclass(frozen=True)
class Stuck:
    """A pod that stays Pending.

    :param reason: the container's waiting reason at some time.
    :param text: part of the reason's message.
    :param event: reason and part of the message of an event.
    """

    id: str
    pod: dict[str, Any]
    reason: str
    text: str = ""
    event: tuple[str, str] | None = None


STUCK = [
    Stuck(
        "unknown_image_is_err_image_pull",
        pod("pull", container("base", "exit 0", image="nowhere/else:1")),
        "ErrImagePull",
        'failed to resolve reference "nowhere/else:1"',
        ("Failed", 'Failed to pull image "nowhere/else:1"'),
    ),
    Stuck(
        "unknown_image_with_policy_never",
        pod("never", container("base", "exit 0", image="nowhere/else:1", imagePullPolicy="Never")),
        "ErrImageNeverPull",
        "is not present with pull policy of Never",
        ("ErrImageNeverPull", "nowhere/else:1"),
    ),
    Stuck(
        "invalid_image_name",
        pod("invalid", container("base", "exit 0", image="local/UPPER CASE")),
        "InvalidImageName",
        "couldn't parse image name",
        ("InspectFailed", "Failed to apply default image tag"),
    ),
    Stuck(
        "missing_secret_for_variable",
        pod(
            "secret-env",
            container(
                "base",
                "exit 0",
                env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}],
            ),
        ),
        "CreateContainerConfigError",
        'secret "absent" not found',
        ("Failed", 'Error: secret "absent" not found'),
    ),
    Stuck(
        "missing_config_map_for_environment",
        pod("map-env", container("base", "exit 0", envFrom=[{"configMapRef": {"name": "absent"}}])),
        "CreateContainerConfigError",
        'configmap "absent" not found',
        ("Failed", 'Error: configmap "absent" not found'),
    ),
    Stuck(
        "missing_secret_for_volume",
        pod(
            "secret-volume",
            container("base", "exit 0", volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            volumes=[{"name": "v", "secret": {"secretName": "absent"}}],
        ),
        "ContainerCreating",
        "",
        ("FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "absent" not found'),
    ),
    Stuck(
        "no_command_and_no_entrypoint",
        pod("no-command", container("base")),
        "CreateContainerError",
        "no command specified",
    ),
]


CRASHING = pod("crash", container("base", "exit 5"), restartPolicy="Always")


@pytest.fixture(scope="module")
def started(shared_namespace: Namespace) -> Namespace:
    for made in [*(stuck.pod for stuck in STUCK), CRASHING]:
        shared_namespace.create(made)
    return shared_namespace


@pytest.mark.parametrize("stuck", STUCK, ids=lambda stuck: stuck.id)
def test_pod_that_cannot_start_stays_pending_and_says_why(started: Namespace, stuck: Stuck) -> None:
    name = stuck.pod["metadata"]["name"]

    def says_why(found: dict[str, Any]) -> bool:
        message = state_of(found).get("waiting", {}).get("message", "")
        return waiting_reason(found) == stuck.reason and stuck.text in message

    assert started.wait(name, says_why)["status"]["phase"] == "Pending"
    if stuck.event:
        started.wait_for_event(name, *stuck.event)


def test_pod_with_too_large_request_is_unschedulable(namespace: Namespace) -> None:
    request = {"requests": {"cpu": str(CPUS + 1)}}
    namespace.create(pod("large", container("base", "exit 0", resources=request)))

    def condition(found: dict[str, Any]) -> dict[str, Any]:
        conditions = found["status"].get("conditions", [])
        return next((c for c in conditions if c["type"] == "PodScheduled"), {})

    waiting = namespace.wait("large", condition)
    assert condition(waiting)["reason"] == "Unschedulable"
    assert "Insufficient cpu" in condition(waiting)["message"]
    assert waiting["status"]["phase"] == "Pending"
    namespace.wait_for_event("large", "FailedScheduling", "Insufficient cpu")


def test_pod_starts_once_its_secret_exists(namespace: Namespace) -> None:
    namespace.create(
        pod(
            "late",
            container("base", 'test "$(cat /v/k)" = value', volumeMounts=[{"name": "v", "mountPath": "/v"}]),
            volumes=[{"name": "v", "secret": {"secretName": "s"}}],
        )
    )
    namespace.wait_for_event("late", "FailedMount")
    namespace.core.create_namespaced_secret(
        namespace.name, {"metadata": {"name": "s"}, "stringData": {"k": "value"}}
    )
    assert namespace.wait_for_end("late")["status"]["phase"] == "Succeeded"


@pytest.mark.parametrize(
    ("policy", "script", "restarts"),
    [
        pytest.param(
            "OnFailure",
            "test -e /work/seen || { touch /work/seen; exit 1; }",
            True,
            id="failure_is_restarted",
        ),
        pytest.param("OnFailure", "exit 0", False, id="success_is_not_restarted"),
    ],
)
def test_restart_policy_on_failure(namespace: Namespace, policy: str, script: str, restarts: bool) -> None:
    namespace.create(
        pod(
            "again",
            container("base", script, volumeMounts=[{"name": "work", "mountPath": "/work"}]),
            restartPolicy=policy,
            volumes=[{"name": "work", "emptyDir": {}}],
        )
    )
    ended = namespace.wait_for_end("again")
    assert ended["status"]["phase"] == "Succeeded"
    assert status_of(ended)["restartCount"] == int(restarts)


def test_failed_readiness_probe_keeps_pod_unready(namespace: Namespace) -> None:
    probe = {"exec": {"command": ["test", "-e", "/work/ready"]}, "periodSeconds": 1}
    namespace.create(
        pod(
            "probe",
            container(
                "base",
                "sleep 2; touch /work/ready; sleep 60",
                readinessProbe=probe,
                volumeMounts=[{"name": "work", "mountPath": "/work"}],
            ),
            volumes=[{"name": "work", "emptyDir": {}}],
        )
    )
    running = namespace.wait_for_phase("probe", "Running")
    assert not status_of(running)["ready"]
    namespace.wait("probe", lambda pod: status_of(pod)["ready"])


def test_failed_liveness_probe_kills_container(namespace: Namespace) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    namespace.create(pod("dead", container("base", "sleep 60", livenessProbe=probe)))
    assert terminated(namespace.wait_for_end("dead"))["exitCode"] == 143
    namespace.wait_for_event("dead", "Unhealthy", "Liveness probe failed")


# Back-offs take ten seconds: these pods are looked at after the others, with which they were made.


def test_failing_container_is_restarted_with_back_off(started: Namespace) -> None:
    name = CRASHING["metadata"]["name"]
    started.wait_for_event(name, "BackOff", "Back-off restarting failed container")
    # The kubelet says so when it looks at the pod again, as it does when the pod is changed.
    started.core.patch_namespaced_pod(name, started.name, {"metadata": {"annotations": {"look": "again"}}})
    crashed = started.wait(name, lambda pod: waiting_reason(pod) == "CrashLoopBackOff")
    status = status_of(crashed)
    assert status["restartCount"] >= 1
    assert status["lastState"]["terminated"]["exitCode"] == 5
    assert "back-off" in status["state"]["waiting"]["message"]
    assert crashed["status"]["phase"] == "Running"


def test_unknown_image_backs_off(started: Namespace) -> None:
    waiting = started.wait("pull", lambda pod: waiting_reason(pod) == "ImagePullBackOff")
    assert 'Back-off pulling image "nowhere/else:1"' in state_of(waiting)["waiting"]["message"]
    started.wait_for_event("pull", "BackOff", 'Back-off pulling image "nowhere/else:1"')
