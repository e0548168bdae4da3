"""What to do about a pod that has not begun, or is being deleted. Pure; a part of :mod:`.reconcile`.

How long each wait may last is decided here: for a container to start, for an error to pass, for a node to
confirm that a pod has ended, and for a pod to go whose place the next one is to take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.actions import (
    Action,
    Delete,
    EmitFailure,
    EnsurePayload,
    Explain,
    FailureKind,
    LookAgain,
    Occupy,
    RecordAttempt,
    RemoveFinalizer,
)
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, PodView
from airflow_kubernetes_callbacks.situation import PodRequest, RowState, Situation

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.settings import CallbackSettings
    from airflow_kubernetes_callbacks.situation import RowView

#: The waits that Kubernetes itself calls errors; they get ``start_error_grace``, others the timeout.
START_ERRORS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
        "ProviderFailed",
    }
)


def stalls(row: RowView, pod: PodView) -> bool:
    """Tell whether the pod waits for what is not waited for long from when it is first seen to.

    That is an error, or any wait though its callback has begun.
    """
    waits = pod.outcome is CallbackOutcome.PENDING and not pod.gone
    begun = row.state is RowState.RUNNING or pod.started_at is not None
    return waits and (begun or pod.waiting_reason in START_ERRORS)


def pending_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """The pod shows no container that has begun, and it may begin yet."""
    if pod.deleting:
        # Without a node it never begins; with one, the kubelet says how it ended.
        if pod.node is None:
            return let_go(situation, settings, pod, _could_not_start(pod))
        return until_its_node_answers(situation, settings, pod)
    if may_have_begun(situation) or pod.started_at is not None:
        return _begun_and_waiting(situation, settings, pod)
    waited_too_long_at = _given_up_at(situation, settings, pod)
    if situation.now < waited_too_long_at:
        if situation.memory.repeat_attempt is not None:
            return (Occupy(), EnsurePayload(pod))
        return (Occupy(), LookAgain(waited_too_long_at))
    if not pod.explained:
        return (Occupy(), Explain(pod))
    reason = pod.reason or "its container did not start and Kubernetes gives no reason"
    waited = max(0.0, situation.now - situation.by_own_clock(pod.created_at))
    if situation.memory.supply_refusal:
        reason = f"{reason}; {situation.memory.supply_refusal}"
    # Deleted first, and only if it has not begun meanwhile: what follows is decided when it is gone. That
    # it did not begin is recorded before, for a scheduler that comes when this one died in between.
    why = f"Could not start within {waited:.0f} s: {reason}"
    if denial := situation.memory.denied(PodRequest.DELETE, pod):
        # On Airflow 3.4 it may not begin then: the row is not QUEUED any more.
        why = f"{why}; {denial}; the pod is still there and may start"
        return (EmitFailure(why, FailureKind.UNSTARTED),)
    return (Occupy(), RecordAttempt(pod.attempt + 1), Delete(pod, why, unstarted=True))


def _given_up_at(situation: Situation, settings: CallbackSettings, pod: PodView) -> float:
    """Return until when a pod may wait for its container; an error counts from when it was seen."""
    waits_until = situation.by_own_clock(pod.created_at) + settings.pending_timeout
    if pod.waiting_reason in START_ERRORS:
        waits_until = min(waits_until, situation.stalled_since(pod) + settings.start_error_grace)
    return waits_until


def _begun_and_waiting(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """The callback has begun and the pod shows no container that runs: not yet, or not any more.

    What the kubelet tells may be late, or wrong for a while after its restart; a pod that has begun is not
    deleted for that.
    """
    since = situation.stalled_since(pod)
    if situation.now < since + settings.pending_timeout:
        return (Occupy(), LookAgain(since + settings.pending_timeout))
    if not pod.explained:
        return (Occupy(), Explain(pod))
    shown = f"its pod has shown no container that runs for {situation.now - since:.0f} s"
    return (_may_have_begun_failure(situation, shown, pod.reason or "Kubernetes gives no reason"),)


def _may_have_begun_failure(situation: Situation, shown: str, told: str) -> EmitFailure:
    begun = "its row says RUNNING" if may_have_begun(situation) else "its container was seen running"
    return EmitFailure(f"The callback may have begun: {begun}, though {shown} ({told})")


def until_its_node_answers(
    situation: Situation, settings: CallbackSettings, pod: PodView
) -> tuple[Action, ...]:
    """Wait for the end of a pod that is being deleted, but not for ever: its node may never answer again."""
    if pod.delete_by is None:
        return (Occupy(),)
    if situation.now < _lost_at(situation, settings, pod):
        return (Occupy(), LookAgain(_lost_at(situation, settings, pod)))
    begun = "the callback was running there and" if pod.started_at is not None else "the callback"
    return (
        EmitFailure(
            f"Pod {pod.namespace}/{pod.name} was deleted and node {pod.node} has not confirmed that for "
            f"{_overdue(situation, pod):.0f} s (the node was lost, or it cannot end the pod); {begun} may have "
            "taken effect. Run it again with 'airflow kubernetes-callbacks retry' if it should.",
            FailureKind.LOST,
        ),
    )


def may_have_begun(situation: Situation) -> bool:
    """RUNNING in the row means that the container was seen, or that the pod itself said so."""
    return situation.row.state is RowState.RUNNING


def unstarted_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """The pod object is still there and its base container has not begun and never will."""
    reason = pod.reason or "Could not start, and Kubernetes gives no reason."
    if may_have_begun(situation):
        told = reason.partition("Could not start: ")[2] or reason
        shown = "its pod shows no container that started"
        return (_may_have_begun_failure(situation, shown, told),)
    launches = launches_so_far(situation, pod)
    if launches > settings.launch_retries:
        return (
            (EmitFailure(given_up(reason, launches), FailureKind.UNSTARTED),)
            if pod.explained
            else (Explain(pod),)
        )
    if pod.deleting:
        return let_go(situation, settings, pod, _could_not_start(pod))
    if denial := situation.memory.denied(PodRequest.DELETE, pod):
        why = f"{_could_not_start(pod)}; {denial}; the pod is still there, so that no other can be made"
        return (EmitFailure(why, FailureKind.UNSTARTED),)
    return (Occupy(), RecordAttempt(pod.attempt + 1), Delete(pod, reason, unstarted=True))


def launches_so_far(situation: Situation, pod: PodView) -> int:
    """Return how many launches there were, this pod's included; a person's retry begins the count anew."""
    return max(1, max(pod.attempt, situation.row.next_attempt - 1) - situation.row.history)


def let_go(
    situation: Situation, settings: CallbackSettings, pod: PodView, why_another: str
) -> tuple[Action, ...]:
    """Wait, not for ever, for a pod to go that is being deleted and whose place the next one is to take.

    Our finalizer has no result to keep on it.

    :param why_another: begins the sentence that says that no other can be made.
    """
    if pod.finalizer and situation.memory.denied(PodRequest.REMOVE_FINALIZER, pod) is None:
        return (Occupy(), RecordAttempt(pod.attempt + 1), RemoveFinalizer(pod))
    if pod.delete_by is None:
        return (Occupy(),)
    until = _removable_at(situation, pod) if never_binds(pod) else _lost_at(situation, settings, pod)
    if situation.now < until:
        return (Occupy(), LookAgain(until))
    return (
        EmitFailure(
            f"{why_another}; pod {pod.namespace}/{pod.name} was deleted and is still there after "
            f"{_overdue(situation, pod):.0f} s (its node was lost or cannot end it, or a finalizer holds it), "
            "so that no other can be made",
            FailureKind.UNSTARTED,
        ),
    )


def never_binds(pod: PodView) -> bool:
    """Tell whether the pod is being deleted and has no node: the API server gives it none any more.

    So it never begins, whatever holds it: a finalizer of a queue controller, say (kubernetes-sigs/kueue#1339).
    """
    unstarted = pod.outcome in (CallbackOutcome.PENDING, CallbackOutcome.NEVER_STARTED)
    return unstarted and pod.deleting and pod.node is None and pod.started_at is None


def as_good_as_gone(situation: Situation, pod: PodView) -> bool:
    """Tell whether another's finalizer is all that is left of a pod, which never begins."""
    if not never_binds(pod) or pod.delete_by is None or situation.now < _removable_at(situation, pod):
        return False
    return not pod.finalizer or situation.memory.denied(PodRequest.REMOVE_FINALIZER, pod) is not None


def _removable_at(situation: Situation, pod: PodView) -> float:
    """Return from when on a pod that is being deleted is removed, if no node and no finalizer holds it."""
    return situation.by_own_clock(pod.delete_by or 0.0)


def _could_not_start(pod: PodView) -> str:
    reason = pod.reason or "Kubernetes gives no reason"
    return reason if reason.startswith("Could not start") else f"Could not start: {reason}"


def _lost_at(situation: Situation, settings: CallbackSettings, pod: PodView) -> float:
    """Return from when on nobody will tell any more how a pod that is being deleted ended."""
    return _removable_at(situation, pod) + settings.node_lost_timeout


def _overdue(situation: Situation, pod: PodView) -> float:
    """Return for how many seconds a pod has outlasted the grace period of its deletion."""
    return situation.now - _removable_at(situation, pod)


def given_up(reason: str, launches: int) -> str:
    """Return what is told of a callback whose pods did not start, none of them."""
    times = "once" if launches == 1 else f"{launches} times"
    return f"{reason} (launched {times}; the callback never began)"
