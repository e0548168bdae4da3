"""What a pod says about its callback: one table of pods, and the promise that reading never fails."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kubernetes_callbacks.outcome import CallbackOutcome, pod_view
from airflow_kubernetes_callbacks.pod_status import epoch_seconds
from airflow_kubernetes_callbacks.reason import COULD_NOT_START, RAN_AND_FAILED
from tests.pods import (
    CALLBACK_ID,
    CREATED,
    ENDED,
    STARTED,
    ZERO_TIME,
    condition,
    pod,
    running,
    status,
    terminated,
    waiting,
)

PENDING = CallbackOutcome.PENDING
RUNNING = CallbackOutcome.RUNNING
SUCCEEDED = CallbackOutcome.SUCCEEDED
FAILED = CallbackOutcome.FAILED
NEVER = CallbackOutcome.NEVER_STARTED

SIDECAR = {"name": "sidecar", "image": "proxy:1"}
BASE = {"name": "base", "image": "airflow:3.3.2"}
NATIVE_SIDECAR = {"name": "proxy", "image": "proxy:1", "restartPolicy": "Always"}
INIT = {"name": "fetch", "image": "git:1"}

UNSCHEDULABLE = condition(
    "PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient memory."
)
DELETING: dict[str, Any] = {"deletionTimestamp": ENDED}


def disrupted(reason: str, message: str) -> dict[str, Any]:
    return condition("DisruptionTarget", "True", reason, message)


def unlocated(**more: Any) -> dict[str, Any]:
    """What the kubelet writes for a container that it cannot find when the pod ends."""
    text = "The container could not be located when the pod was terminated"
    return status(state=terminated(137, "ContainerStatusUnknown", text, started=None, finished=None), **more)


# name: (pod, is it the object of a DELETED event, outcome, words that the reason has to have)
CASES: dict[str, tuple[dict[str, Any], bool, CallbackOutcome, tuple[str, ...]]] = {
    # the ordinary way
    "no status yet": (pod("Pending", None, node=None, start_time=None), False, PENDING, ()),
    "creating": (pod("Pending", [status(state=waiting("ContainerCreating"))]), False, PENDING, ()),
    "initialising": (pod("Pending", [status(state=waiting("PodInitializing"))]), False, PENDING, ()),
    "running": (pod("Running", [status(state=running())]), False, RUNNING, ()),
    "running without a time": (pod("Running", [status(state=running(None))]), False, RUNNING, ()),
    "succeeded": (pod("Succeeded", [status(state=terminated(0))]), False, SUCCEEDED, ()),
    "failed": (
        pod("Failed", [status(state=terminated(1))]),
        False,
        FAILED,
        (RAN_AND_FAILED, "base", "exit code 1"),
    ),
    "killed": (pod("Failed", [status(state=terminated(137))]), False, FAILED, ("exit code 137 (SIGKILL)",)),
    "exit code missing": (
        pod("Failed", [status(state=terminated(None))]),
        False,
        FAILED,
        ("exit code unknown",),
    ),
    # sidecars and the position of the base container
    "sidecar still runs": (
        pod(
            "Running", [status("sidecar", running()), status(state=terminated(0))], containers=[SIDECAR, BASE]
        ),
        False,
        SUCCEEDED,
        (),
    ),
    "sidecar still runs, base failed": (
        pod(
            "Running", [status(state=terminated(3)), status("sidecar", running())], containers=[BASE, SIDECAR]
        ),
        False,
        FAILED,
        ("exit code 3",),
    ),
    "sidecar failed, base runs": (
        pod(
            "Running", [status("sidecar", terminated(1)), status(state=running())], containers=[SIDECAR, BASE]
        ),
        False,
        RUNNING,
        (),
    ),
    "sidecar failed, base succeeded": (
        pod(
            "Failed",
            [status("sidecar", terminated(1)), status(state=terminated(0))],
            containers=[SIDECAR, BASE],
        ),
        False,
        SUCCEEDED,
        (),
    ),
    "sidecar cannot be pulled, base runs": (
        pod("Pending", [status("sidecar", waiting("ErrImagePull")), status(state=running())]),
        False,
        RUNNING,
        (),
    ),
    "base has another name": (
        pod(
            "Running",
            [status("sidecar", terminated(0)), status("x", running())],
            containers=[SIDECAR, {"name": "x"}],
        ),
        False,
        SUCCEEDED,
        (),
    ),
    "native sidecar still runs": (
        pod(
            "Running",
            [status(state=terminated(0))],
            init=[status("proxy", running())],
            init_containers=[NATIVE_SIDECAR],
        ),
        False,
        SUCCEEDED,
        (),
    ),
    "native sidecar ended with an error before": (
        pod(
            "Running",
            [status(state=running())],
            init=[status("proxy", running(), terminated(1))],
            init_containers=[NATIVE_SIDECAR],
        ),
        False,
        RUNNING,
        (),
    ),
    # the base container never began
    "exec failed": (
        pod(
            "Failed",
            [status(state=terminated(128, "StartError", 'exec: "python": not found', started=ZERO_TIME))],
        ),
        False,
        NEVER,
        (COULD_NOT_START, "StartError", "not found"),
    ),
    "argument too long": (
        pod("Failed", [status(state=terminated(128, "StartError", "argument list too long", started=None))]),
        False,
        NEVER,
        ("argument list too long",),
    ),
    "cannot run, docker": (
        pod("Failed", [status(state=terminated(127, "ContainerCannotRun", "no such file", started=STARTED))]),
        False,
        NEVER,
        (COULD_NOT_START, "ContainerCannotRun"),
    ),
    "init container failed": (
        pod(
            "Failed",
            [status(state=waiting("PodInitializing"))],
            init=[status("fetch", terminated(2, message="fatal: repository not found"))],
            init_containers=[INIT],
        ),
        False,
        NEVER,
        (COULD_NOT_START, "init container fetch", "exit code 2", "repository not found"),
    ),
    "init container could not be executed": (
        pod(
            "Failed",
            [status(state=waiting("PodInitializing"))],
            init=[
                status("fetch", terminated(128, "StartError", 'exec: "nope": not found', started=ZERO_TIME))
            ],
            init_containers=[INIT],
        ),
        False,
        NEVER,
        (COULD_NOT_START, "init container fetch", "StartError", "exit code 128", 'exec: "nope": not found'),
    ),
    "init container cannot run, docker": (
        pod(
            "Failed",
            [status(state=waiting("PodInitializing"))],
            init=[status("fetch", terminated(127, "ContainerCannotRun", "no such file", started=None))],
            init_containers=[INIT],
        ),
        False,
        NEVER,
        (COULD_NOT_START, "init container fetch", "ContainerCannotRun", "exit code 127", "no such file"),
    ),
    "init container could not be executed, base without a status": (
        pod(
            "Failed",
            None,
            init=[status("fetch", terminated(128, "StartError", "not found", started=ZERO_TIME))],
            init_containers=[INIT],
        ),
        False,
        NEVER,
        (COULD_NOT_START, "init container fetch", "StartError"),
    ),
    "init container never was": (
        pod(
            "Failed",
            [unlocated(containerID="")],
            init=[{**unlocated(containerID=""), "name": "fetch"}],
            init_containers=[INIT],
            reason="DeadlineExceeded",
        ),
        False,
        NEVER,
        (f"{COULD_NOT_START}: DeadlineExceeded",),
    ),
    "out of cpu": (
        pod(
            "Failed",
            None,
            reason="OutOfcpu",
            message="Pod was rejected: Node didn't have enough resource: cpu",
        ),
        False,
        NEVER,
        (COULD_NOT_START, "OutOfcpu", "enough resource"),
    ),
    "node shuts down": (
        pod("Failed", None, reason="NodeShutdown", message="Pod was rejected as the node is shutting down."),
        False,
        NEVER,
        ("shutting down",),
    ),
    "admission error": (pod("Failed", None, reason="UnexpectedAdmissionError"), False, NEVER, ("Admission",)),
    "evicted at admission": (
        pod(
            "Failed",
            None,
            reason="Evicted",
            message="Pod was rejected: The node had condition: [MemoryPressure].",
        ),
        False,
        NEVER,
        ("MemoryPressure",),
    ),
    "evicted at admission by an older kubelet": (
        pod("Failed", None, reason="Evicted", message="Pod The node had condition: [DiskPressure]. "),
        False,
        NEVER,
        (COULD_NOT_START, "Evicted", "DiskPressure"),
    ),
    "evicted before it began": (
        pod(
            "Failed",
            [status(state=waiting("ContainerCreating"))],
            reason="Evicted",
            message="The node was low on resource: memory.",
        ),
        False,
        NEVER,
        (COULD_NOT_START, "Evicted", "low on resource"),
    ),
    "never seen by a kubelet": (pod("Failed", None, start_time=None), False, NEVER, (COULD_NOT_START,)),
    "ended while it could not be pulled": (
        pod("Failed", [unlocated(containerID="", imageID="")]),
        False,
        NEVER,
        (COULD_NOT_START,),
    ),
    "deadline while it could not be pulled": (
        pod(
            "Failed",
            [status(state=waiting("ImagePullBackOff", 'Back-off pulling image "x:1"'))],
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified deadline",
        ),
        False,
        NEVER,
        (COULD_NOT_START, "ImagePullBackOff", "DeadlineExceeded"),
    ),
    "created and could not be run": (
        pod(
            "Failed",
            [status(state=waiting("RunContainerError", "no such file"), containerID="containerd://abc")],
        ),
        False,
        NEVER,
        (COULD_NOT_START, "RunContainerError", "no such file"),
    ),
    "created again after it could not be run": (
        pod(
            "Failed",
            [
                status(
                    state=waiting(None),
                    last=terminated(128, "StartError", "no such file", started=ZERO_TIME),
                    containerID="containerd://abc",
                )
            ],
        ),
        False,
        NEVER,
        (COULD_NOT_START, "StartError", "no such file"),
    ),
    "waits without a word and was not created": (
        pod("Failed", [status(state={"waiting": {}}, containerID="")]),
        False,
        NEVER,
        (COULD_NOT_START,),
    ),
    # it may have begun
    "lost container that had an id": (
        pod("Failed", [unlocated(containerID="containerd://abc")]),
        False,
        FAILED,
        (RAN_AND_FAILED, "could not be located"),
    ),
    "lost container that had run": (
        pod(
            "Failed",
            [
                status(
                    state=waiting("ContainerCreating"),
                    last=terminated(
                        137,
                        "ContainerStatusUnknown",
                        "The container could not be located when the pod was deleted.  The container used to be Running",
                        started=None,
                    ),
                )
            ],
        ),
        False,
        FAILED,
        (RAN_AND_FAILED,),
    ),
    "failed without statuses": (pod("Failed", None), False, FAILED, ("may have begun",)),
    "evicted, statuses dropped": (
        pod("Failed", None, reason="Evicted", message="The node was low on resource: ephemeral-storage."),
        False,
        FAILED,
        (RAN_AND_FAILED, "Evicted", "ephemeral-storage"),
    ),
    "node lost while creating": (
        pod(
            "Failed",
            [status(state=waiting("ContainerCreating"))],
            conditions=[disrupted("DeletionByPodGC", "PodGC: node no longer exists")],
        ),
        False,
        FAILED,
        ("node node-1 was lost", "may have begun", "node no longer exists"),
    ),
    "node lost while creating, deleted by a cloud's controller": (
        pod(
            "Failed",
            [status(state=waiting("ContainerCreating"))],
            conditions=[
                disrupted("DeletionByGCPControllerManager", "GCPControllerManager: node no longer exists")
            ],
        ),
        False,
        FAILED,
        ("node node-1 was lost", "may have begun", "GCPControllerManager"),
    ),
    "gone while pending on a node lost by a cloud": (
        pod(
            "Pending",
            [status(state=waiting("ContainerCreating"))],
            conditions=[disrupted("DeletionByOther", "Other: the node no longer exists.")],
            **DELETING,
        ),
        True,
        FAILED,
        ("may have begun",),
    ),
    "pending on a tainted node": (
        pod(
            "Failed",
            [status(state=waiting("ContainerCreating"))],
            conditions=[
                disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
            ],
        ),
        False,
        NEVER,
        ("NoExecute",),
    ),
    "created and not seen to start": (
        pod("Failed", [status(state={"waiting": {}}, last={"waiting": {}}, containerID="eci://abc")]),
        False,
        FAILED,
        (RAN_AND_FAILED, "may have begun"),
    ),
    "gone when it was created and not seen to start": (
        pod("Pending", [status(state={"waiting": {}}, containerID="containerd://abc")], **DELETING),
        True,
        FAILED,
        (RAN_AND_FAILED, "may have begun"),
    ),
    "evicted when it was created and not seen to start": (
        pod(
            "Failed",
            [status(state=waiting("ContainerCreating"), containerID="containerd://abc")],
            reason="Evicted",
            message="The node was low on resource: memory.",
        ),
        False,
        FAILED,
        (RAN_AND_FAILED, "may have begun", "Evicted"),
    ),
    "unknown exit of a runtime": (
        pod("Failed", [status(state=terminated(255, "Unknown", started=ZERO_TIME, finished=ZERO_TIME))]),
        False,
        FAILED,
        ("exit code 255",),
    ),
    # it ran and failed
    "out of memory": (
        pod(
            "Failed",
            [status(state=terminated(137, "OOMKilled"))],
            containers=[{**BASE, "resources": {"limits": {"memory": "256Mi"}}}],
        ),
        False,
        FAILED,
        ("OOMKilled", "256Mi", "exit code 137"),
    ),
    "out of memory without a limit": (
        pod("Failed", [status(state=terminated(137, "OOMKilled"))]),
        False,
        FAILED,
        ("OOMKilled",),
    ),
    "deadline": (
        pod(
            "Failed",
            [status(state=terminated(143))],
            reason="DeadlineExceeded",
            message="Pod was active on the node longer than the specified deadline",
        ),
        False,
        FAILED,
        ("DeadlineExceeded", "longer than the specified deadline", "SIGTERM"),
    ),
    "evicted while it ran": (
        pod(
            "Failed",
            [status(state=terminated(137))],
            reason="Evicted",
            message="The node was low on resource: memory.",
            conditions=[disrupted("TerminationByKubelet", "The node was low on resource: memory.")],
        ),
        False,
        FAILED,
        ("Evicted", "low on resource"),
    ),
    "preempted": (
        pod(
            "Failed",
            [status(state=terminated(143))],
            conditions=[
                disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod")
            ],
        ),
        False,
        FAILED,
        ("PreemptionByScheduler", "higher priority"),
    ),
    "preempted by Kueue": (
        pod(
            "Failed",
            [status(state=terminated(143))],
            conditions=[
                condition(
                    "TerminationTarget",
                    "True",
                    "WorkloadEvictedDueToPreempted",
                    "Preempted to accommodate a workload (UID: x) due to prioritization in the ClusterQueue",
                )
            ],
            **DELETING,
        ),
        False,
        FAILED,
        ("SIGTERM", "WorkloadEvictedDueToPreempted: Preempted to accommodate a workload"),
    ),
    "Kubernetes' own condition before that of Kueue": (
        pod(
            "Failed",
            [status(state=terminated(143))],
            conditions=[
                condition("TerminationTarget", "True", "StoppedByKueue", "Stopped"),
                disrupted("DeletionByPodGC", "PodGC: node no longer exists"),
            ],
        ),
        False,
        FAILED,
        ("DeletionByPodGC",),
    ),
    "evicted by the API, ended well": (
        pod(
            "Succeeded",
            [status(state=terminated(0))],
            conditions=[disrupted("EvictionByEvictionAPI", "Eviction API: evicting")],
            **DELETING,
        ),
        False,
        SUCCEEDED,
        (),
    ),
    "phase failed, base still said to run": (
        pod(
            "Failed",
            [status(state=running())],
            reason="NodeLost",
            message="Node node-1 which was running pod is gone",
        ),
        False,
        FAILED,
        ("node node-1 was lost",),
    ),
    # phases that contradict the statuses
    "succeeded without statuses": (pod("Succeeded", None), False, SUCCEEDED, ()),
    "succeeded, base failed": (pod("Succeeded", [status(state=terminated(1))]), False, FAILED, ()),
    "unknown phase, base runs": (pod("Unknown", [status(state=running())]), False, RUNNING, ()),
    "unknown phase, base waits": (
        pod("Unknown", [status(state=waiting("ContainerCreating"))]),
        False,
        PENDING,
        (),
    ),
    "restarted after it began": (
        pod("Running", [status(state=running(), last=terminated(1), restartCount=1)]),
        False,
        FAILED,
        ("exit code 1",),
    ),
    "restarts after it could not start": (
        pod("Running", [status(state=running(), last=terminated(128, "StartError", started=None))]),
        False,
        RUNNING,
        (),
    ),
    # a deletion is under way
    "deleting, still runs": (pod("Running", [status(state=running())], **DELETING), False, RUNNING, ()),
    "deleting, ended well": (pod("Running", [status(state=terminated(0))], **DELETING), False, SUCCEEDED, ()),
    "deleting, killed": (
        pod("Running", [status(state=terminated(143))], **DELETING),
        False,
        FAILED,
        ("SIGTERM",),
    ),
    "deleting, still pending": (
        pod("Pending", [status(state=waiting("ContainerCreating"))], **DELETING),
        False,
        PENDING,
        (),
    ),
    # gone
    "gone after success (B6)": (
        pod("Succeeded", [status(state=terminated(0))], **DELETING),
        True,
        SUCCEEDED,
        (),
    ),
    "gone after failure": (
        pod("Failed", [status(state=terminated(4))], **DELETING),
        True,
        FAILED,
        ("exit code 4",),
    ),
    "gone while running (B7)": (
        pod("Running", [status(state=running())], **DELETING),
        True,
        FAILED,
        (RAN_AND_FAILED, "deleted while the callback was running"),
    ),
    "gone while running, preempted": (
        pod(
            "Running",
            [status(state=running())],
            conditions=[
                disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod")
            ],
            **DELETING,
        ),
        True,
        FAILED,
        ("deleted while the callback was running", "PreemptionByScheduler"),
    ),
    "gone while running, tainted node": (
        pod(
            "Running",
            [status(state=running())],
            conditions=[
                disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
            ],
            **DELETING,
        ),
        True,
        FAILED,
        ("NoExecute",),
    ),
    "gone while running, node lost": (
        pod(
            "Running",
            [status(state=running())],
            conditions=[disrupted("DeletionByPodGC", "PodGC: node is gone")],
        ),
        True,
        FAILED,
        ("node node-1 was lost",),
    ),
    "gone while pending (E2)": (
        pod("Pending", [status(state=waiting("ContainerCreating"))], **DELETING),
        True,
        NEVER,
        (COULD_NOT_START, "deleted"),
    ),
    "gone while unscheduled": (
        pod("Pending", None, node=None, start_time=None, conditions=[UNSCHEDULABLE]),
        True,
        NEVER,
        (COULD_NOT_START, "Unschedulable", "Insufficient memory", "deleted"),
    ),
    "gone without statuses, on a node": (pod("Running", None), True, FAILED, ("may have begun",)),
    "gone, container lost by the kubelet, never created": (
        pod("Failed", [unlocated(containerID="")], **DELETING),
        True,
        NEVER,
        (COULD_NOT_START,),
    ),
    "gone while pending on a lost node": (
        pod(
            "Pending",
            [status(state=waiting("ContainerCreating"))],
            conditions=[disrupted("DeletionByPodGC", "PodGC: node no longer exists")],
        ),
        True,
        FAILED,
        ("may have begun",),
    ),
}


@pytest.mark.parametrize(("raw", "deleted", "outcome", "words"), CASES.values(), ids=CASES)
def test_outcome_and_reason(
    raw: dict[str, Any], deleted: bool, outcome: CallbackOutcome, words: tuple[str, ...]
) -> None:
    view = pod_view(raw, deleted=deleted)

    assert view is not None
    assert view.outcome is outcome
    assert view.gone is deleted
    for word in words:
        assert word in (view.reason or "")
    if outcome in (FAILED, NEVER):
        assert (view.reason or "").startswith(RAN_AND_FAILED if outcome is FAILED else COULD_NOT_START)
    if outcome in (RUNNING, SUCCEEDED):
        assert view.reason is None
    assert view.waiting_reason is None or outcome is PENDING


WAITS: dict[str, tuple[dict[str, Any], str | None, tuple[str, ...]]] = {
    "unschedulable": (
        pod("Pending", None, node=None, conditions=[UNSCHEDULABLE]),
        "Unschedulable",
        ("Unschedulable", "0/3 nodes"),
    ),
    "scheduling gated": (
        pod(
            "Pending",
            None,
            node=None,
            conditions=[condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked")],
        ),
        "SchedulingGated",
        ("Scheduling is blocked",),
    ),
    "pull error": (
        pod("Pending", [status(state=waiting("ErrImagePull", "manifest unknown"))]),
        "ErrImagePull",
        ("ErrImagePull", "airflow:3.3.2", "manifest unknown"),
    ),
    "pull back-off": (
        pod("Pending", [status(state=waiting("ImagePullBackOff", 'Back-off pulling image "airflow:3.3.2"'))]),
        "ImagePullBackOff",
        ("airflow:3.3.2",),
    ),
    "pull limited by the node (E17)": (
        pod(
            "Pending",
            [status("sidecar", waiting("x")), status(state=waiting("ErrImagePull", "pull QPS exceeded"))],
        ),
        None,
        ("pull QPS exceeded",),
    ),
    "pull limited by the registry": (
        pod(
            "Pending", [status(state=waiting("ErrImagePull", "toomanyrequests: you have reached your limit"))]
        ),
        None,
        ("toomanyrequests",),
    ),
    "missing secret": (
        pod(
            "Pending", [status(state=waiting("CreateContainerConfigError", 'secret "db-password" not found'))]
        ),
        "CreateContainerConfigError",
        ('secret "db-password" not found',),
    ),
    "bad image name": (
        pod("Pending", [status(state=waiting("InvalidImageName", "couldn't parse image name"))]),
        "InvalidImageName",
        ("parse",),
    ),
    "never pull": (
        pod("Pending", [status(state=waiting("ErrImageNeverPull", "Container image is not present"))]),
        "ErrImageNeverPull",
        ("not present",),
    ),
    "signature that is not valid": (
        pod("Pending", [status(state=waiting("SignatureValidationFailed", "no policy allows it"))]),
        "SignatureValidationFailed",
        ("SignatureValidationFailed: container base, image airflow:3.3.2: no policy allows it",),
    ),
    "registry that is unavailable": (
        pod("Pending", [status(state=waiting("RegistryUnavailable", "denied"))]),
        "RegistryUnavailable",
        ("RegistryUnavailable: container base, image airflow:3.3.2: denied",),
    ),
    "cannot be created": (
        pod("Pending", [status(state=waiting("CreateContainerError", "context deadline exceeded"))]),
        "CreateContainerError",
        ("deadline",),
    ),
    "init container crashes": (
        pod(
            "Pending",
            [status(state=waiting("PodInitializing"))],
            init=[status("proxy", waiting("CrashLoopBackOff", "back-off 10s restarting failed container"))],
            init_containers=[NATIVE_SIDECAR],
        ),
        "CrashLoopBackOff",
        ("container proxy", "back-off"),
    ),
    "init container cannot be pulled": (
        pod(
            "Pending",
            [status(state=waiting("PodInitializing"))],
            init=[status("fetch", waiting("ErrImagePull", "denied"))],
            init_containers=[INIT],
        ),
        "ErrImagePull",
        ("container fetch", "git:1", "denied"),
    ),
    "only a sidecar has an error": (
        pod(
            "Pending",
            [status("sidecar", waiting("ErrImagePull")), status(state=waiting("ContainerCreating"))],
            containers=[SIDECAR, BASE],
        ),
        None,
        (),
    ),
    "provider failed (E9)": (
        pod("Pending", None, reason="ProviderFailed", message="cannot create the pod: quota"),
        "ProviderFailed",
        ("ProviderFailed", "quota"),
    ),
    "init container that hangs": (
        pod(
            "Pending",
            [status(state=waiting("PodInitializing"))],
            init=[
                status("fetch", terminated(0)),
                status("vault-agent-init", running()),
                status("x", waiting("PodInitializing")),
            ],
            init_containers=[INIT, {"name": "vault-agent-init"}, {"name": "x"}],
        ),
        None,
        ("init container vault-agent-init is still running",),
    ),
    "native sidecar that does not start up": (
        pod(
            "Pending",
            [status(state=waiting("PodInitializing"))],
            init=[status("proxy", running(), started=False)],
            init_containers=[NATIVE_SIDECAR],
        ),
        None,
        ("sidecar proxy runs and has not started up",),
    ),
    "init container that hangs beside a native sidecar": (
        pod(
            "Pending",
            [status(state=waiting("PodInitializing"))],
            init=[status("proxy", running(), started=True), status("fetch", running())],
            init_containers=[NATIVE_SIDECAR, INIT],
        ),
        None,
        ("init container fetch is still running",),
    ),
    "error beside an init container that runs": (
        pod(
            "Pending",
            [status(state=waiting("PodInitializing"))],
            init=[status("fetch", running()), status("proxy", waiting("ErrImagePull", "denied"))],
            init_containers=[INIT, NATIVE_SIDECAR],
        ),
        "ErrImagePull",
        ("container proxy", "denied"),
    ),
    "nothing to say": (pod("Pending", [status(state=waiting("ContainerCreating"))]), None, ()),
    "native sidecar runs, base is being created": (
        pod(
            "Pending",
            [status(state=waiting("PodInitializing"))],
            init=[status("proxy", running(), started=True)],
            init_containers=[NATIVE_SIDECAR],
        ),
        None,
        (),
    ),
    "waits without a reason": (pod("Pending", [status(state=waiting(None))]), None, ()),
    "created and about to start": (
        pod("Pending", [status(state=waiting(None), containerID="containerd://abc")]),
        None,
        (),
    ),
}


@pytest.mark.parametrize(("raw", "word", "texts"), WAITS.values(), ids=WAITS)
def test_waiting_reason(raw: dict[str, Any], word: str | None, texts: tuple[str, ...]) -> None:
    view = pod_view(raw)

    assert view is not None
    assert view.outcome is PENDING
    assert view.waiting_reason == word
    assert (view.reason is None) == (not texts)
    for text in texts:
        assert text in (view.reason or "")


BESIDE: dict[str, tuple[dict[str, Any], bool]] = {
    "sidecar runs": (pod("Running", [status(state=terminated(1)), status("sidecar", running())]), True),
    "sidecar runs, base succeeded": (
        pod("Running", [status(state=terminated(0)), status("sidecar", running())]),
        True,
    ),
    "sidecar runs, base could not be executed": (
        pod("Running", [status(state=terminated(128, "StartError")), status("sidecar", running())]),
        True,
    ),
    "sidecar has still to start": (
        pod("Pending", [status(state=terminated(1)), status("sidecar", waiting("ImagePullBackOff"))]),
        True,
    ),
    "one of two sidecars runs, base stands second": (
        pod(
            "Running",
            [status("a", terminated(0)), status(state=terminated(1)), status("b", running())],
            containers=[SIDECAR, BASE],
        ),
        True,
    ),
    "base alone, the phase comes later": (pod("Running", [status(state=terminated(1))]), False),
    "sidecar ended too, the phase comes later": (
        pod("Running", [status(state=terminated(1)), status("sidecar", terminated(0))]),
        False,
    ),
    "native sidecar is ended by Kubernetes": (
        pod(
            "Running",
            [status(state=terminated(1))],
            init=[status("proxy", running())],
            init_containers=[NATIVE_SIDECAR],
        ),
        False,
    ),
    "pod has ended, the sidecar's status is old": (
        pod("Failed", [status(state=terminated(1)), status("sidecar", running())]),
        False,
    ),
    "callback runs": (pod("Running", [status(state=running()), status("sidecar", running())]), False),
    "callback waits": (pod("Pending", [status(state=waiting("x")), status("sidecar", running())]), False),
    "malformed": (
        pod("Running", [status(state=terminated(1)), {"name": "sidecar", "state": "running"}]),
        False,
    ),
}


@pytest.mark.parametrize(("raw", "still_runs"), BESIDE.values(), ids=BESIDE)
def test_whether_a_container_beside_the_callback_keeps_its_pod_running(
    raw: dict[str, Any], still_runs: bool
) -> None:
    view = pod_view(raw)

    assert view is not None
    assert view.still_runs is still_runs


@pytest.mark.parametrize("word", ["ErrImagePull", "ImagePullBackOff", "RegistryUnavailable"])
@pytest.mark.parametrize(
    ("message", "passes"),
    [
        pytest.param("pull QPS exceeded", True, id="limit-of-the-node"),
        pytest.param(
            "toomanyrequests: You have reached your pull rate limit", True, id="limit-of-a-registry"
        ),
        pytest.param("unexpected status: 429 Too Many Requests", True, id="429"),
        pytest.param("denied: Quota exceeded for quota metric 'Requests per project'", True, id="quota"),
        pytest.param("unknown: account limit is reached", True, id="account"),
        pytest.param("unknown: Rate exceeded", True, id="rate"),
        pytest.param("dial tcp 10.0.0.1:443: i/o timeout", True, id="connect-timeout"),
        pytest.param("net/http: TLS handshake timeout", True, id="tls-timeout"),
        pytest.param(
            "net/http: request canceled (Client.Timeout exceeded while awaiting headers)", True, id="client"
        ),
        pytest.param("context deadline exceeded", True, id="deadline"),
        pytest.param("read tcp 10.0.0.2:4711->10.0.0.1:443: connection reset by peer", True, id="reset"),
        pytest.param("dial tcp 10.0.0.1:443: connect: connection refused", True, id="registry-is-down"),
        pytest.param("lookup registry: Temporary failure in name resolution", True, id="dns-for-now"),
        pytest.param("failed to copy: unexpected EOF", True, id="broke-off"),
        pytest.param('failed to do request: Head "https://x/v2/y": EOF', True, id="closed"),
        pytest.param("error reading from server: EOF", True, id="runtime-closed"),
        pytest.param("lookup registry on 10.96.0.10:53: server misbehaving", True, id="dns-server"),
        pytest.param("dial tcp 10.0.0.1:443: connect: network is unreachable", True, id="network"),
        pytest.param("dial tcp 10.0.0.1:443: connect: no route to host", True, id="route"),
        pytest.param("http2: server sent GOAWAY and closed the connection", True, id="goaway"),
        pytest.param(
            "failed to fetch oauth token: unexpected status from GET request to https://auth.docker.io/token: 520",
            True,
            id="520",
        ),
        pytest.param("unexpected status code 522: <none>", True, id="522"),
        pytest.param("unexpected status from HEAD request: 500 Internal Server Error", True, id="500"),
        pytest.param("registry: 502 Bad Gateway", True, id="502"),
        pytest.param("503 Service Unavailable", True, id="503"),
        pytest.param("503 Service Temporarily Unavailable", True, id="503-of-nginx"),
        pytest.param("504 Gateway Time-out", True, id="504"),
        pytest.param(
            'Back-off pulling image "x/y:1": ErrImagePull: failed to do request: Head "https://x/v2/y": '
            "dial tcp: i/o timeout",
            True,
            id="back-off-with-the-error",
        ),
        pytest.param(
            "image pull failed for x because the registry is unavailable", True, id="kubelets-words"
        ),
        pytest.param('Back-off pulling image "registry.example.com/airflow:1"', False, id="bare-back-off"),
        pytest.param("manifest unknown", False, id="no-such-tag"),
        pytest.param("unexpected status: 404 Not Found (520 bytes)", False, id="404-of-520-bytes"),
        pytest.param('manifest for "eof:EOF" not found', False, id="eof-in-the-image"),
        pytest.param("pull access denied, repository does not exist", False, id="no-such-image"),
        pytest.param("unexpected status: 401 Unauthorized", False, id="401"),
        pytest.param("dial tcp: lookup registry.exmaple.com: no such host", False, id="no-such-host"),
        pytest.param("x509: certificate signed by unknown authority", False, id="certificate"),
        pytest.param('image "acme/rate-limit-timeout:1": not found', False, id="words-in-the-image"),
        pytest.param('Head "https://x/v2/timeout/manifests/1": not found', False, id="words-in-an-address"),
    ],
)
def test_pull_error_that_passes_is_a_wait(word: str, message: str, passes: bool) -> None:
    view = pod_view(pod("Pending", [status(state=waiting(word, message))]))

    assert view is not None
    assert (view.waiting_reason, message in (view.reason or "")) == (None if passes else word, True)


@pytest.mark.parametrize("word", ["InvalidImageName", "CreateContainerError"])
def test_words_of_a_pull_error_count_in_a_pull_error_only(word: str) -> None:
    view = pod_view(pod("Pending", [status(state=waiting(word, "context deadline exceeded"))]))

    assert view is not None
    assert view.waiting_reason == word


def test_plain_values_are_taken_over() -> None:
    raw = pod(
        "Failed",
        [status(state=terminated(1))],
        finalizers=["other/one", "airflow-kubernetes-callbacks/result"],
        deletionTimestamp="2026-06-01T10:00:30Z",
    )

    view = pod_view(raw)

    assert view is not None
    assert (view.callback_id, view.namespace, view.name) == (CALLBACK_ID, "airflow", raw["metadata"]["name"])
    assert (view.uid, view.resource_version, view.owner) == (raw["metadata"]["uid"], "77", "7")
    assert (view.attempt, view.node, view.deleting, view.finalizer) == (2, "node-1", True, True)
    assert view.created_at == epoch_seconds(CREATED)
    assert view.started_at == epoch_seconds(STARTED)
    assert view.ended_at == epoch_seconds(ENDED)
    assert hash(view)


def test_times_of_a_start_that_failed_are_none() -> None:
    view = pod_view(
        pod("Failed", [status(state=terminated(128, "StartError", started=ZERO_TIME, finished=ENDED))])
    )

    assert view is not None
    assert view.started_at is None


@pytest.mark.parametrize(
    "annotations",
    [
        None,
        {},
        {"callback_id": None},
        {"callback_id": ""},
        {"callback_id": "x"},
        {"callback_id": 7},
        [],
        "text",
    ],
    ids=repr,
)
def test_pod_without_a_callback_id_is_no_callback(annotations: object) -> None:
    assert pod_view(pod(annotations=annotations)) is None


@pytest.mark.parametrize("label", [None, "", "x", "-1", "0", "²", 3], ids=repr)
def test_unreadable_attempt_is_read_off_the_name(label: object) -> None:
    view = pod_view(pod(labels={"callback-attempt": label}))

    assert view is not None
    assert view.attempt == 2


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "2",
        f"callback-{CALLBACK_ID}-",
        f"callback-{CALLBACK_ID}-0",
        f"callback-{CALLBACK_ID}-x",
        "a-2",
    ],
    ids=repr,
)
def test_unreadable_attempt_counts_as_the_first(name: object) -> None:
    view = pod_view(pod(labels={}, name=name))

    assert view is not None
    assert view.attempt == 1


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1970-01-01T00:00:10Z", 10.0),
        ("1970-01-01T00:00:10.5Z", 10.5),
        ("1970-01-01T01:00:10+01:00", 10.0),
        ("1970-01-01", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (12, None),
        ("99999-01-01T00:00:00Z", None),
    ],
)
def test_epoch_seconds(value: object, seconds: float | None) -> None:
    assert epoch_seconds(value) == seconds


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] + [place for key, inner in items for place in _places(inner, (*path, key))]


@given(raw=st.sampled_from([case[0] for case in (*CASES.values(), *WAITS.values())]), data=st.data())
def test_malformed_pods_are_read_without_an_error(raw: dict[str, Any], data: st.DataObject) -> None:
    broken = copy.deepcopy(raw)
    for _ in range(data.draw(st.integers(1, 3))):
        *parents, last = data.draw(st.sampled_from([place for place in _places(broken) if place]))
        holder: Any = broken
        for part in parents:
            holder = holder[part]
        if data.draw(st.booleans()):
            holder[last] = data.draw(JSON)
        elif isinstance(holder, dict):
            del holder[last]

    for deleted in (False, True):
        view = pod_view(broken, deleted=deleted)
        assert view is None or (hash(view) and view.outcome in CallbackOutcome)
        assert view is None or not deleted or view.outcome.terminal


@given(raw=JSON)
def test_anything_is_read_without_an_error(raw: Any) -> None:
    assert pod_view(raw) is None


def test_when_the_grace_period_of_a_deletion_ends():
    made = pod("Running", [status(state=running())])
    assert pod_view(made).delete_by is None
    made["metadata"]["deletionTimestamp"] = ENDED
    assert pod_view(made).delete_by == epoch_seconds(ENDED)
