"""From a workload to the pod that runs it: token, payload, settings, template, mutation hook.

Called by worker threads. Reading a template file and asking, once per namespace, whether Secrets may
be created there are its only effects.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import to_json

from airflow_kubernetes_callbacks.author_options import permitted, split_reserved_kwarg
from airflow_kubernetes_callbacks.connection_test import (
    active_deadline,
    connection_test_identity,
)
from airflow_kubernetes_callbacks.errors import LaunchError
from airflow_kubernetes_callbacks.mutation_hook import apply_mutation_hook
from airflow_kubernetes_callbacks.payload import Payload, plan_payload
from airflow_kubernetes_callbacks.pod_identity import pod_identity
from airflow_kubernetes_callbacks.pod_spec import PodRequest, PodShapes, construct_callback_pod, pod_namespace
from airflow_kubernetes_callbacks.pod_template import STOCK_OPTION, load_template
from airflow_kubernetes_callbacks.reason import could_not_start
from airflow_kubernetes_callbacks.rules import PodRules, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kubernetes.client import models as k8s

    from airflow_kubernetes_callbacks.author_options import AuthorOptions
    from airflow_kubernetes_callbacks.payload import Delivery
    from airflow_kubernetes_callbacks.pod_settings import PodSettings
    from airflow_kubernetes_callbacks.settings import CallbackSettings

log = logging.getLogger(__name__)

#: Seconds for which the answer that Secrets may not be created is remembered: first, and from when it has been
#: given for a few. An API server that has just started says so too (kubernetes/kubernetes#121635).
_ASK_ONCE_MORE_AFTER = 1.0
_ASK_AGAIN_AFTER = 300.0
_SURE_AFTER = 5.0


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The pod of one launch, and what its Secret needs if it has one."""

    pod: k8s.V1Pod
    payload: Payload
    request: PodRequest

    def secret_parts(self) -> dict[str, Any]:
        """Return what :func:`~airflow_kubernetes_callbacks.payload.construct_payload_secret` needs."""
        return {
            "payload": self.payload,
            "labels": pod_identity(self.request).labels,
        }


@dataclass(frozen=True, slots=True)
class _Permission:
    """What the API server said of a permission, and since when it says so (monotonic seconds)."""

    allowed: bool
    since: float
    asked_at: float

    def holds(self, now: float) -> bool:
        """Tell whether to rely on it; a "no" is asked for again, since the permission may come later."""
        sure = self.asked_at - self.since >= _SURE_AFTER
        return self.allowed or now - self.asked_at < (_ASK_AGAIN_AFTER if sure else _ASK_ONCE_MORE_AFTER)


@dataclass
class LaunchPlanner:
    """Plans launches for one executor.

    :param namespace: where pods go if nothing else names a namespace.
    :param watched_namespaces: where pods may go; None for everywhere.
    :param stock_template: ``[kubernetes_executor] pod_template_file``.
    :param kube_image: image of the stock configuration, if set.
    :param fresh_token: returns a new token for a callback's id; the second argument asks for one that
        may also read Connections and Variables.
    :param may_create_secrets: asks the API server about a namespace.
    :param hook: ``pod_mutation_hook`` of Airflow's settings; called by one thread at a time.
    :param has_hook: the deployment has one, so that ``hook`` does something.
    :param executor_names: what the executor answers to: alias first.
    :param execution_timeout: ``[callbacks] callback_execution_timeout`` in seconds; 0 for none.
    """

    settings: CallbackSettings
    rules: PodRules
    me: str
    namespace: str
    watched_namespaces: Collection[str] | None
    stock_template: str
    kube_image: str | None
    fresh_token: Callable[[str, bool], str]
    may_create_secrets: Callable[[str], bool]
    hook: Callable[[k8s.V1Pod], object]
    has_hook: bool = True
    executor_names: tuple[str, ...] = ()
    team: str | None = None
    execution_timeout: int = 0
    _secrets_allowed: dict[str, _Permission] = field(default_factory=dict)
    _secrets_lock: threading.Lock = field(default_factory=threading.Lock)
    _shapes: PodShapes = field(default_factory=PodShapes)
    #: Building a pod takes the processor alone: threads that do it at the same time only get in each other's
    #: way, and in that of the scheduler's. Nothing that waits for a file or a server is done under it but the hook.
    _planning: threading.Lock = field(default_factory=threading.Lock)

    def plan(self, workload: Any, attempt: int) -> LaunchPlan:
        """Return the pod for this launch, with a fresh token.

        :raises LaunchError: the callback cannot be launched like this, now or later; the text says why.
        """
        try:
            return self._plan(workload, attempt)
        except LaunchError as error:
            raise type(error)(could_not_start(str(error))) from error

    def _plan(self, workload: Any, attempt: int) -> LaunchPlan:
        author, data = split_reserved_kwarg(workload.callback.data)
        subject = self._subject(data)
        settings = self._settings_for(author, subject)
        template, namespace = self._placed(settings)
        in_secret = self._carried_in_secret(namespace)  # asked once: the answer may change meanwhile
        with self._planning:
            payload = self._payload(workload, data, in_secret=in_secret)
        request = PodRequest(
            callback_id=workload.callback.id,
            attempt=attempt,
            owner=self.me,
            dag_id=subject.dag_id,
            run_id=run_id_of(workload),
            callback_path=subject.callback_path,
            namespace=namespace,
            payload=payload,
            template=template,
            settings=settings,
            kube_image=self.kube_image,
            deadline_id=data.get("deadline_id"),
            team=self.team,
            executor=self.executor_names[0] if self.executor_names else None,
            finalizer=self.settings.pod_finalizer,
            active_deadline_seconds=self._active_deadline(),
            security_context=self.settings.security_context,
            service_account_token=self.settings.service_account_token,
            watched_namespaces=self.watched_namespaces,
        )
        return self._built(request)

    def namespace_of(self, data: Mapping[str, Any]) -> str | None:
        """Return where the pod of the callback with this ``data`` goes; None where that cannot be told."""
        if self.has_hook:
            return None  # which may send it anywhere
        try:
            author, rest = split_reserved_kwarg(data)
            return self._placed(self._settings_for(author, self._subject(rest)))[1]
        except Exception as error:  # noqa: BLE001 - there is no pod of such a callback
            log.debug("The namespace of a callback's pod cannot be told: %s", error)
            return None

    def _subject(self, data: Mapping[str, Any]) -> Subject:
        path, dag_id = str(data.get("path") or ""), str(data.get("dag_id") or "")
        return Subject(path, dag_id, self.team, self.executor_names)

    def _settings_for(self, author: AuthorOptions | None, subject: Subject) -> PodSettings:
        return self.rules.settings_for(subject, permitted(author, self.settings.author_settings))

    def plan_connection_test(self, workload: Any) -> LaunchPlan:
        """Return the pod of a connection test: that of a callback to which no rule applies.

        :raises LaunchError: it cannot be launched like this; the text says why.
        """
        settings = self.rules.options
        try:
            template, namespace = self._placed(settings)
            payload = self._carried(workload.model_dump_json(), in_secret=self._carried_in_secret(namespace))
            request = PodRequest(
                callback_id=str(workload.connection_test_id),
                attempt=1,
                owner=self.me,
                dag_id="",
                run_id="",
                callback_path="",
                namespace=namespace,
                payload=payload,
                template=template,
                settings=settings,
                kube_image=self.kube_image,
                active_deadline_seconds=active_deadline(workload.timeout, self.settings),
                security_context=self.settings.security_context,
                service_account_token=self.settings.service_account_token,
                watched_namespaces=self.watched_namespaces,
                identity=connection_test_identity(
                    str(workload.connection_test_id),
                    workload.connection_id,
                    owner=self.me,
                    executor=self.executor_names[0] if self.executor_names else None,
                    team=self.team,
                ),
            )
            return self._built(request)
        except LaunchError as error:
            raise type(error)(could_not_start(str(error))) from error

    def _built(self, request: PodRequest) -> LaunchPlan:
        with self._planning:
            pod = construct_callback_pod(request, self._shapes)
            pod = apply_mutation_hook(pod, self.hook, watched_namespaces=self.watched_namespaces)
        return LaunchPlan(pod, request.payload, request)

    def _placed(self, settings: PodSettings) -> tuple[k8s.V1Pod, str]:
        """Return the template, and the namespace where the pod goes."""
        template = self._template(settings)
        return template, pod_namespace(settings, template, self.namespace, self.watched_namespaces)

    def _template(self, settings: PodSettings) -> k8s.V1Pod:
        if settings.pod_template_file:
            return load_template(settings.pod_template_file)
        if not self.stock_template:
            raise LaunchError(f"no pod template: set {STOCK_OPTION}.")
        return load_template(self.stock_template, named_in=STOCK_OPTION)

    def _payload(self, workload: Any, data: dict[str, Any], *, in_secret: bool) -> Payload:
        callback_id = workload.callback.id
        # Only a Secret may carry a token that reads Connections and Variables: the pod's spec is
        # readable to many, and ends up in logs and audit trails.
        wide = self.settings.connections_and_variables and in_secret
        token = self.fresh_token(callback_id, wide)
        callback = workload.callback.model_copy(update={"data": data})
        complete = workload.model_copy(update={"token": token, "callback": callback})
        try:
            text = complete.model_dump_json()
        except Exception as error:  # pydantic's own errors, and those of what the kwargs hold
            raise LaunchError(
                f"the callback's kwargs cannot be written as JSON{_unwritable(data)} ({type(error).__name__}: "
                f"{error}). Pass plain values: texts, numbers, lists, dictionaries."
            ) from error
        return self._carried(text, in_secret=in_secret)

    def _carried(self, text: str, *, in_secret: bool) -> Payload:
        delivery = cast("Delivery", self.settings.payload_delivery)
        return plan_payload(text, delivery, secrets_allowed=in_secret)

    def _carried_in_secret(self, namespace: str) -> bool:
        delivery = self.settings.payload_delivery
        return delivery == "secret" or (delivery == "auto" and self._secrets_allowed_in(namespace))

    def _secrets_allowed_in(self, namespace: str) -> bool:
        with self._secrets_lock:  # threads that plan at the same time ask, and say, this once
            before = self._secrets_allowed.get(namespace)
            if before is not None and before.holds(time.monotonic()):
                return before.allowed
            try:
                allowed = self.may_create_secrets(namespace)
            except Exception:
                if before is None:
                    raise
                # What was known has to do until the API server answers.
                self._secrets_allowed[namespace] = dataclasses.replace(before, asked_at=time.monotonic())
                return before.allowed
            now = time.monotonic()
            since = before.since if before is not None and not allowed else now
            self._secrets_allowed[namespace] = _Permission(allowed, since, now)
            if not allowed and before is None:
                log.warning(
                    "Workloads of callbacks travel as arguments in namespace %s (at most 128 KiB, readable to "
                    "everyone who may read pods, and on Airflow 3.3 without access to Connections): the "
                    "scheduler's service account lacks the verb 'create' on secrets there.",
                    namespace,
                )
            return allowed

    def secret_was_refused(self, namespace: str) -> None:
        """Ask again, before the next launch, whether Secrets may be created there."""
        with self._secrets_lock:
            self._secrets_allowed.pop(namespace, None)

    def _active_deadline(self) -> int | None:
        """Return the backstop in seconds from the kubelet's acceptance of the pod, image pull included."""
        if self.execution_timeout <= 0:
            return None
        grace = self.settings.pending_timeout + self.settings.active_deadline_margin
        return int(self.execution_timeout + grace)


def _unwritable(data: dict[str, Any]) -> str:
    """Return the names of the arguments that cannot be written as JSON, for a message."""
    kwargs = data.get("kwargs")
    names = []
    for name, value in kwargs.items() if isinstance(kwargs, dict) else ():
        try:
            to_json(value)
        except Exception:  # noqa: BLE001 - as above
            names.append(repr(name))
    return f": {', '.join(names)}" if names else ""


def run_id_of(workload: Any) -> str:
    """Return the Dag run's id: the part of the log path between the Dag's id and the callback's.

    ``executor_callbacks/{dag_id}/{run_id}/{callback_id}``, and a run id may have slashes in it.
    """
    path = str(workload.log_path or "")
    prefix = f"executor_callbacks/{workload.callback.data.get('dag_id') or ''}/"
    suffix = f"/{workload.callback.id}"
    return path.removeprefix(prefix).removesuffix(suffix) if path.startswith(prefix) else ""
