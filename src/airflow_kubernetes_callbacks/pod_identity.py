"""What a pod is known by: its name, labels and annotations, given and put back. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks import identity
from airflow_kubernetes_callbacks.errors import LaunchError

if TYPE_CHECKING:
    from kubernetes.client import models as k8s

    from airflow_kubernetes_callbacks.pod_spec import PodRequest

#: The API server accepts this much as the sum of all annotation keys and values.
MAX_ANNOTATION_BYTES = 262_144


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """What a pod is known by, its Secret too; nobody else has a say in it."""

    name: str
    labels: dict[str, str]
    annotations: dict[str, str]


def pod_identity(request: PodRequest) -> PodIdentity:
    """Return what the pod of this request is known by."""
    return request.identity or PodIdentity(
        identity.pod_name(request.callback_id, request.attempt),
        identity_labels(request),
        identity_annotations(request),
    )


def identity_labels(request: PodRequest) -> dict[str, str]:
    """Return the labels by which the pod, and its Secret, are found."""
    labels = {
        identity.OWNER_LABEL: identity.label_value(request.owner),
        identity.WORKLOAD_TYPE_LABEL: identity.CALLBACK_WORKLOAD,
        identity.CALLBACK_ID_LABEL: request.callback_id,
        identity.ATTEMPT_LABEL: str(request.attempt),
        identity.DAG_ID_LABEL: identity.label_value(request.dag_id),
        identity.RUN_ID_LABEL: identity.label_value(request.run_id),
    }
    if request.executor:
        labels[identity.EXECUTOR_LABEL] = identity.label_value(request.executor)
    if request.team:
        labels[identity.TEAM_LABEL] = identity.label_value(request.team)
    return labels


def identity_annotations(request: PodRequest) -> dict[str, str]:
    """Return the annotations with the full values, for people and for pod mutation hooks."""
    annotations = {
        identity.CALLBACK_ID_ANNOTATION: request.callback_id,
        identity.DAG_ID_ANNOTATION: request.dag_id,
        identity.RUN_ID_ANNOTATION: request.run_id,
        identity.CALLBACK_PATH_ANNOTATION: request.callback_path,
    }
    if request.deadline_id:
        annotations[identity.DEADLINE_ID_ANNOTATION] = request.deadline_id
    return annotations


def put_identity(pod: k8s.V1Pod, labels: dict[str, str], annotations: dict[str, str]) -> None:
    """Give the pod exactly these identity keys, whatever the template or a hook has put there."""
    metadata = pod.metadata
    foreign = {
        key: value for key, value in (metadata.labels or {}).items() if key not in identity.RESERVED_KEYS
    }
    metadata.labels = {**foreign, **labels}
    foreign = {
        key: value for key, value in (metadata.annotations or {}).items() if key not in identity.RESERVED_KEYS
    }
    metadata.annotations = {**foreign, **annotations}


def check_annotations(pod: k8s.V1Pod) -> None:
    annotations: dict[str, str] = pod.metadata.annotations
    sizes = {
        key: len(str(key).encode("utf-8", "replace")) + len(str(value).encode("utf-8", "replace"))
        for key, value in annotations.items()
    }
    if (total := sum(sizes.values())) > MAX_ANNOTATION_BYTES:
        largest = max(sizes, key=lambda key: sizes[key])
        raise LaunchError(
            f"the pod's annotations have {total:,} bytes, Kubernetes accepts {MAX_ANNOTATION_BYTES:,}; the "
            f"largest is {largest!r} with {sizes[largest]:,} bytes. Look for it in the pod template, the "
            "rules and the pod_mutation_hook."
        )
