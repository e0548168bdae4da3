"""A callback and its pods in one line, and whether it is stuck, and why. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.cli.durations import age_text
from airflow_kubernetes_callbacks.cli.model import (
    FAILED,
    PENDING,
    QUEUED,
    RUNNING,
    SCHEDULED,
    CallbackRecord,
    PodFacts,
    current_pod,
)
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.redact import presentable
from airflow_kubernetes_callbacks.unstarted import never_binds

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Seconds within which a live scheduler takes up what waits for it, whatever else it does.
_SCHEDULER_TURN = 60.0
#: Seconds beyond its own limits after which a callback that still runs is stuck.
_RUN_MARGIN = 60.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a judgement depends on besides the callback itself."""

    #: Epoch seconds.
    now: float
    #: Job ids of the schedulers whose heartbeat is recent; None where the database did not tell.
    schedulers: frozenset[str] | None
    #: Every pod there is is known; without that a missing pod means nothing.
    pods_known: bool
    reconcile_interval: float = 30.0
    pending_timeout: float = 300.0
    node_lost_timeout: float = 300.0
    #: ``[callbacks] callback_execution_timeout``; 0 is none.
    execution_timeout: float = 0.0

    @property
    def settled_after(self) -> float:
        """Seconds within which the executor brings everything in order."""
        return 2 * self.reconcile_interval + _SCHEDULER_TURN


@dataclass(frozen=True, slots=True)
class Overview:
    """One line of the list."""

    record: CallbackRecord
    pod: PodFacts | None
    age: float
    reason: str | None
    #: Why it does not get on by itself, if it does not.
    stuck: str | None


def overview(record: CallbackRecord, pods: tuple[PodFacts, ...], around: Surroundings) -> Overview:
    """Return the line for one callback."""
    pod = current_pod(pods)
    return Overview(
        record,
        pod,
        around.now - record.since.timestamp(),
        _reason(record, pod),
        why_stuck(record, pod, around),
    )


def _reason(record: CallbackRecord, pod: PodFacts | None) -> str | None:
    if record.state == FAILED and record.output:
        return presentable(record.output)
    if record.active and pod is not None and pod.view.reason:
        return presentable(pod.view.reason)
    return presentable(record.output) if record.output else None


def why_stuck(record: CallbackRecord, pod: PodFacts | None, around: Surroundings) -> str | None:
    """Return why this callback does not move, or None if it moves, has ended or has yet to begin."""
    if not record.active:
        return None
    if not record.routable:
        return f"no configured executor answers to {record.executor!r}"
    age = around.now - max(record.since.timestamp(), _retried_at(record))
    if record.state == PENDING and not record.dag_run_exists:
        return "its Dag run was deleted, so no scheduler hands it out; cancel it"
    if around.schedulers is not None and not around.schedulers:
        return "no scheduler is alive"
    if record.state == PENDING:
        if age <= around.settled_after:
            return None
        return "no scheduler has handed it out: every slot is taken, or the executor is not running"
    if not around.pods_known:
        return None
    return _why_stuck_without_pod(record, age, around) if pod is None else _why_pod_stuck(record, pod, around)


def _retried_at(record: CallbackRecord) -> float:
    at = record.kept.get("retried_at")
    return float(at) if isinstance(at, (int, float)) and not isinstance(at, bool) else 0.0


def _why_stuck_without_pod(record: CallbackRecord, age: float, around: Surroundings) -> str | None:
    if age <= around.settled_after:
        return None
    if record.state == QUEUED:
        return (
            "it is queued and has no pod: it waits for a slot or for its next launch, see the scheduler's log"
        )
    return "it is running and has no pod; a live scheduler would have failed it by now"


def _why_pod_stuck(record: CallbackRecord, pod: PodFacts, around: Surroundings) -> str | None:
    view = pod.view
    if around.schedulers is not None and view.owner not in around.schedulers:
        seen_since = max(view.created_at, view.started_at or 0.0, view.ended_at or 0.0)
        if around.now - seen_since > around.settled_after:
            return f"its scheduler (job {view.owner}) is gone and no other has adopted its pod"
    has_result = view.outcome in (CallbackOutcome.SUCCEEDED, CallbackOutcome.FAILED)
    if view.deleting and view.delete_by is not None and not has_result and not never_binds(view):
        over = around.now - view.delete_by
        if over <= around.reconcile_interval:
            return None
        return (
            f"its pod was to be gone {age_text(over)} ago: its node is lost or cannot end it, or a finalizer holds "
            f"it; after {age_text(around.node_lost_timeout)} the callback fails"
        )
    if view.outcome.terminal:
        since = view.ended_at or view.created_at
        if around.now - since > around.settled_after:
            return "its pod has ended and the result is not recorded"
        return None
    if view.outcome is CallbackOutcome.PENDING:
        # An error is given up sooner, but from when its scheduler first saw it, which only that one knows.
        if around.now > view.created_at + around.pending_timeout:
            return f"its pod does not start: {view.reason or 'Kubernetes gives no reason'}"
        return None
    if around.execution_timeout and view.started_at is not None:
        over = around.now - view.started_at - around.execution_timeout
        if over > _RUN_MARGIN:
            return f"it has run {age_text(over)} longer than [callbacks] callback_execution_timeout allows"
    if record.state == QUEUED and view.started_at and around.now - view.started_at > around.settled_after:
        return "its pod runs and the row still says queued"
    return None


def as_row(line: Overview) -> dict[str, Any]:
    """Return the line with every field, for programs."""
    record, pod = line.record, line.pod
    return {
        "callback_id": record.id,
        "state": record.state,
        "age_seconds": round(line.age, 1),
        "dag_id": record.dag_id,
        "run_id": record.run_id,
        "path": record.path,
        "team": record.team,
        "executor": record.executor,
        "attempt": pod.view.attempt if pod else record.recorded_attempt,
        "pod": pod.view.name if pod else None,
        "namespace": pod.view.namespace if pod else None,
        "pod_phase": pod.phase if pod else None,
        "node": pod.view.node if pod else None,
        "scheduler": pod.view.owner if pod else None,
        "reason": line.reason,
        "stuck": line.stuck is not None,
        "stuck_reason": line.stuck,
    }


def as_cells(line: Overview) -> dict[str, str]:
    """Return the line for a table: fewer columns, short values."""
    row = as_row(line)
    state = f"{row['state']} (stuck)" if line.stuck else row["state"]
    pod = f"{row['pod_phase']} on {row['node']}" if row["node"] else row["pod_phase"]
    return {
        "callback": row["callback_id"],
        "state": state,
        "age": age_text(line.age),
        "dag": row["dag_id"] or "",
        "run": row["run_id"] or "",
        "path": short_path(row["path"]),
        "attempt": str(row["attempt"] or ""),
        "pod": pod or "",
        "scheduler": row["scheduler"] or "",
        "reason": line.stuck or one_line(short_path(line.reason or "")),
    }


#: The beginning of the module name that Airflow makes up for a Dag file (``get_unique_dag_module_name``).
_MADE_UP = re.compile(r"\bunusual_prefix_[0-9a-f]+_(?=\w)")


def short_path(text: str) -> str:
    """Return a callback's path, or a text with one in it, without what Airflow puts before a Dag file's name."""
    return _MADE_UP.sub("", text)


def one_line(text: str, limit: int = 200) -> str:
    """Return the text on one line, cut to *limit* characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


def counts(lines: Mapping[str, int]) -> str:
    """Return how many callbacks are in which state, in words."""
    order = (PENDING, QUEUED, RUNNING, "success", FAILED, SCHEDULED)
    return ", ".join(f"{lines[state]} {state}" for state in order if lines.get(state))
