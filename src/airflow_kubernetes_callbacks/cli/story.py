"""The whole story of one callback: from the deadline to the recorded result, in order. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks import pod_status
from airflow_kubernetes_callbacks.cli.model import PENDING, QUEUED, SCHEDULED, CallbackRecord, PodFacts
from airflow_kubernetes_callbacks.identity import attempt_in
from airflow_kubernetes_callbacks.outcome import CallbackOutcome, epoch_seconds
from airflow_kubernetes_callbacks.redact import presentable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from airflow_kubernetes_callbacks.cli.rows import AuditEntry

#: What the steps below already say.
_TOLD_EVENTS = frozenset({"Scheduled", "Created", "Started"})
#: The events that tell of a pod that is gone, in the order in which they come about.
_VANISHED = ("Scheduled", "Started")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the timeline. Airflow keeps no time of some; those stand where they belong."""

    what: str
    detail: str = ""
    #: Epoch seconds.
    at: float | None = None

    @property
    def when(self) -> str | None:
        return datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds") if self.at else None


def timeline(
    record: CallbackRecord,
    pods: Sequence[PodFacts],
    events: Sequence[Mapping[str, Any]],
    audit: Sequence[AuditEntry] = (),
) -> list[Step]:
    """Return what happened, in order."""
    steps = list(_before_the_pod(record))
    names = {pod.view.name for pod in pods}
    of_pods = [(pod.view.attempt, step) for pod in pods for step in _of_pod(pod)]
    of_pods.extend(_of_vanished_pods(record.id, [event for event in events if _pod_of(event) not in names]))
    steps.extend(step for _, step in sorted(of_pods, key=lambda item: item[0]))
    steps.extend(_of_end(record))
    told = [step for entry in audit if (step := _of_audit(entry)) is not None]
    told.extend(_of_events(events))
    return _in_order(steps, told)


def _before_the_pod(record: CallbackRecord) -> Iterator[Step]:
    yield Step("created", "with its Dag run" if record.deadline_time else "", record.created_at.timestamp())
    if record.deadline_time is not None:
        missed = record.noticed_at is not None or record.state != SCHEDULED
        what = "deadline missed" if missed else "deadline"
        yield Step(what, record.deadline_name or "", record.deadline_time.timestamp())
    if record.noticed_at is not None:
        yield Step("noticed", "the scheduler found the deadline missed", record.noticed_at.timestamp())
    if record.state not in (SCHEDULED, PENDING):
        yield Step("queued", "handed to the executor")


def _of_pod(pod: PodFacts) -> Iterator[Step]:
    view = pod.view
    yield Step(
        "pod created", f"{pod.where}, attempt {view.attempt}, by scheduler job {view.owner}", view.created_at
    )
    scheduled = pod_status.condition(pod.document, "PodScheduled", "True")
    if scheduled:
        yield Step("scheduled", f"on node {view.node}", epoch_seconds(scheduled.get("lastTransitionTime")))
    if view.started_at is not None:
        yield Step("running", "its container started", view.started_at)
    if view.outcome is CallbackOutcome.PENDING:
        yield Step("waiting", presentable(view.reason or "for its container to start"))
    if view.outcome.terminal:
        yield Step(f"pod {_END[view.outcome]}", presentable(view.reason or ""), view.ended_at)
    if view.deleting:
        metadata = pod_status.mapping(pod.document, "metadata")
        by = epoch_seconds(metadata.get("deletionTimestamp"))
        grace = metadata.get("deletionGracePeriodSeconds")
        grace = grace if isinstance(grace, (int, float)) else 0
        yield Step("pod deleted", f"it has {grace:g} s to end", by - grace if by is not None else None)


_END = {
    CallbackOutcome.SUCCEEDED: "succeeded",
    CallbackOutcome.FAILED: "failed",
    CallbackOutcome.NEVER_STARTED: "could not start",
}


def _of_vanished_pods(callback_id: str, events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, Step]]:
    """Yield what Kubernetes' events still say of pods that are gone, each with the attempt."""
    told = [event for event in events if event.get("reason") in _VANISHED]

    # By time alone a start, which is told in whole seconds, would come before the assignment to a node.
    def order(event: Mapping[str, Any]) -> tuple[str, int, float]:
        return _pod_of(event), _VANISHED.index(str(event["reason"])), _event_time(event) or 0.0

    for event in sorted(told, key=order):
        number = attempt_in(_pod_of(event), callback_id)
        attempt = int(number) if number.isdecimal() else 0
        if event["reason"] == "Scheduled":
            yield attempt, Step("scheduled", _message(event), _event_time(event))
        else:
            yield attempt, Step("running", f"pod {_pod_of(event)}: {_message(event)}", _event_time(event))


def _pod_of(event: Mapping[str, Any]) -> str:
    return pod_status.text_of(pod_status.mapping(event, "involvedObject"), "name") or ""


def _of_end(record: CallbackRecord) -> Iterator[Step]:
    if record.terminal:
        yield Step(f"recorded as {record.state}", presentable(record.output or ""))
    elif record.state == QUEUED:
        return


def _of_audit(entry: AuditEntry) -> Step | None:
    by = f"by {entry.by}: " if entry.by else ""
    return Step(entry.event, presentable(f"{by}{entry.extra}"), entry.at.timestamp())


def _of_events(events: Iterable[Mapping[str, Any]]) -> Iterator[Step]:
    for event in events:
        reason = pod_status.text_of(event, "reason") or "Event"
        if reason in _TOLD_EVENTS:
            continue
        count = event.get("count")
        times = f" ({count} times)" if isinstance(count, int) and count > 1 else ""
        yield Step(f"event {reason}", f"{_message(event)}{times}", _event_time(event))


def _message(event: Mapping[str, Any]) -> str:
    return presentable(pod_status.text_of(event, "message") or "")


def _event_time(event: Mapping[str, Any]) -> float | None:
    for key in ("firstTimestamp", "eventTime", "lastTimestamp"):
        if (at := epoch_seconds(event.get(key))) is not None:
            return at
    return epoch_seconds(pod_status.mapping(event, "metadata").get("creationTimestamp"))


def _in_order(steps: Iterable[Step], told: Iterable[Step]) -> list[Step]:
    """Return all steps by time.

    *steps* keep their order: some have no time, and those that Kubernetes tells are cut to whole seconds.
    """
    placed: list[tuple[float, int, Step]] = []
    latest = 0.0
    for step in steps:
        latest = max(latest, step.at or 0.0)
        placed.append((latest, len(placed), step))
    last = max((at for at, _, step in placed if step.at is not None), default=0.0)
    for step in told:
        at = step.at if step.at is not None else last
        placed.append((at, len(placed), step))
    ends = [item for item in placed if item[2].what.startswith("recorded as") and item[2].at is None]
    if ends:  # the end is recorded after all else that led to it
        end = ends[0]
        placed.remove(end)
        placed.append((max(at for at, _, _ in [*placed, end]), len(placed), end[2]))
    return [step for _, _, step in sorted(placed, key=lambda item: item[:2])]


def as_document(
    record: CallbackRecord, pods: Sequence[PodFacts], steps: Sequence[Step], stuck: str | None
) -> dict[str, Any]:
    """Return the story with every field, for programs."""
    return {
        "callback": {
            "id": record.id,
            "state": record.state,
            "output": presentable(record.output) if record.output else None,
            "stuck_reason": stuck,
            "path": record.path,
            "kwargs": list(record.kwargs),
            "executor": record.executor,
            "team": record.team,
            "priority_weight": record.priority_weight,
            "created_at": _iso(record.created_at),
            "attempt": record.recorded_attempt,
        },
        "dag_run": {
            "dag_id": record.dag_id,
            "run_id": record.run_id,
            "state": record.dag_run_state,
            "exists": record.dag_run_exists,
        },
        "deadline": {
            "id": record.deadline_id,
            "name": record.deadline_name,
            "time": _iso(record.deadline_time),
            "noticed_at": _iso(record.noticed_at),
        },
        "pods": [_pod_document(pod) for pod in pods],
        "timeline": [{"at": step.when, "what": step.what, "detail": step.detail} for step in steps],
    }


def _pod_document(pod: PodFacts) -> dict[str, Any]:
    view = pod.view
    return {
        "name": view.name,
        "namespace": view.namespace,
        "attempt": view.attempt,
        "phase": pod.phase,
        "outcome": view.outcome.value,
        "reason": presentable(view.reason) if view.reason else None,
        "node": view.node,
        "scheduler": view.owner,
        "image": pod_status.base_status(pod.document).image,
        "created_at": _iso_of(view.created_at),
        "started_at": _iso_of(view.started_at),
        "ended_at": _iso_of(view.ended_at),
        "kept": pod.kept,
    }


def _iso(value: datetime | None) -> str | None:
    return value.astimezone(UTC).isoformat(timespec="milliseconds") if value is not None else None


def _iso_of(seconds: float | None) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds") if seconds else None
