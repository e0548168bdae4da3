"""What to do about one callback, given its row, its pods and the clock. Pure.

``decide`` is the heart of the executor: adoption, lost pods, lost events, stuck pods, launches and
clean-up are rows of one table, whatever made the executor look. It reads plain values and returns
actions; :mod:`airflow_kubernetes_callbacks.controller` carries them out. Called again with the same
situation it returns the same actions, so it does not matter how often, or by whom, it is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.actions import (
    Action,
    Adopt,
    Delete,
    EmitFailure,
    EmitRunning,
    EmitSuccess,
    EnsurePayload,
    Explain,
    FailureKind,
    Launch,
    LookAgain,
    MarkDone,
    Occupy,
    RecordAttempt,
    Release,
    RemoveFinalizer,
)
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, PodView
from airflow_kubernetes_callbacks.pauses import growing_pause
from airflow_kubernetes_callbacks.situation import (
    RowState,
    Situation,
)

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.settings import CallbackSettings
    from airflow_kubernetes_callbacks.situation import Refusal, RowView

#: The waits that Kubernetes itself calls errors; they get ``start_error_grace``, others the timeout.
START_ERRORS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "CrashLoopBackOff",
        "ProviderFailed",
    }
)

#: The reason of a last pod that was deleted by a scheduler that is gone.
_FORGOTTEN = "Could not start: its last pod was deleted because it did not start; why is not known any more."


def retry_delay(launches: int, settings: CallbackSettings) -> float:
    """Return the seconds between launch number *launches* (1 and up) and the next: doubled, capped."""
    return growing_pause(launches, settings.launch_retry_delay, settings.launch_retry_max_delay)


def given_up_at(pod: PodView, pending_timeout: float, start_error_grace: float) -> float:
    """Return until when (epoch seconds) a pod may wait for its container; the other two are seconds."""
    waits_until = pod.created_at + pending_timeout
    if pod.waiting_reason in START_ERRORS:
        in_error_since = max(pod.created_at, pod.startable_at)
        waits_until = min(waits_until, in_error_since + start_error_grace)
    return waits_until


def decide(situation: Situation, settings: CallbackSettings) -> tuple[Action, ...]:
    """Return what to do now about one callback."""
    row = situation.row
    if row.state is RowState.NOT_OURS:
        # Handed to this executor, and then the database did not keep it QUEUED: core hands it out again.
        return (Release(),) if situation.memory.held or situation.memory.known else ()
    if not row.state.active:
        return _clean_up(situation)
    if row.recorded_end is not None:
        return (EmitFailure(row.recorded_end, FailureKind.CANCELLED),)
    live = [pod for pod in situation.pods if not pod.gone]
    if live:
        return _with_pod(situation, settings, _current(live))
    gone = [pod for pod in situation.pods if pod.gone and not _overtaken(row, pod)]
    if refusal := _refusal_that_stands(situation, gone):
        if refusal.pod_may_exist and not situation.pods_complete:
            return ()
        return (EmitFailure(refusal.reason, FailureKind.REFUSED),)
    if gone and not situation.memory.held:
        return _with_gone_pod(situation, settings, max(gone, key=lambda pod: pod.attempt))
    return _without_pod(situation, settings)


def _current(pods: list[PodView]) -> PodView:
    """Return the pod that decides: one that began before one that did not, then the latest attempt."""
    return max(pods, key=lambda pod: (pod.started_at is not None, pod.attempt))


def _overtaken(row: RowView, pod: PodView) -> bool:
    """A later attempt than this pod's was launched, by whichever scheduler: what the row says is about that one."""
    later = row.next_attempt > pod.attempt and (row.launched_pod is not None or row.state is RowState.RUNNING)
    return later and pod.outcome in (CallbackOutcome.PENDING, CallbackOutcome.NEVER_STARTED)


def _mine(situation: Situation, pod: PodView) -> bool:
    return pod.owner == situation.me


def _owner_is_gone(situation: Situation, pod: PodView) -> bool:
    return (
        not _mine(situation, pod)
        and situation.alive_others is not None
        and pod.owner not in situation.alive_others
    )


def _refusal_that_stands(situation: Situation, gone: list[PodView]) -> Refusal | None:
    """Return the refusal of the last launch, unless the pod was created after all or the row has moved on."""
    refusal = situation.memory.refusal
    if refusal is None or situation.memory.held or situation.row.state is not RowState.QUEUED:
        return None
    created_after_all = refusal.pod_may_exist and any(pod.attempt >= refusal.attempt for pod in gone)
    return None if created_after_all or situation.row.next_attempt > refusal.attempt else refusal


def _clean_up(situation: Situation) -> tuple[Action, ...]:
    """The row is terminal or gone: its pod goes too, the waiting one and the running one alike."""
    if situation.row.state is RowState.ABSENT and not situation.memory.known:
        return ()  # another installation's pod, for all that we know (design, invariant 9)
    actions: list[Action] = [Release()]
    for pod in situation.pods:
        if pod.gone or not (_mine(situation, pod) or _owner_is_gone(situation, pod)):
            continue
        if pod.finalizer and (pod.outcome.terminal or pod.deleting):
            actions.append(RemoveFinalizer(pod))
        if pod.deleting:
            continue
        kept = situation.keep_finished or (
            situation.keep_failed and pod.outcome in (CallbackOutcome.FAILED, CallbackOutcome.NEVER_STARTED)
        )
        if pod.outcome.terminal and kept and situation.row.state is RowState.TERMINAL:
            if not pod.finalizer:  # nobody looks at a pod again that is done
                actions.append(MarkDone(pod))
        else:
            why = "its result is recorded" if pod.outcome.terminal else "its callback needs it no more"
            actions.append(Delete(pod, why))
    return tuple(actions)


def _with_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    if not _mine(situation, pod):
        if _owner_is_gone(situation, pod):
            return (Adopt(pod),) if pod.outcome.terminal else (Occupy(), Adopt(pod))
        if situation.alive_others is None:
            return ()  # who is alive is not known now; the next full pass knows
        return (Release(),)
    if _superseded(situation, pod) and pod.outcome.terminal:
        return (Occupy(),) if pod.deleting else (Occupy(), Delete(pod, "the callback is to run again"))
    match pod.outcome:
        case CallbackOutcome.SUCCEEDED:
            return (EmitSuccess(),)
        case CallbackOutcome.FAILED:
            if not pod.explained:
                return (Explain(pod),)
            return (EmitFailure(pod.reason or "The callback failed; the pod gives no reason."),)
        case CallbackOutcome.RUNNING:
            announce = situation.row.state is RowState.QUEUED and not situation.api_owns_running
            waits = _until_its_node_answers(situation, settings, pod) if pod.deleting else (Occupy(),)
            return (*waits, EmitRunning()) if announce and Occupy() in waits else waits
        case CallbackOutcome.NEVER_STARTED:
            return _unstarted_pod(situation, settings, pod)
    return _pending_pod(situation, settings, pod)


def _pending_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    if pod.deleting:
        # Without a node it never begins; with one, the kubelet says how it ended.
        if pod.node is None:
            return _let_go(situation, settings, pod)
        return _until_its_node_answers(situation, settings, pod)
    waited_too_long_at = given_up_at(pod, settings.pending_timeout, settings.start_error_grace)
    if situation.now < waited_too_long_at:
        if situation.memory.repeat_attempt is not None:
            return (Occupy(), EnsurePayload(pod))
        return (Occupy(), LookAgain(waited_too_long_at))
    if not pod.explained:
        return (Occupy(), Explain(pod))
    reason = pod.reason or "its container did not start and Kubernetes gives no reason"
    waited = max(0.0, situation.now - pod.created_at)
    # Deleted first, and only if it has not begun meanwhile: what follows is decided when it is gone. That
    # it did not begin is recorded before, for a scheduler that comes when this one died in between.
    why = f"Could not start within {waited:.0f} s: {reason}"
    return (Occupy(), RecordAttempt(pod.attempt + 1), Delete(pod, why, unstarted=True))


def _until_its_node_answers(
    situation: Situation, settings: CallbackSettings, pod: PodView
) -> tuple[Action, ...]:
    """Wait for the end of a pod that is being deleted, but not for ever: its node may never answer again."""
    if pod.delete_by is None:
        return (Occupy(),)
    if situation.now < _lost_at(pod, settings):
        return (Occupy(), LookAgain(_lost_at(pod, settings)))
    begun = "the callback was running there and" if pod.started_at is not None else "the callback"
    return (
        EmitFailure(
            f"Node {pod.node} was lost: pod {pod.namespace}/{pod.name} was deleted and its node has not "
            f"confirmed that for {situation.now - pod.delete_by:.0f} s; {begun} may have taken effect. Run it "
            "again with 'airflow kubernetes-callbacks retry' if it should.",
            FailureKind.LOST,
        ),
    )


def _may_have_begun(situation: Situation) -> bool:
    """RUNNING in the row means that the container was seen, or that the pod itself said so."""
    return situation.row.state is RowState.RUNNING


def _unstarted_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """The pod object is still there and its base container has not begun and never will."""
    reason = pod.reason or "Could not start, and Kubernetes gives no reason."
    if _may_have_begun(situation):
        told = reason.partition("Could not start: ")[2] or reason
        return (
            EmitFailure(
                "The callback may have begun: its row says RUNNING, though its pod never showed a container "
                f"that started ({told})"
            ),
        )
    launches = _launches(situation, pod)
    if launches > settings.launch_retries:
        return (
            (EmitFailure(_given_up(reason, launches), FailureKind.UNSTARTED),)
            if pod.explained
            else (Explain(pod),)
        )
    if pod.deleting:
        return _let_go(situation, settings, pod)
    return (Occupy(), RecordAttempt(pod.attempt + 1), Delete(pod, reason, unstarted=True))


def _superseded(situation: Situation, pod: PodView) -> bool:
    """A person had the callback run again after this pod: how it ended does not matter any more.

    That a *next attempt* is recorded is not enough: a pod that was to be replaced because it had not
    begun may have begun after all.
    """
    return situation.row.state is RowState.QUEUED and pod.attempt <= situation.row.history


def _launches(situation: Situation, pod: PodView) -> int:
    """Return how many launches there were, this pod's included; a person's retry begins the count anew."""
    return max(1, max(pod.attempt, situation.row.next_attempt - 1) - situation.row.history)


def _let_go(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """Wait for a pod to go that has not begun; our finalizer has no result to keep."""
    if pod.finalizer:
        return (Occupy(), RecordAttempt(pod.attempt + 1), RemoveFinalizer(pod))
    if pod.delete_by is None:
        return (Occupy(),)
    if situation.now < _lost_at(pod, settings):
        return (Occupy(), LookAgain(_lost_at(pod, settings)))
    return (
        EmitFailure(
            f"{_could_not_start(pod)}; pod {pod.namespace}/{pod.name} was deleted and is still there after "
            f"{situation.now - pod.delete_by:.0f} s (its node was lost, or a finalizer holds it), so that no "
            "other can be made",
            FailureKind.UNSTARTED,
        ),
    )


def _could_not_start(pod: PodView) -> str:
    reason = pod.reason or "Kubernetes gives no reason"
    return reason if reason.startswith("Could not start") else f"Could not start: {reason}"


def _lost_at(pod: PodView, settings: CallbackSettings) -> float:
    """Return from when on nobody will tell any more how a pod that is being deleted ended."""
    return (pod.delete_by or 0.0) + settings.node_lost_timeout


def _given_up(reason: str, launches: int) -> str:
    times = "once" if launches == 1 else f"{launches} times"
    return f"{reason} (launched {times}; the callback never began)"


def _with_gone_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """The pod existed, and the last that was seen of it is known."""
    if not (_mine(situation, pod) or _owner_is_gone(situation, pod)):
        return (Release(),) if situation.alive_others is not None else ()
    launches = _launches(situation, pod)
    if _superseded(situation, pod):
        since = situation.row.next_attempt - 1 - situation.row.history  # a retry itself is no launch yet
        if since > settings.launch_retries:
            return (EmitFailure(_given_up(_FORGOTTEN, since), FailureKind.UNSTARTED),)
        return _relaunch(situation, settings, pod)
    match pod.outcome:
        case CallbackOutcome.SUCCEEDED:
            return (EmitSuccess(),)
        case CallbackOutcome.FAILED if not pod.explained:
            return (Explain(pod),)
        case CallbackOutcome.FAILED | CallbackOutcome.RUNNING:
            kind = FailureKind.CALLBACK if pod.outcome is CallbackOutcome.FAILED else FailureKind.LOST
            return (EmitFailure(pod.reason or _disappeared(pod), kind),)
    # That it did not begin may be recorded, from before it was deleted.
    recorded = situation.row.state is RowState.QUEUED and situation.row.next_attempt > pod.attempt
    condemned = dict(situation.memory.condemned).get(pod.uid)
    begun_unseen = pod.outcome is CallbackOutcome.PENDING and condemned is None and pod.node is not None
    begun_unseen = begun_unseen and not recorded and not situation.api_owns_running
    if _may_have_begun(situation) or begun_unseen:
        return (EmitFailure(_disappeared(pod), FailureKind.LOST),)
    reason = condemned or pod.reason or f"Pod {pod.name} was deleted before the callback began."
    if launches > settings.launch_retries:
        return (EmitFailure(_given_up(reason, launches), FailureKind.UNSTARTED),)
    return _relaunch(situation, settings, pod)


def _relaunch(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    # The attempt that is to be repeated is a later one where another's pod has the name of the next.
    attempt = max(pod.attempt + 1, situation.row.next_attempt, situation.memory.repeat_attempt or 0)
    # Kubernetes may not say when it ended, or by a clock that is ahead of ours.
    ended_at = min(pod.ended_at or situation.memory.orphaned_since or situation.now, situation.now)
    not_before = max(situation.memory.retry_at, ended_at + retry_delay(_launches(situation, pod), settings))
    if situation.now < not_before:
        return (Occupy(), RecordAttempt(attempt), LookAgain(not_before))
    return (Occupy(), RecordAttempt(attempt), Launch(attempt))


def _disappeared(pod: PodView) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    return (
        f"Pod {pod.namespace}/{pod.name} disappeared while running{where}: it was deleted before its result "
        "could be recorded, and the callback may have taken effect. Run it again with "
        "'airflow kubernetes-callbacks retry' if it should."
    )


def _without_pod(situation: Situation, settings: CallbackSettings) -> tuple[Action, ...]:
    """No pod of this callback is known."""
    row, memory = situation.row, situation.memory
    if memory.held:
        return ()
    was_created = row.launched_pod is not None and not situation.api_owns_running
    launches = row.next_attempt - 1 - row.history
    if row.state is RowState.QUEUED and launches > settings.launch_retries:
        if not situation.pods_complete:
            return ()
        return (EmitFailure(_given_up(_FORGOTTEN, launches), FailureKind.UNSTARTED),)
    if memory.repeat_attempt is not None and row.state is RowState.QUEUED and not was_created:
        if situation.now < memory.retry_at:
            return (LookAgain(memory.retry_at),)
        return (Launch(max(memory.repeat_attempt, row.next_attempt)),)
    if not situation.pods_complete:
        return ()  # an absence that no complete list confirms means nothing
    if row.state is RowState.RUNNING:
        return (
            EmitFailure(
                "The pod disappeared while running: the row says RUNNING and there is no pod. The callback "
                "may have taken effect. Run it again with 'airflow kubernetes-callbacks retry' if it should.",
                FailureKind.LOST,
            ),
        )
    if was_created:
        return (
            EmitFailure(
                f"Pod {row.launched_pod} was created and is gone, and nobody saw how it ended (deleted while "
                "no scheduler was looking). The callback may have taken effect. Run it again with "
                "'airflow kubernetes-callbacks retry' if it should.",
                FailureKind.LOST,
            ),
        )
    return _orphaned_row(situation, settings)


def _orphaned_row(situation: Situation, settings: CallbackSettings) -> tuple[Action, ...]:
    """QUEUED, no pod, and not held here: the scheduler that had it died, or still holds it."""
    now, memory = situation.now, situation.memory
    if now < memory.retry_at:
        return (LookAgain(memory.retry_at),)
    if situation.alive_others is None:
        return ()
    if situation.alive_others:
        # A sibling may hold it in its queue. Two launches of one attempt are one pod, but whoever
        # holds it should have its turn first.
        since = memory.orphaned_since if memory.orphaned_since is not None else now
        if now < since + settings.reconcile_interval:
            return (LookAgain(since + settings.reconcile_interval),)
    return (Launch(situation.row.next_attempt),)  # it has no slot yet: it waits for one like any other
