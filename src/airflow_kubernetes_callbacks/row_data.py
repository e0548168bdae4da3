"""What a callback row's ``data`` says, and what this package keeps there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_kubernetes_callbacks.situation import RowState, RowView

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The key in ``callback.data`` under which this package keeps what must survive a restart.
RECORD_KEY = "kubernetes_pod"
#: States of the table that are not over, by their value in the database.
ACTIVE = {"queued": RowState.QUEUED, "running": RowState.RUNNING}
_TERMINAL = {"success", "failed"}
#: No database has a larger key.
_LONGEST_NUMBER = 19


class LaunchRecord(NamedTuple):
    """What is written into a QUEUED row: the attempt, and its pod once that exists."""

    callback_id: str
    attempt: int
    pod: str | None


def record_in(data: Any) -> dict[str, Any]:
    """Return what this package keeps in a row's ``data``; empty where there is nothing, or no dictionary."""
    record = data.get(RECORD_KEY) if isinstance(data, dict) else None
    return record if isinstance(record, dict) else {}


def with_record(data: dict[str, Any], record: LaunchRecord) -> dict[str, Any]:
    recorded = record_in(data)
    known = recorded.get("attempt")
    if isinstance(known, int) and (record.attempt, bool(record.pod)) < (known, "pod" in recorded):
        return data  # a scheduler that hung: another one has launched since
    kept: dict[str, Any] = {**recorded, "attempt": record.attempt}
    kept.pop("pod", None)
    if record.pod:
        kept["pod"] = record.pod
    return {**data, RECORD_KEY: kept}


def row_state(state: str | None, *, ours: bool) -> RowState:
    if not ours:
        return RowState.NOT_OURS
    if state in _TERMINAL:
        return RowState.TERMINAL
    return ACTIVE.get(state or "", RowState.NOT_OURS)


def run_id_in_context(data: Any) -> str:
    """Return the id of the Dag run as the callback's context has it; empty where there is none."""
    for key in ("kwargs", "context", "dag_run", "dag_run_id"):
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, str) else ""


def run_number(data: Any) -> int | None:
    number = str(data.get("dag_run_id")) if isinstance(data, dict) else ""
    return int(number) if number.isdecimal() and len(number) < _LONGEST_NUMBER else None


def row_view(
    callback_id: str,
    state: str | None,
    data: Any,
    output: str | None,
    run_ids: Mapping[int, str],
    *,
    ours: bool,
) -> RowView:
    found = row_state(state, ours=ours)
    if not found.active:
        return RowView(callback_id, found)
    record = record_in(data)
    values: Mapping[str, Any] = data if isinstance(data, dict) else {}
    attempt, pod, history = record.get("attempt"), record.get("pod"), record.get("history")
    return RowView(
        callback_id,
        found,
        next_attempt=attempt if isinstance(attempt, int) and attempt > 0 else 1,
        launched_pod=pod if isinstance(pod, str) else None,
        history=history if isinstance(history, int) else 0,
        dag_id=str(values.get("dag_id") or ""),
        run_id=run_id_in_context(values) or run_ids.get(run_number(values) or 0, ""),
        path=str(values.get("path") or ""),
        recorded_end=output or None,
    )
