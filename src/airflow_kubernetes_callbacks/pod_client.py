"""The only module that asks the API server for something on behalf of callbacks.

Requests and answers are plain JSON (``_preload_content=False``): client models cost a millisecond
each and would have to be taken apart again. Every method makes bounded requests, and raises what
the client raises; :func:`~airflow_kubernetes_callbacks.api_errors.classify` says what that means.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, arrived, classify, mark_arrived, sends_once
from airflow_kubernetes_callbacks.clocks import ApiClock
from airflow_kubernetes_callbacks.errors import LaunchError, SecretTakenError
from airflow_kubernetes_callbacks.identity import (
    BASE_CONTAINER,
    CONNECTION_TEST_WORKLOAD,
    DONE_LABEL,
    FINDING_LABELS,
    OWNER_LABEL,
    RESULT_FINALIZER,
    callback_id_of,
    callback_selector,
    connection_test_id_of,
)
from airflow_kubernetes_callbacks.outcome import PodView, pod_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kubernetes import client

#: Connect and read timeout in seconds of one request, where ``kube_client_request_args`` sets none.
REQUEST_TIMEOUT = (10, 30)
LIST_PAGE_SIZE = 500
#: The same for what is only good to know: a failure's log and events.
LOG_TIMEOUT = (5, 10)
#: Seconds for a whole log, however often a piece of it comes.
LOG_DEADLINE = 30.0
_LOG_CUT = b"\n(The rest of the log did not come in time.)\n"


def _read(response: Any) -> dict[str, Any]:
    try:
        document = json.loads(response.data)
    finally:
        response.release_conn()
    if not isinstance(document, dict):
        raise ValueError("the answer is no JSON object: it does not come from a Kubernetes API server")
    return document


def _pod(response: Any) -> dict[str, Any]:
    """Return the pod in the answer; what is no pod must not pass for one that is not there."""
    document = _read(response)
    if document.get("kind") != "Pod":
        raise ValueError("the answer holds no pod: it does not come from a Kubernetes API server")
    return document


def _lost(
    asked: Mapping[str, Any], created: Mapping[str, Any], id_of: Callable[[Mapping[str, Any]], str | None]
) -> list[str]:
    """Return what the created pod lacks, in words, of that by which lists and watches find it."""
    wanted, found = asked.get("metadata") or {}, created.get("metadata") or {}
    labels, kept = wanted.get("labels") or {}, found.get("labels") or {}
    lost = [f"label {key}" for key in sorted(FINDING_LABELS) if labels.get(key) != kept.get(key)]
    return lost if id_of(wanted) == id_of(found) else ["annotations", *lost]


def _items(page: Mapping[str, Any]) -> list[Any]:
    """Return what a list holds; something that is no list must not pass for an empty one."""
    items = page.get("items")
    if items is None and str(page.get("kind")).endswith("List"):
        return []
    if not isinstance(items, list):
        raise ValueError("the answer to a list request holds no items: it is not that of an API server")
    return items


def _owners(document: Mapping[str, Any]) -> frozenset[str]:
    """Return the uids of what an object belongs to."""
    references = (document.get("metadata") or {}).get("ownerReferences") or ()
    return frozenset(str(reference.get("uid")) for reference in references)


class PodClient:
    """Callback pods and their Secrets in the namespaces that this executor may use.

    :param core: the executor's own API client.
    :param namespaces: where callback pods may be; ``None`` means every namespace (one cluster-wide
        list), as the stock executor's multi-namespace mode without a list has it.
    :param request_args: ``[kubernetes_executor] kube_client_request_args``.
    """

    def __init__(
        self,
        core: client.CoreV1Api,
        *,
        namespaces: Sequence[str] | None,
        request_args: Mapping[str, Any] | None = None,
    ) -> None:
        self._core = core
        #: What creations tell of the API server's clock.
        self.clock = ApiClock()
        self.namespaces = tuple(namespaces) if namespaces is not None else None
        self._args: dict[str, Any] = {
            "_request_timeout": REQUEST_TIMEOUT,
            **(request_args or {}),
            "_preload_content": False,
        }

    def create_pod(
        self,
        namespace: str,
        body: Mapping[str, Any],
        *,
        id_of: Callable[[Mapping[str, Any]], str | None] = callback_id_of,
    ) -> PodView:
        """Create the pod and return it as the API server stored it.

        :raises LaunchError: admission took off what it is known by. It is deleted again: nobody would know
            its result, or that it is there.
        """
        asked_at = time.time()
        created = self._create(namespace, body)
        answered_at = time.time()
        view = pod_view(created, id_of=id_of)
        lost = _lost(body, created, id_of)
        if view is None or lost:
            with arrived():
                self._delete_at_once(created)
            raise LaunchError(
                f"Pod {namespace}/{body['metadata']['name']} came back without its {' and '.join(lost)} and was "
                "deleted again. Keep admission webhooks from changing labels and annotations of such pods."
            )
        if view.created_at:
            self.clock.measure(asked_at, answered_at, view.created_at)
        return view

    def _create(self, namespace: str, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return _pod(self._core.create_namespaced_pod(namespace, body, **self._args))
        except Exception as error:
            # With retries of the deployment's own, a try before the one that this error is about may have arrived.
            if classify(error).status is None and not sends_once(self._core.api_client.configuration.retries):
                mark_arrived(error)
            raise

    def _delete_at_once(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        body = {"preconditions": {"uid": metadata["uid"]}, "gracePeriodSeconds": 0}
        _read(
            self._core.delete_namespaced_pod(metadata["name"], metadata["namespace"], body=body, **self._args)
        )

    def create_secret(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Create the Secret; that it is there already is fine if it belongs to the same pod.

        A launch that is made again has the name of the one before, whose Secret goes a moment after its pod.
        Who may not read Secrets cannot tell, and goes on: a pod whose Secret goes does not start, and is
        given up like any that does not.

        :raises SecretTakenError: the Secret that is there is another pod's.
        """
        try:
            _read(self._core.create_namespaced_secret(namespace, body, **self._args))
        except Exception as error:
            if classify(error).answer is not ApiAnswer.ALREADY_EXISTS:
                raise
            name = body["metadata"]["name"]
            if not _owners(body) <= self._owners_of_secret(namespace, name, unknown=_owners(body)):
                raise SecretTakenError(
                    f"Secret {namespace}/{name} is there already and is not of this pod. If it is that of an "
                    "earlier pod, Kubernetes removes it."
                ) from error

    def _owners_of_secret(self, namespace: str, name: str, *, unknown: frozenset[str]) -> frozenset[str]:
        try:
            return _owners(_read(self._core.read_namespaced_secret(name, namespace, **self._args)))
        except Exception as error:
            answer = classify(error).answer
            if answer not in (ApiAnswer.FORBIDDEN, ApiAnswer.NOT_FOUND):
                raise
            return unknown if answer is ApiAnswer.FORBIDDEN else frozenset()

    def read_pod(
        self,
        namespace: str,
        name: str,
        *,
        id_of: Callable[[Mapping[str, Any]], str | None] = callback_id_of,
    ) -> PodView | None:
        """Return the pod, or None where there is none (or one that is no callback's)."""
        try:
            pod = _pod(self._core.read_namespaced_pod(name, namespace, **self._args))
            return pod_view(pod, id_of=id_of)
        except Exception as error:
            if classify(error).answer is ApiAnswer.NOT_FOUND:
                return None
            raise

    def delete_pod(
        self, pod: PodView, *, only_if_unchanged: bool = False, grace_seconds: int | None = None
    ) -> bool:
        """Ask for the pod's deletion; False where it is gone already.

        The uid is a precondition, so a new pod of the same name is never hit.

        :param only_if_unchanged: also require the resourceVersion that was seen, so that a pod whose
            container has begun since is left alone (the answer is then a conflict).
        """
        preconditions = {"uid": pod.uid}
        if only_if_unchanged:
            preconditions["resourceVersion"] = pod.resource_version
        body: dict[str, Any] = {"preconditions": preconditions}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            _read(self._core.delete_namespaced_pod(pod.name, pod.namespace, body=body, **self._args))
        except Exception as error:
            if classify(error).answer is ApiAnswer.NOT_FOUND:
                return False
            raise
        return True

    def adopt_pod(self, pod: PodView, owner: str) -> PodView | None:
        """Put *owner*'s label on the pod if nobody changed it since it was seen; return it as it is now."""
        metadata = {"resourceVersion": pod.resource_version, "uid": pod.uid, "labels": {OWNER_LABEL: owner}}
        return pod_view(self._patch_metadata(pod, metadata), id_of=lambda _: pod.callback_id)

    def mark_done(self, pod: PodView) -> None:
        """Label a pod that is kept (``delete_worker_pods = False``) so that no list returns it again."""
        self._patch_metadata(pod, {"uid": pod.uid, "labels": {DONE_LABEL: "True"}})

    def remove_finalizer(self, pod: PodView) -> None:
        """Take our finalizer, and no other, off the pod."""
        patch = {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": [RESULT_FINALIZER]}
        try:
            self._patch_metadata(pod, patch)
        except Exception as error:
            if classify(error).answer is not ApiAnswer.NOT_FOUND:
                raise

    def _patch_metadata(self, pod: PodView, metadata: Mapping[str, Any]) -> dict[str, Any]:
        # Labels, annotations and finalizers only: a patch with a spec is refused where an admission
        # webhook has changed the spec (apache/airflow#23885).
        body = {"metadata": metadata}
        return _pod(self._core.patch_namespaced_pod(pod.name, pod.namespace, body, **self._args))

    def log_tail(self, pod: PodView, *, limit_bytes: int) -> bytes:
        """Return the last *limit_bytes* at most of the base container's log.

        The API limits from the front only, so lines are counted from the back and the rest is cut here.
        A log that has not come to its end in time ends with a line that says so.
        """
        deadline = time.monotonic() + LOG_DEADLINE
        lines = max(1, limit_bytes // 64)
        response = self._core.read_namespaced_pod_log(
            pod.name,
            pod.namespace,
            container=BASE_CONTAINER,
            tail_lines=lines,
            **{**self._args, "_request_timeout": LOG_TIMEOUT},
        )
        tail = b""
        try:
            for chunk in response.stream(65536):
                tail = (tail + chunk)[-limit_bytes:]
                if time.monotonic() > deadline:
                    response.close()  # what is still to come must not be read as the answer to the next request
                    tail = (tail + _LOG_CUT)[-limit_bytes:]
                    break
        finally:
            response.release_conn()
        return tail

    def warning_events(self, pod: PodView) -> list[dict[str, Any]]:
        """Return the warning events about the pod, as JSON objects."""
        found = _read(
            self._core.list_namespaced_event(
                pod.namespace,
                field_selector=f"involvedObject.uid={pod.uid},type=Warning",
                limit=20,
                **{**self._args, "_request_timeout": LOG_TIMEOUT},
            )
        )
        return [event for event in _items(found) if isinstance(event, dict)]

    def may(self, verb: str, resource: str, namespace: str) -> bool:
        """Ask the API server whether this executor's account may do *verb* on *resource*.

        Who may not even ask is taken to lack the permission: nothing must depend on it then.
        """
        from kubernetes.client import AuthorizationV1Api

        attributes = {"verb": verb, "resource": resource, "namespace": namespace}
        review = {"spec": {"resourceAttributes": attributes}}
        api = AuthorizationV1Api(self._core.api_client)
        try:
            answer = _read(api.create_self_subject_access_review(review, **self._args))
        except Exception as error:
            if classify(error).retryable:
                raise
            return False
        return bool((answer.get("status") or {}).get("allowed"))

    def list_pods(self, *, namespace: str | None = None, **selector: Any) -> Iterator[PodView]:
        """Yield every callback pod that is not done, of one namespace or of all, page by page.

        A list that breaks off (an expired continue token answers 410) raises: what was yielded so
        far is then not complete, and the caller must not conclude anything from an absence.
        """
        for item in self._list(callback_selector(**selector), namespace):
            if (view := pod_view(item)) is not None:
                yield view

    def list_connection_tests(self) -> Iterator[PodView]:
        """Yield every connection test's pod that is not done, as :meth:`list_pods` does."""
        for item in self._list(callback_selector(workload_type=CONNECTION_TEST_WORKLOAD)):
            if (view := pod_view(item, id_of=connection_test_id_of)) is not None:
                yield view

    def _list(self, selector: str, only: str | None = None) -> Iterator[dict[str, Any]]:
        everywhere = self.namespaces if self.namespaces is not None else (None,)
        for namespace in (only,) if only is not None else everywhere:
            token: str | None = None
            while True:
                page = self._list_page(namespace, token, selector)
                yield from _items(page)
                token = (page.get("metadata") or {}).get("continue")
                if not token:
                    break

    def _list_page(self, namespace: str | None, token: str | None, selector: str) -> dict[str, Any]:
        query: dict[str, Any] = {"label_selector": selector, "limit": LIST_PAGE_SIZE, **self._args}
        if token:
            query["_continue"] = token
        if namespace is None:
            return _read(self._core.list_pod_for_all_namespaces(**query))
        return _read(self._core.list_namespaced_pod(namespace, **query))
