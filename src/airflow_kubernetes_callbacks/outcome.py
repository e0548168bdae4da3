"""What a pod says about its callback. Pure: the pod's JSON in, plain values out.

The input is the object as the API server sends it (a ``dict``), because that is what a watch event
and a list both carry; no client model is built for it.

One container decides, the base container; sidecars and init containers never do. The question that
matters most is whether it ever *began*: a callback that began is never repeated on its own, so where
the pod leaves that open (its node was lost, its statuses are missing) it counts as begun.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks import pod_status
from airflow_kubernetes_callbacks.identity import (
    ATTEMPT_LABEL,
    DAG_ID_ANNOTATION,
    OWNER_LABEL,
    RESULT_FINALIZER,
    RUN_ID_ANNOTATION,
    attempt_in,
    callback_id_of,
)
from airflow_kubernetes_callbacks.pod_status import epoch_seconds as epoch_seconds
from airflow_kubernetes_callbacks.pod_waiting import waiting
from airflow_kubernetes_callbacks.reason import (
    COULD_NOT_START,
    RAN_AND_FAILED,
    failure_reason,
    told_by_callback,
    unstarted_reason,
    waiting_text,
)
from airflow_kubernetes_callbacks.redact import presentable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_kubernetes_callbacks.pod_status import BaseStatus

#: Waiting reasons that say "there is no room yet", not "this cannot work".
CAPACITY_REASONS = frozenset({"Unschedulable", "SchedulingGated"})


class CallbackOutcome(str, Enum):
    """How far the callback in a pod has come; the base container alone decides it."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    #: The base container began and did not succeed: it is never run again on its own.
    FAILED = "failed"
    #: The pod ended, or is about to, before its base container began: it may be launched again.
    NEVER_STARTED = "never_started"

    @property
    def terminal(self) -> bool:
        return self in (CallbackOutcome.SUCCEEDED, CallbackOutcome.FAILED, CallbackOutcome.NEVER_STARTED)


@dataclass(frozen=True, slots=True)
class PodView:
    """One callback pod as the reconciler sees it: small, hashable, made of plain values.

    Times are seconds since the epoch, by the cluster's clocks.
    """

    callback_id: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    owner: str
    attempt: int
    outcome: CallbackOutcome
    #: For people: why it failed, never started or still waits.
    reason: str | None
    #: Kubernetes' own word for why it waits (``ImagePullBackOff``, ``Unschedulable``), if it does.
    waiting_reason: str | None
    created_at: float
    started_at: float | None
    ended_at: float | None
    #: A deletion was asked for; the pod may still be running its grace period.
    deleting: bool
    #: The pod object exists no more; the rest is what was last known of it.
    gone: bool
    #: Our finalizer is on it.
    finalizer: bool
    node: str | None
    dag_id: str = ""
    run_id: str = ""
    #: The reason of a failure is in the callback's own words: nothing else would tell more.
    explained: bool = False
    #: When the grace period of its deletion ends.
    delete_by: float | None = None
    #: Its callback has ended, and a container beside it has not: the pod goes on running.
    still_runs: bool = False


def pod_view(
    pod: Mapping[str, Any],
    *,
    deleted: bool = False,
    id_of: Callable[[Mapping[str, Any]], str | None] = callback_id_of,
) -> PodView | None:
    """Return what *pod* says about its callback, or None if it carries no callback id.

    Total: whatever the object holds, nothing is raised; what is missing or malformed reads as absent.

    :param deleted: the object is the last one before the pod was removed (a ``DELETED`` event).
    :param id_of: reads the id from the metadata; another than a callback's for other workloads.
    """
    metadata = pod_status.mapping(pod, "metadata")
    callback_id = id_of(metadata)
    if callback_id is None:
        return None
    base = pod_status.base_status(pod)
    outcome = _outcome(pod, base, deleted)
    finalizers = metadata.get("finalizers")
    return PodView(
        callback_id=callback_id,
        namespace=_text(metadata.get("namespace")),
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        resource_version=_text(metadata.get("resourceVersion")),
        owner=_text(pod_status.mapping(metadata, "labels").get(OWNER_LABEL)),
        attempt=_attempt(
            pod_status.mapping(metadata, "labels").get(ATTEMPT_LABEL),
            attempt_in(_text(metadata.get("name")), callback_id),
        ),
        outcome=outcome,
        reason=_reason(pod, base, outcome, deleted),
        waiting_reason=waiting(pod).word if outcome is CallbackOutcome.PENDING else None,
        created_at=epoch_seconds(metadata.get("creationTimestamp")) or 0.0,
        # dockershim sets it for a container that it could not start too
        started_at=epoch_seconds(base.started_at) if base.began else None,
        ended_at=_ended_at(pod, base, outcome),
        deleting=bool(metadata.get("deletionTimestamp")),
        gone=deleted,
        finalizer=isinstance(finalizers, list) and RESULT_FINALIZER in finalizers,
        node=_text(pod_status.mapping(pod, "spec").get("nodeName")) or None,
        dag_id=_text(pod_status.mapping(metadata, "annotations").get(DAG_ID_ANNOTATION)),
        run_id=_text(pod_status.mapping(metadata, "annotations").get(RUN_ID_ANNOTATION)),
        explained=outcome is CallbackOutcome.FAILED and told_by_callback(base),
        delete_by=epoch_seconds(metadata.get("deletionTimestamp")),
        still_runs=outcome.terminal and pod_status.still_runs(pod, base),
    )


def remembering_the_run(view: PodView, known: PodView) -> PodView:
    """Return *view* with the begin of its container that *known*, an earlier look at the pod, has seen.

    A kubelet that restarts may refuse a pod that it ran (NodeAffinity, UnexpectedAdmissionError), and says
    nothing of its containers then (kubernetes/kubernetes#100467, #125579).
    """
    if known.started_at is None or view.outcome not in (
        CallbackOutcome.PENDING,
        CallbackOutcome.NEVER_STARTED,
    ):
        return view
    if view.outcome is CallbackOutcome.PENDING:
        return replace(view, started_at=known.started_at)
    told = (view.reason or "Kubernetes gives no reason").removeprefix(f"{COULD_NOT_START}: ")
    return replace(
        view,
        outcome=CallbackOutcome.FAILED,
        started_at=known.started_at,
        reason=f"{RAN_AND_FAILED}: its container was running, and its node does not report it any more: {told}",
    )


_HAD_WAITED = "; it had waited: "


def remembering_the_wait(view: PodView, known: PodView) -> PodView:
    """Return *view* with the error that its pod waited with when *known* was seen.

    The kubelet overwrites the waiting reason (ImagePullBackOff) when a waiting pod is deleted.
    """
    if view.outcome is not CallbackOutcome.NEVER_STARTED or not view.reason:
        return view
    if known.outcome is CallbackOutcome.PENDING:
        wait = known.reason if known.waiting_reason else None
    else:
        wait = (known.reason or "").partition(_HAD_WAITED)[2]
    if not wait or wait in view.reason:
        return view
    return replace(view, reason=presentable(f"{view.reason}{_HAD_WAITED}{wait}"))


def _outcome(pod: Mapping[str, Any], base: BaseStatus, deleted: bool) -> CallbackOutcome:
    """Return the outcome: the base container's own end, else the pod's, else how far it has come."""
    phase = pod_status.mapping(pod, "status").get("phase")
    if base.ended and base.began:
        return CallbackOutcome.SUCCEEDED if base.exit_code == 0 else CallbackOutcome.FAILED
    if phase == "Succeeded":
        return CallbackOutcome.SUCCEEDED
    if phase == "Failed" or deleted:
        if base.began or pod_status.may_have_begun(pod, base):
            return CallbackOutcome.FAILED
        return CallbackOutcome.NEVER_STARTED
    if base.began:
        return CallbackOutcome.RUNNING
    return CallbackOutcome.NEVER_STARTED if base.ended else CallbackOutcome.PENDING


def _reason(pod: Mapping[str, Any], base: BaseStatus, outcome: CallbackOutcome, deleted: bool) -> str | None:
    if outcome is CallbackOutcome.FAILED:
        return failure_reason(pod, base, deleted=deleted)
    if outcome is CallbackOutcome.NEVER_STARTED:
        return unstarted_reason(pod, base, deleted=deleted)
    if outcome is CallbackOutcome.PENDING:
        return waiting_text(pod)
    return None


def _ended_at(pod: Mapping[str, Any], base: BaseStatus, outcome: CallbackOutcome) -> float | None:
    if not outcome.terminal:
        return None
    return epoch_seconds(base.finished_at) or epoch_seconds(
        pod_status.mapping(pod, "metadata").get("deletionTimestamp")
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _attempt(label: object, in_name: str) -> int:
    """Return the attempt's number, by the label or by the name; a pod without a readable one counts as the first."""
    for value in (_text(label), in_name):
        try:
            number = int(value)
        except ValueError:
            continue
        if number > 0:
            return number
    return 1
