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
    Explain,
    FailureKind,
    Launch,
    LookAgain,
    LookFor,
    Occupy,
    RecordAttempt,
    Release,
)
from airflow_kubernetes_callbacks.cleaning import clean_up, mine, owner_is_gone
from airflow_kubernetes_callbacks.identity import pod_name
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, PodView
from airflow_kubernetes_callbacks.pauses import growing_pause
from airflow_kubernetes_callbacks.reason import COULD_NOT_START, RAN_AND_FAILED
from airflow_kubernetes_callbacks.redact import presentable
from airflow_kubernetes_callbacks.situation import PodRequest, RowState, Situation
from airflow_kubernetes_callbacks.unstarted import (
    as_good_as_gone,
    given_up,
    launches_so_far,
    let_go,
    may_have_begun,
    pending_pod,
    unstarted_pod,
    until_its_node_answers,
)
from airflow_kubernetes_callbacks.without_pod import FORGOTTEN, without_pod

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.settings import CallbackSettings
    from airflow_kubernetes_callbacks.situation import Refusal, RowView

_UNCLAIMED = (
    "its row is still queued, and a pod makes it running before the callback begins: it seems that the callback "
    "did not begin"
)


def retry_delay(launches: int, settings: CallbackSettings) -> float:
    """Return the seconds between launch number *launches* (1 and up) and the next: doubled, capped."""
    return growing_pause(launches, settings.launch_retry_delay, settings.launch_retry_max_delay)


def decide(situation: Situation, settings: CallbackSettings) -> tuple[Action, ...]:
    """Return what to do now about one callback."""
    row = situation.row
    if row.state is RowState.NOT_OURS:
        # Handed to this executor, and then the database did not keep it QUEUED: core hands it out again.
        return (Release(),) if situation.memory.held or situation.memory.known else ()
    if not row.state.active:
        return clean_up(situation)
    if row.recorded_end is not None:
        return (EmitFailure(row.recorded_end, FailureKind.CANCELLED),)
    pods = [pod for pod in situation.pods if not _overtaken(row, pod)]
    live = [pod for pod in pods if not pod.gone and not as_good_as_gone(situation, pod)]
    if live:
        return _with_pod(situation, settings, _current(live))
    gone = pods  # none of them is live
    if refusal := _refusal_that_stands(situation, gone):
        if refusal.pod_may_exist and not situation.pods_complete:
            return ()
        return (EmitFailure(refusal.reason, FailureKind.REFUSED),)
    if gone and not situation.memory.held:
        return _with_gone_pod(situation, settings, max(gone, key=lambda pod: pod.attempt))
    return without_pod(situation, settings)


def _current(pods: list[PodView]) -> PodView:
    """Return the pod that decides: one that began before one that did not, then the latest attempt."""
    return max(pods, key=lambda pod: (pod.started_at is not None, pod.attempt))


def _overtaken(row: RowView, pod: PodView) -> bool:
    """A later attempt than this pod's was launched, by whichever scheduler: what the row says is about that one.

    The pod went before that. It may be known as one that is there only to a scheduler that hung meanwhile.
    """
    later = row.next_attempt > pod.attempt and (row.launched_pod is not None or row.state is RowState.RUNNING)
    return later and pod.outcome in (CallbackOutcome.PENDING, CallbackOutcome.NEVER_STARTED)


def _eldest(situation: Situation) -> bool:
    """Of the schedulers that are alive, this one is the eldest: it looks after pods that may not be adopted.

    One has to, or such a callback never ends, and only one, or each of them counts its slot. Nothing can be
    written on the pod, so it follows from what all of them know: who is alive, and that job ids grow. The
    eldest stays while another restarts again and again. Two that each hold themselves for it, until both have
    read who is alive, do no harm: they report the same result, an unstarted pod is deleted only in the version
    that was seen, after its attempt is recorded, and the next launch has one name.
    """
    return all(_by_age(situation.me) < _by_age(other) for other in situation.alive_others or ())


def _by_age(job_id: str) -> tuple[int, str]:
    return len(job_id), job_id  # the order of numbers, for decimal texts


def _refusal_that_stands(situation: Situation, gone: list[PodView]) -> Refusal | None:
    """Return the refusal of the last launch, unless the pod was created after all or the row has moved on."""
    refusal = situation.memory.refusal
    if refusal is None or situation.memory.held or situation.row.state is not RowState.QUEUED:
        return None
    created_after_all = refusal.pod_may_exist and any(pod.attempt >= refusal.attempt for pod in gone)
    return None if created_after_all or situation.row.next_attempt > refusal.attempt else refusal


def _with_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    if not mine(situation, pod):
        if situation.alive_others is None:
            return ()  # who is alive is not known now; the next full pass knows
        if not owner_is_gone(situation, pod):
            return (Release(),)
        if situation.memory.denied(PodRequest.ADOPT, pod) is None:
            return (Adopt(pod),) if pod.outcome.terminal else (Occupy(), Adopt(pod))
        if not _eldest(situation):
            return (Release(),)
    if _superseded(situation, pod) and pod.outcome.terminal:
        return _out_of_the_way(situation, settings, pod)
    match pod.outcome:
        case CallbackOutcome.SUCCEEDED:
            return (EmitSuccess(),)
        case CallbackOutcome.FAILED:
            if not pod.explained:
                return (Explain(pod),)
            return (EmitFailure(_failure_of(situation, pod)),)
        case CallbackOutcome.RUNNING:
            announce = situation.row.state is RowState.QUEUED and not situation.api_owns_running
            waits = until_its_node_answers(situation, settings, pod) if pod.deleting else (Occupy(),)
            return (*waits, EmitRunning()) if announce and Occupy() in waits else waits
        case CallbackOutcome.NEVER_STARTED:
            return unstarted_pod(situation, settings, pod)
    return pending_pod(situation, settings, pod)


def _failure_of(situation: Situation, pod: PodView) -> str:
    """Return why the callback of a pod that ended failed.

    From Airflow 3.4 on the pod makes the row RUNNING before the callback's code begins, so that a row which is
    still QUEUED tells that it did not get that far (apache/airflow#69052). It is no proof: core may commit
    "queued" late, over RUNNING, and an image with an older Airflow does not ask. So nothing but the words
    depends on it, and on the container's own end only: on a lost node it may still begin.
    """
    reason = pod.reason or "The callback failed; the pod gives no reason."
    own_end = pod.ended_at is not None and not pod.deleting
    if not (situation.api_owns_running and situation.row.state is RowState.QUEUED and own_end):
        return reason
    told = reason.removeprefix(f"{RAN_AND_FAILED}: ")
    return presentable(f"{COULD_NOT_START}: {told} ({_UNCLAIMED})")


def _out_of_the_way(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """The callback is to run again, and the pod of its last run has ended and is still there."""
    if pod.deleting:
        return let_go(situation, settings, pod, "Could not run again")
    if denial := situation.memory.denied(PodRequest.DELETE, pod):
        why = f"Could not run again: {denial}; the pod of the last run is still there"
        return (EmitFailure(why, FailureKind.UNSTARTED),)
    return (Occupy(), Delete(pod, "the callback is to run again"))


def _superseded(situation: Situation, pod: PodView) -> bool:
    """A person had the callback run again after this pod: how it ended does not matter any more.

    That a *next attempt* is recorded is not enough: a pod that was to be replaced because it had not
    begun may have begun after all.
    """
    return situation.row.state is RowState.QUEUED and pod.attempt <= situation.row.history


def _with_gone_pod(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    """The pod existed, and the last that was seen of it is known; or nothing but a finalizer is left of it."""
    if not (mine(situation, pod) or owner_is_gone(situation, pod)):
        return (Release(),) if situation.alive_others is not None else ()
    launches = launches_so_far(situation, pod)
    if _superseded(situation, pod):
        since = situation.row.next_attempt - 1 - situation.row.history  # a retry itself is no launch yet
        if since > settings.launch_retries:
            return (EmitFailure(given_up(FORGOTTEN, since), FailureKind.UNSTARTED),)
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
    if may_have_begun(situation) or pod.started_at is not None or begun_unseen:
        return (EmitFailure(_disappeared(pod), FailureKind.LOST),)
    reason = condemned or _deleted_unstarted(pod)
    if launches > settings.launch_retries:
        return (EmitFailure(given_up(reason, launches), FailureKind.UNSTARTED),)
    return _relaunch(situation, settings, pod)


def _relaunch(situation: Situation, settings: CallbackSettings, pod: PodView) -> tuple[Action, ...]:
    # The attempt that is to be repeated is a later one where another's pod has the name of the next.
    attempt = max(pod.attempt + 1, situation.row.next_attempt, situation.memory.repeat_attempt or 0)
    ended_at = min(_ended_at(situation, pod), situation.now)  # the clock that says it may be ahead of ours
    not_before = max(
        situation.memory.retry_at, ended_at + retry_delay(launches_so_far(situation, pod), settings)
    )
    if situation.now < not_before:
        return (Occupy(), RecordAttempt(attempt), LookAgain(not_before))
    return (Occupy(), RecordAttempt(attempt), _look_before(situation, pod, attempt) or Launch(attempt))


def _look_before(situation: Situation, gone: PodView, attempt: int) -> LookFor | None:
    """Return the look at the pod that this attempt follows, if it was not made yet.

    A scheduler that hung, or took the callback for one without pod, may have made it again after it was deleted
    from outside. None does once the next attempt is recorded, and that is before the look.
    """
    look = LookFor(gone.namespace, pod_name(gone.callback_id, attempt - 1), again=True)
    is_there = any(pod.name == look.name and not pod.gone for pod in situation.pods)
    made = (look.namespace, look.name) in situation.memory.looked_for
    return None if made or is_there or attempt - 1 <= situation.row.history else look


def _ended_at(situation: Situation, pod: PodView) -> float:
    """Return when the pod ended, or when that was seen, where Kubernetes does not say it."""
    if not pod.gone and pod.delete_by is not None:
        return situation.by_own_clock(pod.delete_by)
    return pod.ended_at or situation.memory.orphaned_since or situation.now


def _deleted_unstarted(pod: PodView) -> str:
    if pod.outcome is CallbackOutcome.NEVER_STARTED and pod.reason:
        return pod.reason
    waited = f"; it had waited: {pod.reason}" if pod.reason else "."
    return f"Pod {pod.name} was deleted before the callback began{waited}"


def _disappeared(pod: PodView) -> str:
    where = f" on node {pod.node}" if pod.node else ""
    return (
        f"Pod {pod.namespace}/{pod.name} disappeared while running{where}: it was deleted before its result "
        "could be recorded, and the callback may have taken effect. Run it again with "
        "'airflow kubernetes-callbacks retry' if it should."
    )
