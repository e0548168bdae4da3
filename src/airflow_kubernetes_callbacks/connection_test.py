"""What a connection test's pod is known by, and what is to be done about it. Pure.

The pod of a test reports the result itself, through the execution API, and core fails a test of which
nothing is heard for too long. What is left to the executor: that the pod ends and goes, that the slot
comes free, and that a test whose pod cannot tell any more fails at once and with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks import identity
from airflow_kubernetes_callbacks.outcome import CAPACITY_REASONS, CallbackOutcome
from airflow_kubernetes_callbacks.pod_identity import PodIdentity
from airflow_kubernetes_callbacks.reason import could_not_start

if TYPE_CHECKING:
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.settings import CallbackSettings

#: Core fails a test that is queued for longer than its timeout and half of that, at least this much.
_CORE_GRACE = 30
#: How much earlier (seconds) it fails here, with the reason, which core does not know.
_AHEAD_OF_CORE = 5.0
#: Seconds that a pod gets to end by itself after it has reported its result.
END_GRACE = 15.0
#: Seconds after its end from which on nobody seems to look after a pod.
LEFTOVER_GRACE = 60.0


class Progress(str, Enum):
    """What the database says of a test."""

    #: There is no such row: it was cleaned away, or it is in another database.
    ABSENT = "absent"
    ACTIVE = "active"
    #: A result is recorded.
    SETTLED = "settled"


class Step(str, Enum):
    """What to do about a test now."""

    WAIT = "wait"
    #: It cannot succeed any more: record that with the reason, then clean up.
    FAIL = "fail"
    #: It is over: remove the pod, free the slot.
    CLEAN_UP = "clean_up"


@dataclass(frozen=True, slots=True)
class Decision:
    """The step, and for :attr:`Step.FAIL` the reason in words for the person who waits."""

    step: Step
    reason: str = ""


def start_limit(timeout: float) -> float:
    """Return how many seconds a test with this timeout may wait for its pod to start."""
    return timeout + max(_CORE_GRACE, timeout // 2) - _AHEAD_OF_CORE


def active_deadline(timeout: float, settings: CallbackSettings) -> int:
    """Return the seconds after which Kubernetes ends the pod, whatever happens in it."""
    return int(start_limit(timeout) + timeout + settings.active_deadline_margin)


def connection_test_identity(
    test_id: str, connection_id: str, *, owner: str, executor: str | None, team: str | None
) -> PodIdentity:
    """Return the name, labels and annotations of a test's pod."""
    labels = {
        identity.WORKLOAD_TYPE_LABEL: identity.CONNECTION_TEST_WORKLOAD,
        identity.CONNECTION_TEST_OWNER_LABEL: identity.label_value(owner),
    }
    if executor:
        labels[identity.EXECUTOR_LABEL] = identity.label_value(executor)
    if team:
        labels[identity.TEAM_LABEL] = identity.label_value(team)
    annotations = {
        identity.CONNECTION_TEST_ID_ANNOTATION: test_id,
        identity.CONNECTION_ID_ANNOTATION: connection_id,
    }
    return PodIdentity(identity.connection_test_pod_name(test_id), labels, annotations)


def waits_with_an_error(pod: PodView | None) -> bool:
    """Tell whether the pod waits for what may never come, such as its image: not just for room."""
    return (
        pod is not None
        and pod.outcome is CallbackOutcome.PENDING
        and pod.waiting_reason is not None
        and pod.waiting_reason not in CAPACITY_REASONS
    )


def decide_test(
    pod: PodView | None,
    progress: Progress,
    *,
    waited: float,
    faulty_for: float,
    settled_for: float,
    timeout: float,
    error_grace: float,
) -> Decision:
    """Return what to do about a test whose pod was created.

    :param pod: the pod as a complete list has it; None if it is not there.
    :param waited: seconds since the executor was told to run the test.
    :param faulty_for: seconds since which the pod is seen to wait with an error; 0 if it does not.
    :param settled_for: seconds since the result was first seen to be recorded.
    :param timeout: the test's own, in seconds.
    :param error_grace: seconds that an error such as ErrImagePull may last.
    """
    if progress is not Progress.ACTIVE:
        reported = pod is not None and pod.outcome is CallbackOutcome.RUNNING and settled_for < END_GRACE
        return Decision(Step.WAIT if reported else Step.CLEAN_UP)
    if pod is None:
        return Decision(Step.FAIL, "The pod of the connection test was deleted before it told its result.")
    if pod.outcome is CallbackOutcome.RUNNING:
        return Decision(Step.WAIT)
    if pod.outcome is CallbackOutcome.PENDING:
        too_faulty = waits_with_an_error(pod) and faulty_for >= error_grace
        if waited < start_limit(timeout) and not too_faulty:
            return Decision(Step.WAIT)
    return Decision(Step.FAIL, end_reason(pod))


def end_reason(pod: PodView) -> str:
    """Return why the pod of a test that is not settled never will tell a result."""
    if pod.outcome is CallbackOutcome.SUCCEEDED:
        return "The pod of the connection test ended without telling its result."
    if pod.outcome is CallbackOutcome.FAILED:
        return pod.reason or "The pod of the connection test failed."
    if pod.outcome is CallbackOutcome.RUNNING:
        return "The pod of the connection test ran for too long."
    return could_not_start(pod.reason or "the pod of the connection test did not start in time")


def is_leftover(pod: PodView, now: float, lifetime: float) -> bool:
    """Tell whether nobody looks after this pod of a test any more.

    :param now: seconds since the epoch.
    :param lifetime: seconds that a test's pod may exist.
    """
    if pod.deleting:
        return False
    if pod.outcome.terminal:
        return now - (pod.ended_at or pod.created_at) > LEFTOVER_GRACE
    return now - pod.created_at > lifetime
