"""The watch on pods, with a branch for those of callbacks.

The stock watcher takes every event apart as a task's and dies on a pod without task annotations.
Here events are parted before that: a pod with a ``callback_id`` annotation becomes a
:class:`~airflow_kubernetes_callbacks.outcome.PodView` and goes to the scheduler process under that
id. One that only its labels show to be a callback's goes nowhere: admission, or somebody, took its
annotation off. Every other event takes the stock path, unchanged.

The watch only makes the next look come sooner. What it misses, the reconciler's list finds.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import KubernetesWatch
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import KubernetesJobWatcher
from kubernetes.client import ApiClient
from urllib3.exceptions import ReadTimeoutError

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, ApiFailure, classify
from airflow_kubernetes_callbacks.identity import (
    CALLBACK_ID_ANNOTATION,
    CALLBACK_ID_LABEL,
    CALLBACK_WORKLOAD,
    WORKLOAD_TYPE_LABEL,
)
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, PodView, pod_view
from airflow_kubernetes_callbacks.pauses import LONGEST_PAUSE, growing_pause

if TYPE_CHECKING:
    from collections.abc import Iterator

#: State of a watch message that asks for a full comparison: events may have been missed.
RESYNC = "callback_resync"
#: State of a watch message about a pod that left the selection, which says nothing of where it is
#: now: another scheduler took it over, it was labelled done, or it was deleted without grace.
MOVED = "callback_moved"


class PlainView(dict[str, Any]):
    """A view as strings and numbers, which may cross a process border; short where it is logged."""

    def __repr__(self) -> str:
        return f"<{self.get('outcome')}>"


def view_to_plain(view: PodView) -> PlainView:
    """Return the view as a dict of strings and numbers."""
    return PlainView({**dataclasses.asdict(view), "outcome": view.outcome.value})


def view_from_plain(plain: dict[str, Any]) -> PodView:
    """Return the view that :func:`view_to_plain` was given."""
    return PodView(**{**plain, "outcome": CallbackOutcome(plain["outcome"])})


def is_callback_event(event: Any) -> bool:
    """Tell whether a watch event is about a callback's pod, also if only labels are left to tell it by."""
    try:
        metadata = event["raw_object"]["metadata"]
        annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
        annotated = CALLBACK_ID_ANNOTATION in annotations
        typed = labels.get(WORKLOAD_TYPE_LABEL) == CALLBACK_WORKLOAD
        # Users label pods of tasks, and annotate pods of callbacks, as they like.
        if "task_id" in annotations:
            return annotated and typed
        return annotated or typed or CALLBACK_ID_LABEL in labels
    except (KeyError, TypeError, AttributeError):
        return False


class _Undescribed:
    """A client whose methods do not say what they return, so that a watch makes no models of it.

    The client's watch reads the class of what it makes in the method's docstring. A model costs a
    millisecond per event, and callbacks need none.
    """

    def __init__(self, kube_client: Any) -> None:
        self._kube_client = kube_client

    def __getattr__(self, name: str) -> Any:
        return functools.partial(getattr(self._kube_client, name))


class CallbackJobWatcher(KubernetesJobWatcher):
    """Watches the pods of tasks as its parent does, and those of callbacks on the side."""

    _latest_version: str | None = None
    _failures = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: What was last sent of each callback pod, by uid: what is sent again would be no news.
        self._sent: dict[str, PodView] = {}

    @functools.cached_property
    def _models(self) -> ApiClient:
        return ApiClient()  # not before the process is there

    def _pod_events(self, kube_client: Any, query_kwargs: dict[str, Any]) -> Iterator[Any]:
        """Yield the events that are not a callback's; send on those that are.

        Bookmarks keep the version fresh in quiet times, so that the next stream goes on from there
        and does not begin with every pod there is.
        """
        version = query_kwargs.get("resource_version")
        if version in (None, "0"):
            self._sent.clear()
        self._latest_version = version
        query = {**query_kwargs, "allow_watch_bookmarks": True}
        for event in super()._pod_events(kube_client=_Undescribed(kube_client), query_kwargs=query):
            if version not in (None, "0"):  # the stream after an error begins with all that is there
                self._failures = 0
            if not isinstance(event, dict) or not isinstance(event.get("raw_object"), dict):
                self.log.warning("Skipping a watch event that cannot be read.")
                continue
            raw = event["raw_object"]
            if event.get("type") != "ERROR":
                seen_version = (raw.get("metadata") or {}).get("resourceVersion")
                self._latest_version = seen_version or self._latest_version
            if event.get("type") == "BOOKMARK":
                continue
            if is_callback_event(event):
                self._send_callback_event(event["type"], raw)
            else:
                yield self._with_model(event)

    def _with_model(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return the event with the model of its pod, as the parent has it."""
        if event["type"] == "ERROR" or event["object"] is not event["raw_object"]:
            return event
        document = SimpleNamespace(data=json.dumps(event["raw_object"]))
        return {**event, "object": self._models.deserialize(document, "V1Pod")}

    def _send_callback_event(self, event_type: str, raw: dict[str, Any]) -> None:
        # An object that leaves the selection comes as DELETED too, but without a deletionTimestamp and
        # as it was before: only a look at the pod itself tells what has become of it.
        deleting = bool((raw.get("metadata") or {}).get("deletionTimestamp"))
        view = pod_view(raw, deleted=event_type == "DELETED" and deleting)
        if view is None:
            return
        if event_type == "DELETED":
            self._sent.pop(view.uid, None)
        elif _same_news(self._sent.get(view.uid), view):
            return
        else:
            self._sent[view.uid] = view
            if event_type == "ADDED" and _says_only_that_it_is_there(view):
                return
        state = MOVED if event_type == "DELETED" and not deleting else view.outcome.value
        self._put(view.callback_id, state, view_to_plain(view))

    def _put(self, callback_id: str, state: str, plain: dict[str, Any]) -> None:
        self.watcher_queue.put(
            KubernetesWatch(
                plain.get("name", ""),
                plain.get("namespace", self.namespace),
                state,
                {CALLBACK_ID_ANNOTATION: callback_id},
                plain.get("resource_version", "0"),
                plain,  # type: ignore[arg-type]
            )
        )

    def _run(self, *args: Any, **kwargs: Any) -> str | None:
        """Watch until the stream ends; return the version from which the next one goes on.

        What ends the parent's process (410 while streaming, 403 on watch, an API server that
        restarts, a gateway's page or a pod that the client cannot read) is waited out here instead,
        and a full comparison is asked for. For tasks it is the same: the next stream starts with
        every pod there is.
        """
        try:
            version: str | None = super()._run(*args, **kwargs)
        except ReadTimeoutError:
            # Nothing came for a while, which the parent takes for normal: go on from where it was.
            self.resource_version = self._latest_version
            raise
        except Exception as error:
            failure = classify(error)
            if failure.status is None and failure.answer is ApiAnswer.PERMANENT:
                raise  # a defect: the parent logs it, and the process is started again
            self._explain(failure)
            self._put("", RESYNC, {})
            self._failures += 1
            pause = growing_pause(self._failures, 1.0, LONGEST_PAUSE)
            # Bounded whatever the server asks for: this process is the tasks' watcher too.
            asked = min(failure.retry_after or pause, LONGEST_PAUSE)
            time.sleep(0.0 if failure.answer is ApiAnswer.GONE else asked)
            return "0"
        if version == "0":  # the parent met a 410 in the stream
            self._put("", RESYNC, {})
            return version
        # The parent knows only the events of tasks, and no version where there were none.
        return self._latest_version if self._latest_version is not None else version

    def _explain(self, failure: ApiFailure) -> None:
        if failure.answer is ApiAnswer.FORBIDDEN:
            self.log.error(
                "Not allowed to watch pods in namespace %s: %s. Results of callbacks now come only with the "
                "periodic list. Grant the scheduler's service account the verb 'watch' on pods there.",
                self.namespace,
                failure.message,
            )
        else:
            self.log.warning("Watch on pods in namespace %s ended: %s", self.namespace, failure.message)


def _says_only_that_it_is_there(view: PodView) -> bool:
    """Tell whether nothing has happened to a pod yet: who created it has had the same as the answer.

    Where that answer was lost, the launch is made again and finds it, and the list has it too.
    """
    waits = view.outcome is CallbackOutcome.PENDING and view.waiting_reason is None
    return waits and view.node is None and not view.deleting


def _same_news(last: PodView | None, view: PodView) -> bool:
    """Tell whether nothing that a decision depends on has changed."""
    return last is not None and dataclasses.replace(last, resource_version=view.resource_version) == view
