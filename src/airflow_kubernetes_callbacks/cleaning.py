"""What becomes of the pods of a callback that is over, and whose pods are whose. Pure; a part of :mod:`.reconcile`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.actions import (
    Action,
    Delete,
    LookAgain,
    MarkDone,
    Release,
    RemoveFinalizer,
)
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.situation import RowState

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.situation import Situation

#: Seconds after the end of its callback that the containers beside it have to end, where the pod would be kept.
SIDECAR_GRACE = 30.0


def mine(situation: Situation, pod: PodView) -> bool:
    return pod.owner == situation.me


def owner_is_gone(situation: Situation, pod: PodView) -> bool:
    return (
        not mine(situation, pod)
        and situation.alive_others is not None
        and pod.owner not in situation.alive_others
    )


def clean_up(situation: Situation) -> tuple[Action, ...]:
    """The row is terminal or gone: its pod goes too, the waiting one and the running one alike."""
    if situation.row.state is RowState.ABSENT and not situation.memory.known:
        return ()  # another installation's pod, for all that we know (design, invariant 9)
    actions: list[Action] = [Release()]
    for pod in situation.pods:
        if pod.gone or not (mine(situation, pod) or owner_is_gone(situation, pod)):
            continue
        if pod.finalizer and (pod.outcome.terminal or pod.deleting):
            actions.append(RemoveFinalizer(pod))
        if pod.deleting:
            continue
        actions.extend(_kept(situation, pod) if _is_to_stay(situation, pod) else _removed(pod))
    return tuple(actions)


def _is_to_stay(situation: Situation, pod: PodView) -> bool:
    """Tell whether the pod is left for people to look at."""
    if not pod.outcome.terminal or situation.row.state is not RowState.TERMINAL:
        return False
    failed = pod.outcome in (CallbackOutcome.FAILED, CallbackOutcome.NEVER_STARTED)
    return situation.keep_finished or (situation.keep_failed and failed)


def _kept(situation: Situation, pod: PodView) -> tuple[Action, ...]:
    if pod.still_runs:
        # Nobody looks at a pod again that is done: this one would run, and use quota, for ever.
        ends_by = situation.by_own_clock(pod.ended_at or pod.created_at) + SIDECAR_GRACE
        if situation.now < ends_by:
            return (LookAgain(ends_by),)
        return (Delete(pod, "its result is recorded, and a container beside the callback's still runs"),)
    return () if pod.finalizer else (MarkDone(pod),)


def _removed(pod: PodView) -> tuple[Action, ...]:
    return (
        Delete(pod, "its result is recorded" if pod.outcome.terminal else "its callback needs it no more"),
    )
