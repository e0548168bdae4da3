"""What a person may do to a callback, and what to remove: decisions over plain values. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.cli.durations import age_text
from airflow_kubernetes_callbacks.cli.model import (
    FAILED,
    QUEUED,
    RUNNING,
    SCHEDULED,
    SUCCESS,
    CallbackRecord,
    PodFacts,
    last_attempt,
)
from airflow_kubernetes_callbacks.connection_test import Progress
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, epoch_seconds
from airflow_kubernetes_callbacks.redact import bounded, presentable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_kubernetes_callbacks.cli.cluster import SecretFacts


_CANCELLED = "Cancelled by"
_MAY_HAVE_WORKED = "may have taken effect"
#: Characters of a reason that are kept: it is read in tables.
_LONGEST_REASON = 1000


@dataclass(frozen=True, slots=True)
class Refusal:
    """It is not done; why."""

    why: str


@dataclass(frozen=True, slots=True)
class Cancellation:
    """The row becomes FAILED with ``output``, and then these pods are deleted."""

    output: str
    pods: tuple[PodFacts, ...]

    @property
    def text(self) -> str:
        if not self.pods:
            return "fail it; it has no pod"
        ends = "; ".join(
            f"end pod {pod.where}"
            + (" with its grace period" if pod.view.outcome is CallbackOutcome.RUNNING else "")
            for pod in self.pods
        )
        return f"fail it; {ends}"


@dataclass(frozen=True, slots=True)
class Retry:
    """These pods are deleted, and when they are gone the row becomes PENDING, to be launched as ``attempt``."""

    attempt: int
    pods: tuple[PodFacts, ...]
    #: What a person has to know before; the callback may take effect twice.
    warning: str | None

    @property
    def text(self) -> str:
        first = "".join(f"delete pod {pod.where}; " for pod in self.pods)
        return f"{first}hand it out again, as attempt {self.attempt}"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A pod or a Secret that nothing needs any more."""

    kind: str
    namespace: str
    name: str
    why: str
    #: This database has no such callback or connection test: another Airflow in the namespace may.
    foreign: bool
    target: PodFacts | SecretFacts


def cancellation(
    record: CallbackRecord, pods: Iterable[PodFacts], *, pods_known: bool, by: str, reason: str | None
) -> Cancellation | Refusal:
    """Return what cancelling this callback means.

    :param pods_known: *pods* are all there are; without that one may run unseen.
    """
    if record.terminal:
        return Refusal(f"it has ended: {record.state}")
    if record.state == SCHEDULED:
        return Refusal(
            "its deadline is not missed yet; it goes away when the Dag run ends in time, or is deleted"
        )
    if not record.active:
        return Refusal(f"its state is {record.state or 'not set'}")
    if record.routable and not record.ours:
        return Refusal(_elsewhere(record))
    pods = tuple(pods)
    live = tuple(pod for pod in pods if not pod.view.outcome.terminal and not pod.view.deleting)
    why = _presentable_reason(reason)
    output = f"{_CANCELLED} {by}" + (f": {why}." if why else ".")
    if begun := _begun(record, pods, pods_known):
        output += f" {begun} {_MAY_HAVE_WORKED}."
    return Cancellation(output, live)


def _presentable_reason(reason: str | None) -> str:
    """Return a person's reason in one bounded line, with tokens masked; empty where there is none."""
    text = " ".join(presentable(reason or "").split())
    return bounded(text, _LONGEST_REASON).rstrip(". ")


def _begun(record: CallbackRecord, pods: Sequence[PodFacts], pods_known: bool) -> str | None:
    """Return the beginning of a sentence on a callback that may have begun; None where it has not."""
    if record.state == RUNNING or any(pod.view.outcome is CallbackOutcome.RUNNING for pod in pods):
        return "The callback was running and"
    if any(pod.view.started_at is not None for pod in pods):
        return "The callback had run and"
    if record.state == QUEUED and not pods_known:
        return "Whether it had a pod is not known: it"
    return None


def retry(
    record: CallbackRecord, pods: Sequence[PodFacts], *, pods_known: bool, force: bool
) -> Retry | Refusal:
    """Return what running this callback again means."""
    if refusal := _no_retry(record, pods, pods_known=pods_known, force=force):
        return refusal
    return Retry(last_attempt(record, pods) + 1, tuple(pods), _may_have_run(record, pods))


def _no_retry(
    record: CallbackRecord, pods: Sequence[PodFacts], *, pods_known: bool, force: bool
) -> Refusal | None:
    if not record.ours:
        return Refusal(_elsewhere(record))
    if record.state == SUCCESS and not force:
        return Refusal("it succeeded; give --force to run it a second time")
    if not record.dag_run_exists:
        return Refusal("its Dag run was deleted, and no scheduler hands out a callback without one")
    if not pods_known:
        return Refusal("whether it has a pod is not known, because the Kubernetes API did not answer")
    if record.terminal:
        still = next((pod for pod in pods if _lives(pod)), None)
        return _pod_in_the_way(still) if still is not None else None
    if not record.active or record.state == "pending":
        return Refusal(f"its state is {record.state}: it has yet to run")
    if pods:
        return Refusal(f"it is {record.state} and has a pod, {pods[-1].where}; cancel it first")
    return None


def _elsewhere(record: CallbackRecord) -> str:
    if not record.routable:
        return f"no configured executor answers to {record.executor!r}"
    name = repr(record.executor) if record.executor else "that is the default"
    return f"it goes to the executor {name}, which is none of this package's"


def _pod_in_the_way(pod: PodFacts) -> Refusal:
    if not pod.view.deleting:
        return Refusal(f"its pod {pod.where} is still running; wait for its end")
    return Refusal(
        f"its pod {pod.where} is being deleted and may still be running; wait for its end. If its node is gone for "
        "good, delete the pod with 'kubectl delete pod --force' first"
    )


def _lives(pod: PodFacts) -> bool:
    return pod.view.outcome in (CallbackOutcome.RUNNING, CallbackOutcome.PENDING)


#: What the executor says of a callback that never began, at the beginning or at the end.
_NEVER_BEGAN = re.compile(r"\Acould not start\b|\bthe callback never began\)\Z", re.IGNORECASE)


def _may_have_run(record: CallbackRecord, pods: Sequence[PodFacts]) -> str | None:
    if record.state == SUCCESS:
        return "it succeeded: a second run is a second alert"
    if any(pod.view.started_at is not None for pod in pods):
        return "it began and did not end well: it may have taken effect"
    output = record.output or ""
    if record.state == FAILED and _NEVER_BEGAN.search(output):
        return None
    if record.state == FAILED and output.startswith(_CANCELLED) and _MAY_HAVE_WORKED not in output:
        return None
    if record.state == RUNNING:
        return "it was running when its pod disappeared: it may have taken effect"
    return "it may have begun: it may take effect a second time"


@dataclass(frozen=True, slots=True)
class Known:
    """What this database says of those whose pods and Secrets are there, by id."""

    callbacks: Mapping[str, CallbackRecord]
    connection_tests: Mapping[str, Progress]

    def state_of(self, owner_id: str, *, of_connection_test: bool) -> _State:
        """Return whether anything is still to come of it, and where it stands in words."""
        if of_connection_test:
            progress = self.connection_tests.get(owner_id, Progress.ABSENT)
            if progress is Progress.ABSENT:
                return _State("this database has no such connection test", foreign=True)
            return _State("its connection test is over", over=progress is Progress.SETTLED)
        record = self.callbacks.get(owner_id)
        if record is None:
            return _State("this database has no such callback", foreign=True)
        return _State(f"its callback ended ({record.state})", over=record.terminal)


@dataclass(frozen=True, slots=True)
class _State:
    text: str
    over: bool = True
    foreign: bool = False


def leftovers(
    pods: Sequence[PodFacts],
    secrets: Iterable[SecretFacts],
    known: Known,
    *,
    now: float,
    older_than: float,
) -> list[Leftover]:
    """Return what ``gc`` removes: finished or waiting pods that nothing needs, Secrets without a pod.

    :param pods: every pod that exists, of callbacks and of connection tests.
    :param older_than: seconds; younger ones are the executor's own business.
    """
    found = [left for pod in pods if (left := _left_pod(pod, known, now, older_than)) is not None]
    there = {(pod.view.namespace, pod.view.name) for pod in pods}
    for secret in secrets:
        created = epoch_seconds(secret.created_at)
        if (secret.namespace, secret.name) in there or created is None or now - created < older_than:
            continue
        foreign = known.state_of(secret.owner_id, of_connection_test=secret.of_connection_test).foreign
        found.append(Leftover("secret", secret.namespace, secret.name, "its pod is gone", foreign, secret))
    return found


def _left_pod(pod: PodFacts, known: Known, now: float, older_than: float) -> Leftover | None:
    view = pod.view
    if view.outcome is CallbackOutcome.RUNNING or (view.deleting and not view.finalizer):
        return None  # one that is deleted goes by itself, unless our finalizer keeps it
    state = known.state_of(view.callback_id, of_connection_test=pod.of_connection_test)
    since = max(view.created_at, view.ended_at or 0.0)
    if not state.over or now - since < older_than:
        return None
    what = "finished" if view.outcome.terminal else "created and never started"
    why = f"{state.text}; {what}, {age_text(now - since)} ago"
    return Leftover("pod", view.namespace, view.name, why, state.foreign, pod)
