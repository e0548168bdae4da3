"""The full comparison of pods with rows: reading both sides. Runs in a worker thread.

Rows are read *before* pods are listed: a row that was active then, and whose pod the list does not
have, has lost its pod. The other way round a pod created between the two reads would look lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_kubernetes_callbacks.callback_store import CallbackStore
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient
    from airflow_kubernetes_callbacks.situation import RowState, RowView


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides, as they were read. ``error`` says in words why a side could not be read whole."""

    #: When the list of pods was begun (monotonic seconds).
    listed_at: float
    active: Mapping[str, RowState] = field(default_factory=dict)
    #: Rows that had no live pod here, as they were before the list.
    rows: Mapping[str, RowView] = field(default_factory=dict)
    pods: tuple[PodView, ...] = ()
    #: Job ids of the schedulers that are alive; None where the database did not tell.
    alive: frozenset[str] | None = None
    rows_read: bool = False
    pods_read: bool = False
    error: str | None = None


def compare(store: CallbackStore, client: PodClient, with_pod: frozenset[str]) -> Comparison:
    """Read rows and pods; what cannot be read is left out and said, nothing is raised.

    :param with_pod: callbacks that are known to have a live pod: their rows need no second read.
    """
    try:
        alive = store.alive_schedulers()
        store.forget_teams()
        active = store.active_states()
        rows = store.rows(callback_id for callback_id in active if callback_id not in with_pod)
    except Exception as error:  # noqa: BLE001 - any database driver's own errors; tried again at the next comparison
        return Comparison(
            time.monotonic(), error=f"the database did not answer: {type(error).__name__}: {error}"
        )
    listed_at = time.monotonic()
    pods: list[PodView] = []
    trouble: str | None = None
    try:
        pods.extend(client.list_pods())
    except Exception as error:  # noqa: BLE001
        failure = classify(error)
        trouble = f"pods could not be listed ({failure.message})"
        if failure.answer is ApiAnswer.FORBIDDEN:
            trouble += "; grant the scheduler's service account the verb 'list' on pods"
    return Comparison(
        listed_at,
        active=active,
        rows=rows,
        pods=tuple(pods),
        alive=alive,
        rows_read=True,
        pods_read=trouble is None,
        error=trouble,
    )
