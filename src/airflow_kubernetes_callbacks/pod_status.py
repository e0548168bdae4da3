"""Reading of a pod's JSON: its base container, and whether that began. Pure and total.

Facts about the kubelet that the reading rests on (Kubernetes 1.34 to 1.37):

* A container that could not be started ends with reason ``StartError`` (runc, CRI-O) or
  ``ContainerCannotRun`` and a start time of zero (1970-01-01) or none.
* When a pod ends whose container was never created, or can no longer be found, the kubelet writes
  ``terminated: {reason: ContainerStatusUnknown, exitCode: 137}`` without times. Only a container that
  had existed has a ``containerID`` there.
* A pod that the kubelet refuses to admit ends as Failed with the message ``Pod was rejected: …`` and
  no container statuses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.identity import BASE_CONTAINER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: The container was created and its process could not be executed.
START_FAILURES = frozenset(
    {
        "StartError",
        "ContainerCannotRun",
        "CreateContainerError",
        "CreateContainerConfigError",
        "RunContainerError",
    }
)
STATUS_UNKNOWN = "ContainerStatusUnknown"

#: How the kubelet begins the message when it refuses a pod, older ones too.
_REJECTED = ("Pod was rejected", "Pod Predicate", "Pod The node had condition:")
_REJECTIONS = frozenset(
    {
        "UnexpectedAdmissionError",
        "NodeAffinity",
        "MatchNodeSelector",
        "NodeShutdown",
        "HostPortConflict",
        "PodFitsHostPorts",
        "TopologyAffinityError",
        "SysctlForbidden",
        "AppArmor",
        "PodOSNotSupported",
        "InvalidNodeInfo",
        "ProviderFailed",
    }
)
#: Exit codes after SIGKILL and SIGTERM, and how long after the end a busy kubelet may remove the pod (seconds).
_SIGNALLED = (137, 143)
_REMOVAL_SECONDS = 60

#: Nobody can say what a container did on a node that the cluster lost.
_NODE_LOST = frozenset({"NodeLost", "DeletionByPodGC", "NodeUnreachable"})
#: How whoever deletes the pods of such a node ends the message of the condition: pod garbage collection, and
#: cloud controller managers, which have reasons of their own (kubernetes-sigs/prow#117).
_NODE_IS_GONE = "node no longer exists"


@dataclass(frozen=True, slots=True)
class BaseStatus:
    """The base container, whatever stands around it."""

    name: str
    image: str | None
    #: The process was started at some time.
    began: bool
    #: The container has a terminated state, of a process or of an attempt to start one.
    ended: bool
    exit_code: int | None
    #: Kubernetes' word for the end (``Error``, ``OOMKilled``, ``StartError``) or for the wait.
    word: str | None
    message: str | None
    started_at: str | None
    finished_at: str | None
    #: The kubelet reports on this container.
    reported: bool
    #: The container has an id: it was created, which is the last thing before its process starts.
    created: bool


def mapping(value: object, key: str) -> dict[str, Any]:
    """Return ``value[key]`` if it is a JSON object, else an empty one."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def mappings(value: object, key: str) -> list[dict[str, Any]]:
    """Return the JSON objects in the list ``value[key]``."""
    inner = value.get(key) if isinstance(value, dict) else None
    return [item for item in inner if isinstance(item, dict)] if isinstance(inner, list) else []


def text_of(value: object, key: str) -> str | None:
    """Return ``value[key]`` if it is a text that says something."""
    inner = value.get(key) if isinstance(value, dict) else None
    return inner if isinstance(inner, str) and inner.strip() else None


def base_container(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of the base container: the one of that name, else the first."""
    containers = mappings(mapping(pod, "spec"), "containers")
    named = [container for container in containers if container.get("name") == BASE_CONTAINER]
    return (named or containers or [{}])[0]


def base_status(pod: Mapping[str, Any]) -> BaseStatus:
    """Return what the pod reports on its base container."""
    spec = base_container(pod)
    name = text_of(spec, "name") or BASE_CONTAINER
    statuses = mappings(mapping(pod, "status"), "containerStatuses")
    status = next((item for item in statuses if item.get("name") == name), {})
    state, last = mapping(status, "state"), mapping(status, "lastState")
    ends = [end for end in (mapping(last, "terminated"), mapping(state, "terminated")) if end]
    begun_ends = [end for end in ends if _end_of_begun(end, status)]
    running, runs = mapping(state, "running"), isinstance(state.get("running"), dict)
    end = (begun_ends or ([] if runs else ends) or [{}])[0]
    waits = mapping(state, "waiting")
    return BaseStatus(
        name=name,
        image=text_of(spec, "image") or text_of(status, "image"),
        began=bool(begun_ends) or runs,
        ended=bool(begun_ends) or (bool(ends) and not runs),
        exit_code=_exit_code(end),
        word=text_of(end, "reason") or text_of(waits, "reason"),
        message=text_of(end, "message") or text_of(waits, "message"),
        started_at=_real_time(end.get("startedAt")) or _real_time(running.get("startedAt")),
        finished_at=_real_time(end.get("finishedAt")),
        reported=bool(state or last),
        created=text_of(status, "containerID") is not None,
    )


def _end_of_begun(end: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Tell whether a terminated state is that of a process that had been started."""
    return text_of(end, "reason") not in START_FAILURES and not _end_of_nothing(end, status)


def _end_of_nothing(end: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """Tell whether a terminated state is what the kubelet writes for a container that never was."""
    if text_of(end, "reason") != STATUS_UNKNOWN or _real_time(end.get("startedAt")):
        return False
    existed = text_of(status, "containerID") or text_of(end, "containerID") or status.get("restartCount")
    return not existed and "used to be Running" not in str(end.get("message"))


def _real_time(value: object) -> str | None:
    """Return a time as it stands, or None for none and for the zero time of a failed start."""
    return (
        value if isinstance(value, str) and value and not value.startswith(("1970-01-01", "0001-")) else None
    )


def _exit_code(end: Mapping[str, Any]) -> int | None:
    code = end.get("exitCode")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def epoch_seconds(value: object) -> float | None:
    """Return a Kubernetes time as seconds since the epoch, or None if it is not one."""
    if not isinstance(value, str):
        return None
    try:
        seconds = datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
    return seconds if math.isfinite(seconds) and "T" in value else None


def disruption(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the condition that says that the cluster itself took the pod away, or an empty object.

    Kubernetes has one for it, and Kueue another one of its own.
    """
    return condition(pod, "DisruptionTarget", "True") or condition(pod, "TerminationTarget", "True")


def condition(pod: Mapping[str, Any], kind: str, status: str) -> dict[str, Any]:
    """Return the pod's condition of this type if it has this status, else an empty object."""
    for item in mappings(mapping(pod, "status"), "conditions"):
        if item.get("type") == kind and item.get("status") == status:
            return item
    return {}


def node_lost(pod: Mapping[str, Any]) -> bool:
    """Tell whether the cluster lost sight of the node that the pod was assigned to."""
    if not text_of(mapping(pod, "spec"), "nodeName"):
        return False
    taken = disruption(pod)
    if (text_of(taken, "message") or "").rstrip(" .").endswith(_NODE_IS_GONE):
        return True
    words = (text_of(mapping(pod, "status"), "reason"), text_of(taken, "reason"))
    return any(word in _NODE_LOST for word in words)


def rejected(pod: Mapping[str, Any]) -> bool:
    """Tell whether the kubelet refused the pod before it created any container."""
    status = mapping(pod, "status")
    word, message = str(status.get("reason")), str(status.get("message"))
    return word in _REJECTIONS or word.startswith("OutOf") or message.startswith(_REJECTED)


def may_have_begun(pod: Mapping[str, Any], base: BaseStatus) -> bool:
    """Tell whether the base container of a pod that ended may have begun, though none says so.

    One that was created and shows neither an end nor an error was about to start when it was last seen: the
    kubelet says so as ``waiting: {}`` with a ``containerID`` (argoproj/argo-workflows#3879).
    """
    if node_lost(pod):
        return True
    if base.created and not base.ended and base.word not in START_FAILURES:
        return True
    if base.reported or rejected(pod) or failed_init(pod) is not None:
        return False
    return bool(mapping(pod, "status").get("startTime"))


def still_runs(pod: Mapping[str, Any], base: BaseStatus) -> bool:
    """Tell whether a container beside the base one keeps the pod from ending, for ever perhaps.

    Asked of the containers, not of the phase, which may come after their ends. Native sidecars do not count:
    Kubernetes ends them when the others have ended.
    """
    status = mapping(pod, "status")
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    beside = (item for item in mappings(status, "containerStatuses") if item.get("name") != base.name)
    return any(not mapping(item, "state").keys().isdisjoint(("running", "waiting")) for item in beside)


def ended_by_deletion(pod: Mapping[str, Any], base: BaseStatus) -> bool:
    """Tell whether the base container seems to have ended because the pod was deleted.

    The deletion time is when the grace period ends; once the container has ended, the kubelet sets it
    to the present and the grace period to zero.
    """
    metadata = mapping(pod, "metadata")
    deadline, finished = epoch_seconds(metadata.get("deletionTimestamp")), epoch_seconds(base.finished_at)
    grace = metadata.get("deletionGracePeriodSeconds")
    if deadline is None or finished is None or not isinstance(grace, int) or disruption(pod):
        return False
    if grace > 0:
        return finished >= deadline - grace
    return base.exit_code in _SIGNALLED and 0 <= deadline - finished <= _REMOVAL_SECONDS


def failed_init(pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return how an init container ended that failed, or could not be executed, if there is one."""
    for status in _init_statuses(pod):
        for state in (mapping(status, "state"), mapping(status, "lastState")):
            end = mapping(state, "terminated")
            if end and _exit_code(end) != 0 and not _end_of_nothing(end, status):
                return {"name": status.get("name"), **end}
    return None


def _init_statuses(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the statuses of init containers that must end before the base container begins."""
    sidecars = {
        item.get("name")
        for item in mappings(mapping(pod, "spec"), "initContainers")
        if item.get("restartPolicy") == "Always" and isinstance(item.get("name"), str)
    }
    for status in mappings(mapping(pod, "status"), "initContainerStatuses"):
        if not (isinstance(status.get("name"), str) and status["name"] in sidecars):
            yield status
