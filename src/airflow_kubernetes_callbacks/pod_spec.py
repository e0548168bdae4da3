"""The pod of one launch of one callback. Pure: a request in, the client's model of a pod out.

What wins over what, weakest first:

1. the template: that of the rule, else that of ``[kubernetes_callbacks]``, else the stock one;
2. ``[kubernetes_executor] worker_container_repository`` and ``_tag`` (``kube_image``), where set, over
   the template's image, as the stock reconciliation has it;
3. the options of ``[kubernetes_callbacks]``, the matching rule, the Dag author's choice
   (:mod:`airflow_kubernetes_callbacks.rules` merges these three);
4. what makes it a callback pod: name, identity labels and annotations, the command,
   ``restartPolicy: Never``, the termination message policy.

``pod_mutation_hook`` sees the result. It may change anything but 4, see :mod:`airflow_kubernetes_callbacks.mutation_hook`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
from kubernetes.client import models as k8s

from airflow_kubernetes_callbacks import identity
from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.hardening import harden
from airflow_kubernetes_callbacks.model_copy import copied
from airflow_kubernetes_callbacks.payload import (
    WORKLOAD_DIRECTORY,
    WORKLOAD_FILE_MODE,
    WORKLOAD_KEY,
    WORKLOAD_VOLUME,
    Payload,
    SecretPayload,
)
from airflow_kubernetes_callbacks.pod_identity import check_annotations, pod_identity, put_identity
from airflow_kubernetes_callbacks.pod_settings import PodSettings

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_kubernetes_callbacks.pod_identity import PodIdentity
    from airflow_kubernetes_callbacks.pod_settings import Toleration


#: Stands in a shape for the name of the pod, which is its Secret's name too.
_ANY_NAME = "callback"


@dataclass(frozen=True, slots=True)
class PodRequest:
    """Everything that decides how the pod of one launch looks."""

    callback_id: str
    attempt: int
    #: The job id of the scheduler that launches it.
    owner: str
    dag_id: str
    run_id: str
    callback_path: str
    #: Where the pod goes if no option, rule or template names a namespace.
    namespace: str
    payload: Payload
    template: k8s.V1Pod
    settings: PodSettings = field(default_factory=PodSettings)
    #: ``kube_image`` of the stock executor, if set.
    kube_image: str | None = None
    deadline_id: str | None = None
    team: str | None = None
    executor: str | None = None
    finalizer: bool = False
    active_deadline_seconds: int | None = None
    #: Security context of the base container: ``restricted`` or ``none``.
    security_context: str = "restricted"
    service_account_token: bool = False
    #: The namespaces that this executor watches; None for all.
    watched_namespaces: Collection[str] | None = None
    #: What the pod is known by, if it is not a callback's.
    identity: PodIdentity | None = None


def construct_callback_pod(request: PodRequest, shapes: PodShapes | None = None) -> k8s.V1Pod:
    """Build the pod, before ``pod_mutation_hook``.

    :param shapes: what pods of such requests have in common, remembered from one to the next.
    :raises LaunchError: if no such pod can be made of the template and the settings.
    """
    shape = construct_pod_shape(request) if shapes is None else shapes.of(request)
    pod = copied(shape)
    known_by = pod_identity(request)
    pod.metadata.name = known_by.name
    put_identity(pod, known_by.labels, known_by.annotations)
    base_container_of(pod).args = list(request.payload.command)
    for volume in pod.spec.volumes or ():
        if volume.name == WORKLOAD_VOLUME and isinstance(request.payload, SecretPayload):
            volume.secret.secret_name = known_by.name
    check_annotations(pod)
    return pod


class PodShapes:
    """Shapes that were built before, by what they are built from. Safe to use from several threads."""

    _MOST = 64

    def __init__(self) -> None:
        # the template is part of the value: while it is kept, its id is nobody else's
        self._known: dict[object, tuple[k8s.V1Pod, k8s.V1Pod]] = {}

    def of(self, request: PodRequest) -> k8s.V1Pod:
        """Return the shape for *request*; it is shared, so not to be changed."""
        key = _shape_key(request)
        if (known := self._known.get(key)) is not None:
            return known[1]
        shape = construct_pod_shape(request)
        if len(self._known) >= self._MOST:
            self._known.clear()
        self._known[key] = (request.template, shape)
        return shape


def _shape_key(request: PodRequest) -> object:
    """Return what the shape is made from. Templates are shared objects: the same file is the same object."""
    return (
        id(request.template),
        repr(request.settings),
        request.kube_image,
        request.namespace,
        isinstance(request.payload, SecretPayload),
        request.finalizer,
        request.active_deadline_seconds,
        request.security_context,
        request.service_account_token,
        tuple(request.watched_namespaces) if request.watched_namespaces is not None else None,
    )


def construct_pod_shape(request: PodRequest) -> k8s.V1Pod:
    """Build what the pods of all such requests have in common: everything but name, identity and payload.

    :raises LaunchError: as :func:`construct_callback_pod`.
    """
    template = copied(request.template)
    _check_volumes(template, request)
    try:
        pod = PodGenerator.reconcile_pods(template, _overlay(request, template))
    except Exception as error:
        raise LaunchError(
            f"the pod template cannot be combined with the callback's pod: {type(error).__name__}: {error}. "
            "Correct pod_template_file."
        ) from error
    _settle(pod, request)
    if not base_container_of(pod).image:
        raise LaunchError(
            "no image for the callback's pod: set [kubernetes_callbacks] image, or an image in the container "
            f"{identity.BASE_CONTAINER!r} of the pod template, or "
            "[kubernetes_executor] worker_container_repository and worker_container_tag."
        )
    if request.security_context == "restricted":
        harden(pod, base_container_of(pod))
    return pod


def _check_volumes(template: k8s.V1Pod, request: PodRequest) -> None:
    volumes = (template.spec.volumes if template.spec else None) or ()
    taken = any(getattr(volume, "name", None) == WORKLOAD_VOLUME for volume in volumes)
    if taken and isinstance(request.payload, SecretPayload):
        raise LaunchError(
            f"the pod template has a volume named {WORKLOAD_VOLUME!r}, the name under which the callback's workload "
            "is mounted. Give the volume in pod_template_file another name."
        )


def pod_namespace(
    settings: PodSettings, template: k8s.V1Pod, default: str, watched: Collection[str] | None
) -> str:
    """Return the namespace: a setting's, else the template's if it is watched, else the executor's."""
    if settings.namespace:
        return settings.namespace
    named: str | None = template.metadata.namespace if template.metadata else None
    return named if named and (watched is None or named in watched) else default


def base_container_of(pod: k8s.V1Pod) -> k8s.V1Container:
    """Return the container that runs the callback: the one named ``base``, else the first."""
    containers: list[k8s.V1Container] = pod.spec.containers
    return containers[_base_index(containers)]


def _base_index(containers: list[k8s.V1Container]) -> int:
    names = [container.name for container in containers]
    return names.index(identity.BASE_CONTAINER) if identity.BASE_CONTAINER in names else 0


def _overlay(request: PodRequest, template: k8s.V1Pod) -> k8s.V1Pod:
    """Return what is laid over the template.

    The stock reconciliation pairs containers by position; the ones before the base container are
    paired with empty ones of their own name, so that it merges with the base wherever that stands.
    """
    before = template.spec.containers if template.spec and template.spec.containers else []
    before = before[: _base_index(before)]
    settings = request.settings
    base = k8s.V1Container(
        name=identity.BASE_CONTAINER,
        image=settings.image or request.kube_image,
        env=[k8s.V1EnvVar(name="AIRFLOW_IS_K8S_EXECUTOR_POD", value="True")],
    )
    spec = k8s.V1PodSpec(
        containers=[*(k8s.V1Container(name=container.name) for container in before), base],
        restart_policy="Never",
        service_account_name=settings.service_account_name,
        priority_class_name=settings.priority_class_name,
        tolerations=[_toleration(item) for item in settings.tolerations or []] or None,
    )
    if isinstance(request.payload, SecretPayload):
        _mount_workload(spec, base)
    return k8s.V1Pod(
        api_version="v1",
        kind="Pod",
        metadata=k8s.V1ObjectMeta(
            name=_ANY_NAME,
            namespace=pod_namespace(
                settings, request.template, request.namespace, request.watched_namespaces
            ),
            labels=dict(settings.labels),
            annotations=dict(settings.annotations),
        ),
        spec=spec,
    )


def _mount_workload(spec: k8s.V1PodSpec, base: k8s.V1Container) -> None:
    source = k8s.V1SecretVolumeSource(
        secret_name=_ANY_NAME,
        default_mode=WORKLOAD_FILE_MODE,
        items=[k8s.V1KeyToPath(key=WORKLOAD_KEY, path=WORKLOAD_KEY)],
    )
    spec.volumes = [k8s.V1Volume(name=WORKLOAD_VOLUME, secret=source)]
    base.volume_mounts = [
        k8s.V1VolumeMount(name=WORKLOAD_VOLUME, mount_path=WORKLOAD_DIRECTORY, read_only=True)
    ]


def _toleration(item: Toleration) -> k8s.V1Toleration:
    return k8s.V1Toleration(
        effect=item.effect,
        key=item.key,
        operator=item.operator,
        toleration_seconds=item.toleration_seconds,
        value=item.value,
    )


def _settle(pod: k8s.V1Pod, request: PodRequest) -> None:
    """Set, on the combined pod, what the reconciliation cannot express or must not decide."""
    spec, base, settings = pod.spec, base_container_of(pod), request.settings
    base.termination_message_policy = "FallbackToLogsOnError"
    for init in spec.init_containers or ():
        # Its log goes with the pod: the end of it is the reason why the callback could not start.
        init.termination_message_policy = init.termination_message_policy or "FallbackToLogsOnError"
    never_restart(base)
    if settings.service_account_name:
        spec.service_account = None
    if settings.priority_class_name:
        spec.priority = None
    if settings.node_selector:
        spec.node_selector = {**(spec.node_selector or {}), **settings.node_selector}
    if settings.resources.requests or settings.resources.limits:
        base.resources = _combined_resources(base.resources, settings)
    if request.service_account_token:
        spec.automount_service_account_token = True
    elif spec.automount_service_account_token is None:
        spec.automount_service_account_token = False
    if request.active_deadline_seconds is not None:
        limits = (spec.active_deadline_seconds, request.active_deadline_seconds)
        spec.active_deadline_seconds = min(limit for limit in limits if limit is not None)
    pod.metadata.generate_name = None
    if request.finalizer:
        pod.metadata.finalizers = [*(pod.metadata.finalizers or []), identity.RESULT_FINALIZER]


def never_restart(base: k8s.V1Container) -> None:
    """Take off what would run the callback again within its pod (KEP-5307)."""
    for name in ("restart_policy", "restart_policy_rules"):
        if getattr(base, name, None) is not None:
            setattr(base, name, None)


def _combined_resources(
    present: k8s.V1ResourceRequirements | None, settings: PodSettings
) -> k8s.V1ResourceRequirements:
    resources = present or k8s.V1ResourceRequirements()
    if settings.resources.requests:
        resources.requests = {**(resources.requests or {}), **settings.resources.requests}
    if settings.resources.limits:
        resources.limits = {**(resources.limits or {}), **settings.resources.limits}
    return resources
