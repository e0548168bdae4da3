"""The full comparison of pods with rows: reading both sides. Runs in a worker thread.

Rows are read *before* pods are listed: a row that was active then, and whose pod the list does not
have, has lost its pod. The other way round a pod created between the two reads would look lost.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, classify, not_permitted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_kubernetes_callbacks.callback_store import CallbackStore
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient
    from airflow_kubernetes_callbacks.situation import RowState, RowView


log = logging.getLogger(__name__)


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
    #: Some pods were listed: those of every namespace but these.
    pods_read: bool = False
    unlisted: frozenset[str] = frozenset()
    #: One of those may be listed the next time; until then the absence of a pod says nothing.
    passing: bool = False
    #: If some were not listed: where a launch would put the pods of ``rows``, as far as that is known.
    places: Mapping[str, str | None] = field(default_factory=dict)
    error: str | None = None

    def covers(self, row: RowView) -> bool:
        """Tell whether the list has every pod that there can be of this row's callback."""
        if not self.pods_read or self.passing:
            return False
        place = self.places.get(row.callback_id)
        launched_in = (row.launched_pod or "").partition("/")[0]
        return not self.unlisted or (
            place is not None and not self.unlisted.intersection((place, launched_in))
        )


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
    namespaces = client.namespaces if client.namespaces is not None else (None,)
    pods, unlisted, passing, trouble = _list(client, namespaces)
    return Comparison(
        listed_at,
        places=_places(store, rows) if unlisted else {},
        active=active,
        rows=rows,
        pods=tuple(pods),
        alive=alive,
        rows_read=True,
        pods_read=len(unlisted) < len(namespaces),
        passing=passing,
        unlisted=frozenset(namespace for namespace in unlisted if namespace is not None),
        error="; ".join(trouble) or None,
    )


def _places(store: CallbackStore, rows: Mapping[str, RowView]) -> Mapping[str, str | None]:
    try:
        return store.namespaces(rows)
    except Exception as error:  # noqa: BLE001 - then no row counts as covered by the list
        log.warning("Namespaces of callbacks cannot be read now: %s: %s", type(error).__name__, error)
        return {}


def _list(
    client: PodClient, namespaces: Sequence[str | None]
) -> tuple[list[PodView], set[str | None], bool, list[str]]:
    """Return all pods that can be listed, the namespaces (None: all) whose cannot, whether that may pass, and why.

    One namespace that refuses costs the callbacks in it, and no others. Where the API server does not answer
    at all, the rest is not asked for: each would wait as long.
    """
    pods: list[PodView] = []
    unlisted: set[str | None] = set()
    passing = False
    trouble = []
    for number, namespace in enumerate(namespaces):
        try:
            pods.extend(client.list_pods(namespace=namespace))
        except Exception as error:  # noqa: BLE001
            failure = classify(error)
            unlisted.add(namespace)
            # A binding to a role that was deleted says the same as roles that are not read yet, for good.
            forbidden = not_permitted(failure)
            passing = passing or not (forbidden or failure.answer is ApiAnswer.NOT_FOUND)
            where = f" in namespace {namespace}" if namespace else ""
            told = f"pods{where} could not be listed ({failure.message})"
            if forbidden:
                told += "; grant the scheduler's service account the verb 'list' on pods there"
            trouble.append(told)
            if failure.status is None:
                unlisted.update(namespaces[number:])
                break
    return pods, unlisted, passing, trouble
