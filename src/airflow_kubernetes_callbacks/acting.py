"""Carries out what was decided for a callback: requests that are made, reports, slots, looks to come.

The scheduler's thread alone uses this; nothing here waits. What a request brings is taken in by :mod:`.answers`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow_kubernetes_callbacks.actions import (
    Adopt,
    Delete,
    EmitFailure,
    EmitRunning,
    EmitSuccess,
    EnsurePayload,
    Explain,
    Launch,
    LookAgain,
    LookFor,
    MarkDone,
    Occupy,
    Release,
    RemoveFinalizer,
)
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.pod_launcher import LaunchOrder
from airflow_kubernetes_callbacks.situation import RowState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_kubernetes_callbacks.actions import Action
    from airflow_kubernetes_callbacks.answers import AnswerTaker
    from airflow_kubernetes_callbacks.cache import CallbackCache
    from airflow_kubernetes_callbacks.metrics import CallbackMetrics
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_requests import Requests
    from airflow_kubernetes_callbacks.reports import EndReports, ExecutorPort
    from airflow_kubernetes_callbacks.situation import RowView

log = logging.getLogger(__name__)


class Actor:
    """Carries out the reconciler's decisions for the callbacks of one executor.

    :param expect_pod: told of a callback whose pod is about to be created.
    """

    def __init__(
        self,
        *,
        cache: CallbackCache,
        executor: ExecutorPort,
        requests: Requests,
        reports: EndReports,
        answers: AnswerTaker,
        expect_pod: Callable[[str], None],
        metrics: CallbackMetrics,
    ) -> None:
        self._cache = cache
        self._executor = executor
        self._requests = requests
        self._reports = reports
        self._answers = answers
        self._expect_pod = expect_pod
        self._metrics = metrics
        #: Callbacks that this database does not have, told of once.
        self._foreign: set[str] = set()

    def seen_by_now(self, callback_ids: Iterable[str]) -> None:
        """Forget what was told of callbacks that have no pod any more; these have one."""
        self._foreign.intersection_update(callback_ids)

    def act(self, callback_id: str, row: RowView, actions: tuple[Action, ...]) -> None:
        """Carry out what was decided for one callback, whose row was read as *row*."""
        if not row.state.active:
            self._reports.recorded(callback_id, row)
        for action in actions:
            match action:
                case Launch(attempt):
                    self._launch(callback_id, attempt)
                case Adopt(pod):
                    if pod.outcome is CallbackOutcome.PENDING:  # its creator may have died before the Secret
                        self._cache.track(callback_id).repeat_attempt = pod.attempt
                    if self.ask(callback_id, self._requests.adopt, pod):
                        self._metrics.adopted()
                case EnsurePayload(pod):
                    self.ask(callback_id, self._requests.ensure_payload, pod)
                case Delete(pod, why, unstarted):
                    self._delete(callback_id, pod, why, unstarted)
                case LookFor():
                    self.ask(callback_id, self._requests.find, callback_id, action)
                case Explain(pod):
                    self.ask(callback_id, self._requests.explain, pod)
                case MarkDone(pod):
                    self.ask(callback_id, self._requests.mark_done, pod)
                case RemoveFinalizer(pod):
                    self.ask(callback_id, self._requests.remove_finalizer, pod)
                case EmitRunning():
                    self._reports.running(callback_id)
                case EmitSuccess():
                    self._reports.succeeded(callback_id, row)
                case EmitFailure(reason, kind):
                    self._reports.failed(callback_id, reason, kind, row)
                case Occupy():
                    self._executor.occupy(callback_id)
                case Release():
                    self._release(callback_id)
                case LookAgain(at):
                    self._cache.look_at(callback_id, at)
        if not row.state.active and all(pod.gone for pod in self._cache.pods(callback_id)):
            track = self._cache.tracked(callback_id)
            if track is None or not track.busy:
                self._cache.forget(callback_id)
        elif row.state is RowState.ABSENT and not actions:
            self._leave_alone(callback_id)

    def ask(self, callback_id: str, request: Any, *args: Any) -> bool:
        """Make the request, unless the last one failed just now; tell whether it is made."""
        track = self._cache.track(callback_id)
        if time.time() < track.ask_again_at:  # the last one failed
            self._cache.look_at(callback_id, track.ask_again_at)
            return False
        track.busy += 1
        request(*args)
        return True

    def _delete(self, callback_id: str, pod: PodView, why: str, unstarted: bool) -> None:
        again = self._cache.track(callback_id).failed_requests > 0
        if not self.ask(callback_id, self._requests.delete, pod, unstarted):
            return
        log.log(
            logging.DEBUG if again else logging.INFO,
            "Deleting pod %s/%s of callback %s: %s",
            pod.namespace,
            pod.name,
            callback_id,
            why,
        )
        if unstarted:
            self._answers.condemn(callback_id, pod, why)

    def _launch(self, callback_id: str, attempt: int) -> None:
        track = self._cache.track(callback_id)
        if not self._executor.try_occupy(callback_id):
            self._cache.look_at(callback_id, time.time() + 1.0)  # every slot is taken
            return
        track.held, track.repeat_attempt, track.refusal = True, None, None
        track.supply_refusal = ""
        track.busy += 1
        self._expect_pod(callback_id)
        self._requests.launch(LaunchOrder(callback_id, attempt, track.workload))

    def _release(self, callback_id: str) -> None:
        self._executor.release(callback_id)
        if (track := self._cache.tracked(callback_id)) is not None:
            track.held, track.workload, track.repeat_attempt, track.refusal = False, None, None, None
            track.create_failures, track.may_be_created = 0, False

    def _leave_alone(self, callback_id: str) -> None:
        if callback_id not in self._foreign:
            # The first one tells; where two Airflows share a namespace there is no end of them.
            level = logging.DEBUG if self._foreign else logging.WARNING
            self._foreign.add(callback_id)
            log.log(
                level,
                "Pod of callback %s is left alone: this database has no such callback. If no other Airflow "
                "uses the namespace, 'airflow kubernetes-callbacks gc' removes it.",
                callback_id,
            )
        self._cache.forget(callback_id)
