"""What the commands look at: callback rows and pods as plain values. Pure."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks import pod_status
from airflow_kubernetes_callbacks.identity import (
    CONNECTION_TEST_WORKLOAD,
    DONE_LABEL,
    WORKLOAD_TYPE_LABEL,
    callback_id_of,
    connection_test_id_of,
)
from airflow_kubernetes_callbacks.outcome import PodView, pod_view
from airflow_kubernetes_callbacks.payload import size_in_bytes, unescaped
from airflow_kubernetes_callbacks.redact import mask_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

#: Callback states by which commands decide, as the database has them.
SCHEDULED, PENDING, QUEUED, RUNNING, SUCCESS, FAILED = (
    "scheduled",
    "pending",
    "queued",
    "running",
    "success",
    "failed",
)
STATES = (SCHEDULED, PENDING, QUEUED, RUNNING, SUCCESS, FAILED)
#: A deadline was missed and the callback has not ended.
ACTIVE_STATES = (PENDING, QUEUED, RUNNING)
TERMINAL_STATES = (SUCCESS, FAILED)


@dataclass(frozen=True, slots=True)
class CallbackRecord:
    """One callback as the database has it, with its deadline and its Dag run."""

    id: str
    state: str
    output: str | None
    path: str
    #: Names only: the values are the user's, and may be secret.
    kwargs: tuple[str, ...]
    #: The executor that the Dag author named, if any.
    executor: str | None
    #: It goes to an executor of this package.
    ours: bool
    #: Some configured executor answers to it.
    routable: bool
    team: str | None
    dag_id: str | None
    run_id: str | None
    dag_run_id: int | None
    #: The Dag run is there; a callback that waits for its first launch cannot do without.
    dag_run_exists: bool
    dag_run_state: str | None
    priority_weight: int
    created_at: datetime
    deadline_id: str | None
    deadline_name: str | None
    deadline_time: datetime | None
    #: When the scheduler found the deadline missed.
    noticed_at: datetime | None
    #: What this package keeps in ``callback.data``.
    kept: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recorded_attempt(self) -> int | None:
        attempt = self.kept.get("attempt")
        return attempt if isinstance(attempt, int) and attempt > 0 else None

    @property
    def since(self) -> datetime:
        """The time from which its age counts: the deadline, else the row's own creation."""
        return self.deadline_time or self.created_at

    @property
    def active(self) -> bool:
        return self.state in ACTIVE_STATES

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL_STATES


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One pod: what it says about its callback, and the object itself."""

    view: PodView
    document: Mapping[str, Any]

    @property
    def where(self) -> str:
        return f"{self.view.namespace}/{self.view.name}"

    @property
    def phase(self) -> str:
        if self.view.deleting:
            return "Terminating"
        return pod_status.text_of(pod_status.mapping(self.document, "status"), "phase") or "Unknown"

    @property
    def kept(self) -> bool:
        """It has ended, is recorded and is left standing on purpose (``delete_worker_pods``)."""
        return self.labels.get(DONE_LABEL) == "True"

    @property
    def of_connection_test(self) -> bool:
        """It runs a connection test; the view's ``callback_id`` is then the test's id."""
        return self.labels.get(WORKLOAD_TYPE_LABEL) == CONNECTION_TEST_WORKLOAD

    @property
    def labels(self) -> Mapping[str, Any]:
        return pod_status.mapping(pod_status.mapping(self.document, "metadata"), "labels")


def pod_facts(document: Mapping[str, Any]) -> PodFacts | None:
    """Return the facts of a callback's pod, or None if it is none."""
    view = pod_view(document, id_of=callback_id_of)
    return PodFacts(view, document) if view is not None else None


def connection_test_pod_facts(document: Mapping[str, Any]) -> PodFacts | None:
    """Return the facts of a connection test's pod, or None if it is none."""
    view = pod_view(document, id_of=connection_test_id_of)
    return PodFacts(view, document) if view is not None else None


def by_callback(pods: Iterable[PodFacts]) -> dict[str, tuple[PodFacts, ...]]:
    """Return the pods of each callback, the latest attempt last; a pod that came twice counts once."""
    found: dict[str, dict[str, PodFacts]] = {}
    for pod in pods:
        found.setdefault(pod.view.callback_id, {})[pod.view.uid] = pod
    return {
        callback_id: tuple(sorted(of_one.values(), key=lambda pod: (pod.view.attempt, pod.view.created_at)))
        for callback_id, of_one in found.items()
    }


def current_pod(pods: Iterable[PodFacts], *, attempt: int | None = None) -> PodFacts | None:
    """Return the pod that tells the state: one that began before one that did not, then the latest.

    :param attempt: the attempt that is meant, if one is.
    """
    meant = (pod for pod in pods if attempt in (None, pod.view.attempt))
    return max(meant, key=lambda pod: (pod.view.started_at is not None, pod.view.attempt), default=None)


def last_attempt(record: CallbackRecord, pods: Iterable[PodFacts]) -> int:
    """Return the number of the last launch, as far as the row and the pods that are there tell."""
    return max([record.recorded_attempt or 1, *(pod.view.attempt for pod in pods)])


def shown_pod(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as it may be shown: no workload (it has the token and the kwargs), no managed fields."""
    shown = copy.deepcopy(dict(document))
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    for kind in ("containers", "initContainers"):
        for container in pod_status.mappings(pod_status.mapping(shown, "spec"), kind):
            for part in ("args", "command"):
                if isinstance(container.get(part), list):
                    container[part] = _without_workload(container[part])
    masked: dict[str, Any] = _masked(shown)
    return masked


def _without_workload(arguments: list[Any]) -> list[Any]:
    shown = list(arguments)
    for index, argument in enumerate(shown[:-1]):
        if argument == "--json-string":
            size = size_in_bytes(unescaped(str(shown[index + 1])))
            shown[index + 1] = f"(the workload, {size:,} bytes, not shown)"
    return shown


def _masked(value: Any) -> Any:
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item) for item in value]
    return value
