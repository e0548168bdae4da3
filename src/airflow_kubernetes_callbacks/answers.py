"""What the answers to requests mean for a callback: remembered in its track, and acted on at the next look."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, namespace_without_creation
from airflow_kubernetes_callbacks.pauses import LONGEST_PAUSE, growing_pause
from airflow_kubernetes_callbacks.reconcile import retry_delay
from airflow_kubernetes_callbacks.row_data import LaunchRecord
from airflow_kubernetes_callbacks.situation import PodRequest, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_kubernetes_callbacks.api_errors import ApiFailure
    from airflow_kubernetes_callbacks.cache import CallbackCache, Track
    from airflow_kubernetes_callbacks.metrics import CallbackMetrics
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.request_answer import Answer
    from airflow_kubernetes_callbacks.settings import CallbackSettings

log = logging.getLogger(__name__)

#: Seconds for which a request has to be refused for a lack of permission before that counts: an API server
#: that has just started has not read every role (kubernetes/kubernetes#121635). A deletion is soon asked for a
#: second time: the next attempt is in the row by then, and this pod is still there.
_SURE_AFTER = {PodRequest.ADOPT: 5.0, PodRequest.DELETE: 1.0, PodRequest.REMOVE_FINALIZER: 5.0}


class AnswerTaker:
    """Takes answers into the cache.

    :param records: launches to be recorded in their rows, by callback; added to here. None where the pod
        itself records that it began (Airflow 3.4).
    :param resync: asks for a full comparison.
    """

    def __init__(
        self,
        *,
        cache: CallbackCache,
        settings: CallbackSettings,
        metrics: CallbackMetrics,
        records: dict[str, LaunchRecord] | None,
        resync: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._settings = settings
        self._metrics = metrics
        self._records = records
        self._resync = resync
        #: Namespaces in which pods could be created until now.
        self._open: set[str] = set()

    def take(self, answer: Answer) -> None:
        """Take in one answer; its callback is looked at next, or when a request may be made again."""
        track = self._cache.track(answer.callback_id)
        track.busy = max(0, track.busy - 1)
        if answer.view is not None:
            self._cache.observe(answer.view, time.monotonic())
        if answer.looked_for is not None:
            track.looked_for.add(answer.looked_for)
        if answer.supplied:
            track.repeat_attempt, track.supply_refusal = None, ""
            if answer.view is not None:
                self._take_created(answer.callback_id, track, answer.view, answer.view.attempt)
        elif answer.unsupplied and answer.failure is not None:
            track.supply_refusal = answer.failure.message
        if answer.launched_attempt is not None:
            self._take_launch(answer, track, answer.launched_attempt)
        elif answer.condemned is not None and answer.failure is not None:
            track.repeat_attempt = None
            self.condemn(answer.callback_id, answer.condemned, answer.failure.message)
        elif answer.failure is not None:
            if answer.asked is not None and self._is_denied(answer.asked, answer.failure, track):
                track.denied[answer.asked] = answer.failure.message
            self._pause_requests(answer.callback_id, track, answer.failure)
            return
        else:
            track.failed_requests, track.failure_told = 0, ""
            if answer.asked is not None:
                track.refused_since.pop(answer.asked, None)
        self._cache.mark_dirty(answer.callback_id)

    def _is_denied(self, asked: tuple[PodRequest, str], failure: ApiFailure, track: Track) -> bool:
        """Tell whether the request is refused for good: a permission has to be missed for a while."""
        if failure.retryable or track.over:
            return False
        if failure.answer is not ApiAnswer.FORBIDDEN:
            return True
        now = time.monotonic()
        return now - track.refused_since.setdefault(asked, now) >= _SURE_AFTER[asked[0]]

    def condemn(self, callback_id: str, pod: PodView, why: str) -> None:
        """Remember why this pod, which has not begun, is deleted; the next launch waits a while."""
        track = self._cache.track(callback_id)
        track.condemned[pod.uid] = why
        track.retry_at = time.time() + retry_delay(pod.attempt, self._settings)

    def _pause_requests(self, callback_id: str, track: Track, failure: ApiFailure) -> None:
        """Have the next request about the callback's pods wait: a little at first, then longer."""
        track.failed_requests += 1
        pause = growing_pause(track.failed_requests, 1.0, LONGEST_PAUSE)
        track.ask_again_at = time.time() + max(pause, min(failure.retry_after or 0.0, LONGEST_PAUSE))
        if failure.message != track.failure_told:
            track.failure_told = failure.message
            log.warning("Callback %s: %s", callback_id, failure.message)
        self._cache.look_at(callback_id, track.ask_again_at)

    def _take_launch(self, answer: Answer, track: Track, attempt: int) -> None:
        track.held = False
        if answer.skipped:
            return
        if answer.view is not None and answer.failure is None:
            self._metrics.launched(answer.view, answer.deadline, again=attempt > 1)
            self._take_created(answer.callback_id, track, answer.view, attempt)
        elif answer.failure is not None and answer.failure.answer is ApiAnswer.ALREADY_EXISTS:
            self._take_name_taken(answer.callback_id, track, attempt, answer.failure)
        elif answer.failure is not None:
            track.may_be_created = track.may_be_created or answer.failure.may_have_arrived
            self._take_failed_launch(answer.callback_id, track, attempt, answer.failure)

    def _take_created(self, callback_id: str, track: Track, view: PodView, attempt: int) -> None:
        """The pod has all that it needs: have its row say that it is there."""
        track.workload, track.create_failures, track.may_be_created = None, 0, False
        self._open.add(view.namespace)
        if self._records is not None:
            self._records[callback_id] = LaunchRecord(callback_id, attempt, f"{view.namespace}/{view.name}")

    def _take_name_taken(self, callback_id: str, track: Track, attempt: int, failure: ApiFailure) -> None:
        """Another's pod has the name: the launch is made with the next one, at once."""
        track.create_failures += 1
        # An earlier try may have made it, and admission taken off what it is known by: it may have begun.
        may_be_ours = track.may_be_created and failure.may_have_arrived
        again = track.create_failures <= self._settings.create_retries and not may_be_ours
        self._metrics.launch_refused(for_now=again)
        if not again:
            self._refuse(track, attempt, failure.message)
            return
        track.repeat_attempt = attempt + 1
        log.warning("Callback %s is launched under another name. %s", callback_id, failure.message)

    def _take_failed_launch(self, callback_id: str, track: Track, attempt: int, failure: ApiFailure) -> None:
        closed = namespace_without_creation(failure)
        may_pass = failure.retryable or closed in self._open
        track.create_failures += may_pass
        again = may_pass and track.create_failures <= self._settings.create_retries
        self._metrics.launch_refused(for_now=again)
        if not again:
            # It is known now that the permission is gone: others need not wait to learn it.
            self._open.discard(closed or "")
            tries = f"the pod could not be created in {track.create_failures} tries"
            told = f"Could not start: {tries}: {failure.message}" if failure.retryable else failure.message
            self._refuse(track, attempt, told)
            return
        delay = retry_delay(track.create_failures, self._settings)
        track.repeat_attempt = attempt
        asked_to_wait = min(failure.retry_after or 0.0, self._settings.launch_retry_max_delay)
        track.retry_at = time.time() + max(delay, asked_to_wait)
        log.warning(
            "Pod of callback %s could not be created (try %d of %d, next in %.0f s): %s",
            callback_id,
            track.create_failures,
            self._settings.create_retries + 1,
            track.retry_at - time.time(),
            failure.message,
        )

    def _refuse(self, track: Track, attempt: int, reason: str) -> None:
        """Remember that the launch failed for good; what follows is decided with a look at the row."""
        track.refusal = Refusal(attempt, reason, pod_may_exist=track.may_be_created)
        track.refused_at = time.monotonic()
        if track.may_be_created:
            self._resync()
