"""Pods as the API server sends them, for tests: small builders over plain JSON."""

from __future__ import annotations

from typing import Any

CALLBACK_ID = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
CREATED = "2026-06-01T10:00:00Z"
STARTED = "2026-06-01T10:00:05Z"
ENDED = "2026-06-01T10:00:09Z"
ZERO_TIME = "1970-01-01T00:00:00Z"


def running(started: str | None = STARTED) -> dict[str, Any]:
    return {"running": {"startedAt": started} if started else {}}


def waiting(reason: str | None, message: str | None = None) -> dict[str, Any]:
    return {"waiting": _present(reason=reason, message=message)}


def terminated(
    code: int | None = 0,
    reason: str | None = None,
    message: str | None = None,
    started: str | None = STARTED,
    finished: str | None = ENDED,
    **more: Any,
) -> dict[str, Any]:
    word = reason or ("Completed" if code == 0 else "Error")
    end = _present(exitCode=code, reason=word, message=message, startedAt=started, finishedAt=finished)
    return {"terminated": {**end, **more}}


def status(
    name: str = "base", state: dict[str, Any] | None = None, last: dict[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    return {"name": name, "state": state or {}, "lastState": last or {}, "image": "airflow:3.3.2", **more}


def condition(kind: str, value: str, reason: str | None = None, message: str | None = None) -> dict[str, Any]:
    return {"type": kind, "status": value, **_present(reason=reason, message=message)}


def pod(
    phase: str = "Running",
    statuses: list[dict[str, Any]] | None = None,
    *,
    init: list[dict[str, Any]] | None = None,
    conditions: list[dict[str, Any]] | None = None,
    containers: list[dict[str, Any]] | None = None,
    init_containers: list[dict[str, Any]] | None = None,
    node: str | None = "node-1",
    reason: str | None = None,
    message: str | None = None,
    start_time: str | None = CREATED,
    **metadata: Any,
) -> dict[str, Any]:
    """A callback pod in the state that *statuses* and *phase* describe."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"callback-{CALLBACK_ID}-2",
            "namespace": "airflow",
            "uid": "11111111-2222-3333-4444-555555555555",
            "resourceVersion": "77",
            "creationTimestamp": CREATED,
            "labels": {"airflow-worker": "7", "callback-attempt": "2", "callback-id": CALLBACK_ID},
            "annotations": {"callback_id": CALLBACK_ID, "dag_id": "d", "run_id": "r"},
            **metadata,
        },
        "spec": _present(
            containers=containers or [{"name": "base", "image": "airflow:3.3.2"}],
            initContainers=init_containers,
            nodeName=node,
        ),
        "status": _present(
            phase=phase,
            containerStatuses=statuses,
            initContainerStatuses=init,
            conditions=conditions,
            reason=reason,
            message=message,
            startTime=start_time,
        ),
    }


def _present(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
