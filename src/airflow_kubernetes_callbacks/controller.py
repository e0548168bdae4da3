"""Has the reconciler decide, a bounded amount per scheduler heartbeat.

The shape is that of a Kubernetes controller. A cache of pods is fed by the watch and by a periodic
full comparison; whatever changes makes its callback *dirty*; each :meth:`CallbackController.tick`
takes dirty callbacks, reads their rows with one query, asks
:func:`~airflow_kubernetes_callbacks.reconcile.decide` and has that carried out
(:mod:`~airflow_kubernetes_callbacks.acting`).

The scheduler's thread alone touches this memory and the executor's. Requests to the API server run
in worker threads, which report through a queue; nothing here waits for them.
"""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.acting import Actor
from airflow_kubernetes_callbacks.actions import Delete, EmitFailure, RecordAttempt
from airflow_kubernetes_callbacks.answers import AnswerTaker
from airflow_kubernetes_callbacks.cache import CallbackCache
from airflow_kubernetes_callbacks.comparisons import Comparisons
from airflow_kubernetes_callbacks.reconcile import decide
from airflow_kubernetes_callbacks.reports import EndReports, ExecutorPort
from airflow_kubernetes_callbacks.row_data import LaunchRecord
from airflow_kubernetes_callbacks.situation import Memory, RowState, Situation
from airflow_kubernetes_callbacks.unstarted import stalls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_kubernetes_callbacks.actions import Action
    from airflow_kubernetes_callbacks.callback_store import CallbackStore
    from airflow_kubernetes_callbacks.clocks import ApiClock
    from airflow_kubernetes_callbacks.metrics import CallbackMetrics
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient
    from airflow_kubernetes_callbacks.pod_requests import Requests
    from airflow_kubernetes_callbacks.settings import CallbackSettings
    from airflow_kubernetes_callbacks.situation import RowView

log = logging.getLogger(__name__)

#: Callbacks looked at between two looks at the clock, and seconds after which a tick ends.
BATCH = 50
TICK_BUDGET = 0.25
#: Seconds of a tick that taking in a comparison may use.
MERGE_BUDGET = 0.1
#: Seconds before what failed unexpectedly is tried again.
_PAUSE_AFTER_ERROR = 10.0


class CallbackController:
    """Brings the callbacks of one executor, and their pods, to where they should be."""

    def __init__(
        self,
        *,
        settings: CallbackSettings,
        me: str,
        executor: ExecutorPort,
        store: CallbackStore,
        client: PodClient,
        clock: ApiClock,
        requests: Requests,
        metrics: CallbackMetrics,
        api_owns_running: bool,
        keep_finished: bool,
        keep_failed: bool,
    ) -> None:
        self._settings = settings
        self._me = me
        self._store = store
        self._clock = clock
        self._requests = requests
        self._metrics = metrics
        self._api_owns_running = api_owns_running
        self._keep_finished = keep_finished
        self._keep_failed = keep_failed
        namespaces = client.namespaces or ()
        self._only_namespace = namespaces[0] if len(namespaces) == 1 else None
        self.cache = CallbackCache()
        self._reports = EndReports(self.cache, executor, metrics)
        self._records: dict[str, LaunchRecord] = {}
        self._answers = AnswerTaker(
            cache=self.cache,
            settings=settings,
            metrics=metrics,
            records=None if api_owns_running else self._records,
            resync=self.resync,
        )
        self.comparisons = Comparisons(
            cache=self.cache,
            store=store,
            client=client,
            in_background=requests.in_background,
            interval=settings.reconcile_interval,
            me=me,
            api_owns_running=api_owns_running,
        )
        self._actor = Actor(
            cache=self.cache,
            executor=executor,
            requests=requests,
            reports=self._reports,
            answers=self._answers,
            expect_pod=self.comparisons.expect_pod,
            metrics=metrics,
        )

    # What happens, told by the executor ------------------------------------------------------------

    def hold(self, callback_id: str) -> None:
        """Remember that the callback waits in the executor's queue."""
        track = self.cache.track(callback_id)
        track.known, track.held, track.held_since = True, True, time.monotonic()

    def submit(self, callback_id: str, workload: Any) -> None:
        """Take over a callback that the executor was told to run: it is launched at the next tick.

        One that waited so long that another scheduler may have taken it for abandoned is launched
        only after a full comparison has shown that it has no pod.
        """
        track = self.cache.track(callback_id)
        waited = time.monotonic() - track.held_since if track.held else 0.0
        track.known, track.held, track.workload = True, False, workload
        track.repeat_attempt = 1
        if waited > self._settings.reconcile_interval and self.comparisons.alive_others:
            track.repeat_attempt = None
            self.resync()
        self.cache.mark_dirty(callback_id)

    def look_at(self, callback_id: str) -> None:
        """Read the callback's row, and act on it, at the next tick."""
        self.cache.mark_dirty(callback_id)

    def observe(self, view: PodView) -> None:
        """Take in a watch event."""
        self.cache.observe(view, time.monotonic())

    def moved(self, view: PodView) -> None:
        """A pod left the watch's selection: see what has become of it, where it matters."""
        track = self.cache.tracked(view.callback_id)
        known = any(pod.uid == view.uid and not pod.gone for pod in self.cache.pods(view.callback_id))
        if known or (track is not None and track.busy):  # the answer to its creation may be on its way
            self.cache.observe(view, time.monotonic())
            self.cache.track(view.callback_id).busy += 1
            self._requests.read(view)

    def resync(self) -> None:
        """Compare everything at the next tick: events may have been missed."""
        self.comparisons.make_soon()

    def tick(self) -> None:
        """Do a bounded part of what there is to do. Never waits for the API server."""
        end = time.monotonic() + TICK_BUDGET
        for answer in self._requests.answers():
            with self._contained(answer.callback_id):
                self._answers.take(answer)
        if (found := self.comparisons.take(time.monotonic() + MERGE_BUDGET)) is not None:
            self._actor.seen_by_now(view.callback_id for view in found.pods)
            self._metrics.gauge(self.cache.all_pods())
        self._reports.look_at_taken()
        self.cache.wake(time.time())
        self._write_records()
        while time.monotonic() < end:
            ids = self.cache.take_dirty(BATCH)
            if not ids:
                break
            if not self._look(ids):
                break
        self.comparisons.start()

    # Looking ---------------------------------------------------------------------------------------

    def _look(self, callback_ids: list[str]) -> bool:
        """Look at these callbacks; False where the database cannot be asked now."""
        try:
            live = {cid for cid in callback_ids if any(not pod.gone for pod in self.cache.pods(cid))}
            rows = self._store.rows(callback_ids, with_live_pod=live)
        except Exception as error:  # noqa: BLE001
            return self._look_later(callback_ids, error)
        decisions: list[tuple[str, tuple[Action, ...]]] = []
        for callback_id in callback_ids:
            track = self.cache.tracked(callback_id)
            if (track is not None and track.busy) or self._reports.waiting(callback_id):
                continue  # looked at again when the answer is there, or the report of the end is taken
            with self._contained(callback_id):
                if (missed := self.comparisons.pod_to_read(rows[callback_id])) is not None:
                    self._actor.ask(callback_id, self._requests.look_for, missed)
                else:
                    decisions.append((callback_id, self._decide(callback_id, rows[callback_id])))
        try:
            decisions = self._decided_on_whole_rows(decisions, live, rows)
        except Exception as error:  # noqa: BLE001
            return self._look_later(callback_ids, error)
        for callback_id, actions in decisions:
            for action in actions:
                if isinstance(action, RecordAttempt):
                    self._records[callback_id] = LaunchRecord(callback_id, action.attempt, None)
        if not self._write_records():
            return self._look_later(callback_ids)
        for callback_id, actions in decisions:
            if callback_id in self._records:  # its row is held by another transaction
                self.cache.look_at(callback_id, time.time() + 1.0)
                continue
            with self._contained(callback_id):
                self._actor.act(callback_id, rows[callback_id], actions)
        return True

    def _look_later(self, callback_ids: list[str], unread: Exception | None = None) -> bool:
        if unread is not None:
            log.warning("Rows of callbacks cannot be read now, next try at the next heartbeat: %s", unread)
        for callback_id in callback_ids:
            self.cache.mark_dirty(callback_id)
        return False

    def _decided_on_whole_rows(
        self, decisions: list[tuple[str, tuple[Action, ...]]], live: set[str], rows: dict[str, RowView]
    ) -> list[tuple[str, tuple[Action, ...]]]:
        """Decide again what gives up a pod that has not begun: another scheduler may have launched a later one.

        The record of launches tells, and is not read where a pod is known to be there.
        """
        giving_up = [
            callback_id
            for callback_id, actions in decisions
            if callback_id in live and rows[callback_id].state.active
            if any(isinstance(action, EmitFailure | RecordAttempt | Delete) for action in actions)
            if not any(pod.started_at is not None and not pod.gone for pod in self.cache.pods(callback_id))
        ]
        if not giving_up:
            return decisions
        whole = self._store.rows(giving_up)
        rows.update(whole)
        again = []
        for callback_id in giving_up:
            with self._contained(callback_id):
                again.append((callback_id, self._decide(callback_id, whole[callback_id])))
        return [decision for decision in decisions if decision[0] not in whole] + again

    @contextmanager
    def _contained(self, callback_id: str) -> Iterator[None]:
        """What is wrong with one callback must not reach the others of its batch (design, invariant 6)."""
        try:
            yield
        except Exception:
            log.exception("Error in the work on callback %s; it is tried again later.", callback_id)
            track = self.cache.track(callback_id)
            if track.look_after_error <= time.time():  # one such look at a time
                track.look_after_error = time.time() + _PAUSE_AFTER_ERROR
                self.cache.look_at(callback_id, track.look_after_error)

    def _decide(self, callback_id: str, row: RowView) -> tuple[Action, ...]:
        now = time.time()
        pods = self.cache.pods(callback_id)
        track = self.cache.tracked(callback_id)
        if row.state.active:
            track = self.cache.track(callback_id)
            track.known, track.over = True, False
            orphaned = row.state is RowState.QUEUED and not track.held and all(pod.gone for pod in pods)
            track.orphaned_since = (track.orphaned_since or now) if orphaned else None
            stalled = [pod.uid for pod in pods if stalls(row, pod)]
            track.stalled_since = {uid: track.stalled_since.get(uid, now) for uid in stalled}
        elif track is not None:
            track.over = True
            # A person who has the callback run again may have granted it.
            track.denied.clear()
            track.refused_since.clear()
            track.looked_for.clear()
        refused_at = track.refused_at if track is not None and track.refusal is not None else None
        situation = Situation(
            now=now,
            row=row,
            pods=pods,
            memory=track.memory() if track is not None else Memory(),
            me=self._me,
            alive_others=self.comparisons.alive_others,
            pods_complete=self.comparisons.covers(row, refused_at),
            api_owns_running=self._api_owns_running,
            keep_finished=self._keep_finished,
            keep_failed=self._keep_failed,
            namespace=self._only_namespace,
            clock_offset=self._clock.offset,
        )
        return decide(situation, self._settings)

    def _write_records(self) -> bool:
        if not self._records:
            return True
        try:
            held = self._store.record_launches(list(self._records.values()))
        except Exception as error:  # noqa: BLE001
            log.warning("Launches cannot be recorded now, next try at the next heartbeat: %s", error)
            return False
        for callback_id in self._records.keys() - held:
            del self._records[callback_id]
        return True

    def stop(self) -> None:
        """Stop making requests. What is not created is QUEUED in the database and found again."""
        self._requests.stop()
