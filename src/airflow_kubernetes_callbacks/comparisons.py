"""The full comparison of pods with rows, again and again: when one is begun, and what its result means.

The scheduler's thread alone uses this; the reading is done by a thread (:mod:`.comparison`), and what it
found is taken in a part per heartbeat (:mod:`.merging`).
"""

from __future__ import annotations

import logging
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.comparison import Comparison, compare
from airflow_kubernetes_callbacks.merging import Merge
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.situation import RowState

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_kubernetes_callbacks.cache import CallbackCache
    from airflow_kubernetes_callbacks.callback_store import CallbackStore
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient
    from airflow_kubernetes_callbacks.situation import RowView

log = logging.getLogger(__name__)


class Comparisons:
    """Compares everything once per *interval* (seconds), and sooner if that is asked for.

    :param me: job id of this scheduler.
    :param in_background: has a function done by a thread.
    """

    def __init__(
        self,
        *,
        cache: CallbackCache,
        store: CallbackStore,
        client: PodClient,
        in_background: Callable[[Callable[[], None]], None],
        interval: float,
        me: str,
        api_owns_running: bool,
    ) -> None:
        self._cache = cache
        self._store = store
        self._client = client
        self._in_background = in_background
        self._interval = interval
        self._me = me
        self._api_owns_running = api_owns_running
        #: Job ids of the other schedulers that are alive; None where that is not known at present.
        self.alive_others: frozenset[str] | None = None
        #: A comparison is under way.
        self.under_way = False
        #: When the last list that was taken in was begun (monotonic seconds).
        self.listed_at = 0.0
        #: Of that list: the rows that it says all about, as they were before it.
        self._rows_before_list: dict[str, RowView] = {}
        self._found: SimpleQueue[Comparison] = SimpleQueue()
        self._merge: Merge | None = None
        self._next_at = 0.0
        self._trouble: str | None = None

    def make_soon(self) -> None:
        """Begin a comparison as soon as none is under way."""
        self._next_at = 0.0

    def start(self) -> None:
        """Have a comparison made, if it is time."""
        if self.under_way or time.monotonic() < self._next_at:
            return
        self.under_way = True
        self._next_at = time.monotonic() + self._interval
        with_pod = self._cache.ids_with_live_pod()
        self._in_background(lambda: self._found.put(compare(self._store, self._client, with_pod)))

    def take(self, until: float) -> Comparison | None:
        """Take in a part of what was found, until then (monotonic seconds); return it when that is done."""
        if self._merge is None:
            try:
                found = self._found.get_nowait()
            except Empty:
                return None
            self._tell(found.error)
            if not found.rows_read:
                self.under_way = False
                return None
            self.alive_others = found.alive - {self._me} if found.alive is not None else None
            self._merge = Merge(self._cache, found, self._wants_a_look)
        if not self._merge.advance(until):
            return None
        found, self._merge, self.under_way = self._merge.found, None, False
        if found.pods_read:
            self._rows_before_list = {cid: row for cid, row in found.rows.items() if found.covers(row)}
            self.listed_at = found.listed_at
        self._mark_those_without_pod(found)
        return found

    def covers(self, row: RowView, since: float | None) -> bool:
        """Tell whether the last list has every pod that there can be of this row, as the row is now.

        :param since: the list must have been begun after this (monotonic seconds).
        """
        if since is not None and self.listed_at <= since:
            return False
        return self._rows_before_list.get(row.callback_id) == row

    def pod_to_read(self, row: RowView) -> PodView | None:
        """Return a pod that a list did not have and that is to be read before anything is decided for this row.

        None where nothing depends on that; what is certainly over is marked gone.
        """
        track = self._cache.tracked(row.callback_id)
        known = track is not None and track.known
        for pod in self._cache.missed(row.callback_id):
            if _must_be_read(pod, row, known=known):
                return pod
            if self._is_over(pod, row, known=known):
                self._cache.mark_gone(pod)
        return None

    def _is_over(self, pod: PodView, row: RowView, *, known: bool) -> bool:
        """Tell whether nothing is left to do about a pod that the list did not have."""
        if row.state.active:
            return False
        a_siblings = self.alive_others is not None and pod.owner in self.alive_others
        nobodys = row.state is not RowState.TERMINAL and not known
        return a_siblings or nobodys or (pod.deleting and not pod.finalizer)

    def expect_pod(self, callback_id: str) -> None:
        """The last list says nothing more about this callback: its pod is being created."""
        self._rows_before_list.pop(callback_id, None)

    def _tell(self, error: str | None) -> None:
        if error and error != self._trouble:
            log.warning("Callbacks could not be compared with their pods: %s", error)
        self._trouble = error

    def _mark_those_without_pod(self, found: Comparison) -> None:
        with_pod = self._cache.ids_with_live_pod()
        for callback_id in found.active:
            if callback_id not in with_pod:
                self._cache.mark_dirty(callback_id)
        for callback_id in self._cache.idle_tracks():
            if callback_id not in found.active:
                self._cache.mark_dirty(callback_id)

    def _wants_a_look(self, view: PodView, row_state: RowState | None) -> bool:
        if row_state is None or view.outcome.terminal or view.gone:
            return True
        if view.owner != self._me:
            return self.alive_others is None or view.owner not in self.alive_others
        running_untold = view.outcome is CallbackOutcome.RUNNING and row_state is RowState.QUEUED
        return running_untold and not self._api_owns_running


def _must_be_read(pod: PodView, row: RowView, *, known: bool) -> bool:
    """Tell whether it matters that a pod, which the list did not have, may be there all the same.

    Not where its result is known: that is what counts. Nor where its callback is over: what is to be deleted
    then is found gone, or not, by deleting it.

    :param known: the row was this executor's before, whatever it is now.
    """
    if row.state.active:
        has_result = pod.outcome in (CallbackOutcome.SUCCEEDED, CallbackOutcome.FAILED)
        return pod.deleting or not has_result
    return row.state is RowState.NOT_OURS and known
