"""Requests to the API server, made in worker threads and answered through a queue."""

from __future__ import annotations

import dataclasses
import logging
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_kubernetes_callbacks.api_errors import (
    ApiAnswer,
    ApiFailure,
    classify,
    denied_by_admission,
    roles_not_read,
)
from airflow_kubernetes_callbacks.callback_log import log_file, save_log
from airflow_kubernetes_callbacks.errors import SecretRefusedError, UndoneError
from airflow_kubernetes_callbacks.identity import OWNER_LABEL
from airflow_kubernetes_callbacks.launch_failure import launch_failure
from airflow_kubernetes_callbacks.launches import Launches
from airflow_kubernetes_callbacks.outcome import CallbackOutcome
from airflow_kubernetes_callbacks.reason import LOG_TAIL_BYTES, reason_with_events, reason_with_log
from airflow_kubernetes_callbacks.redact import mask_log
from airflow_kubernetes_callbacks.request_answer import Answer
from airflow_kubernetes_callbacks.situation import PodRequest
from airflow_kubernetes_callbacks.unlisted import find_pod
from airflow_kubernetes_callbacks.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_kubernetes_callbacks.actions import LookFor
    from airflow_kubernetes_callbacks.callback_store import CallbackStore
    from airflow_kubernetes_callbacks.launches import Launcher
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient
    from airflow_kubernetes_callbacks.pod_launcher import LaunchOrder

T = TypeVar("T")

log = logging.getLogger(__name__)

_ANSWERS_AT_ONCE = 2000
#: Seconds for which reading a pod may be refused over roles that the API server has not read yet.
_ROLES_READ_WITHIN = 60.0


def _about(namespace: str, name: str, failure: ApiFailure) -> ApiFailure:
    """Return the failure with the pod that the request was about in its text."""
    message = f"request about pod {namespace}/{name} failed: {failure.message}"
    return dataclasses.replace(failure, message=message)


def _failed(pod: PodView, error: BaseException, asked: PodRequest | None) -> Answer:
    """Return the answer to a request about a pod that failed."""
    if isinstance(error, SecretRefusedError):
        return Answer(pod.callback_id, failure=launch_failure(error), condemned=pod)
    undone = isinstance(error, UndoneError)
    failure = ApiFailure(ApiAnswer.PERMANENT, None, str(error)) if undone else classify(error)
    if asked is not None and (denied_by_admission(failure) or roles_not_read(failure)):
        # Only a creation is tried a bounded number of times; these have another way, and take it before long.
        failure = dataclasses.replace(failure, answer=ApiAnswer.FORBIDDEN)
    return Answer(
        pod.callback_id,
        failure=_about(pod.namespace, pod.name, failure),
        asked=_named(asked, pod),
    )


def _named(asked: PodRequest | None, pod: PodView) -> tuple[PodRequest, str] | None:
    return (asked, pod.uid) if asked is not None else None


class Requests:
    """The requests that the controller asks for.

    :param batch_size: with a value above 1, that many launches are handed to the launcher together
        (``async_pod_creation``), by one thread; with 1 each launch is a request of its own.
    :param log_folder: where logs are kept when their pod goes; None to keep none.
    :param log_limit: how much of a log's end is kept, in bytes.
    """

    def __init__(
        self,
        *,
        client: PodClient,
        store: CallbackStore,
        launcher: Launcher,
        token_generator: Callable[[], Any],
        me: str,
        concurrency: int,
        batch_size: int = 1,
        log_folder: str | None = None,
        log_limit: int = 1 << 20,
    ) -> None:
        self._client = client
        self._store = store
        self._launcher = launcher
        self._token_generator = token_generator
        self._me = me
        self._log_folder = log_folder
        self._log_limit = log_limit
        self._pool = WorkerPool(concurrency, "callback-pods")
        self._background = WorkerPool(1, "callback-comparison")
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        #: Since when (monotonic seconds) reading a pod is refused over missing roles, by uid.
        self._unread_since: dict[str, float] = {}
        # Launches do not queue behind requests about pods that are there, which may fail for a long time.
        self._launches = Launches(
            store=store,
            launcher=launcher,
            make_workload=self._make_workload,
            answer=self._answers.put,
            concurrency=concurrency,
            batch_size=batch_size,
        )

    def answers(self) -> Iterator[Answer]:
        """Yield the answers that have come, up to a bounded number."""
        for _ in range(_ANSWERS_AT_ONCE):
            try:
                yield self._answers.get_nowait()
            except Empty:
                return

    def in_background(self, work: Callable[[], None]) -> None:
        """Have *work* done beside the requests about single callbacks."""
        self._background.submit(work)

    def launch(self, order: LaunchOrder) -> None:
        self._launches.add(order)

    def read(self, pod: PodView) -> None:
        self._submit(pod, lambda: self._read(pod))

    def look_for(self, pod: PodView) -> None:
        """Read a pod that a list did not have."""
        self._submit(pod, lambda: self._look_for(pod))

    def find(self, callback_id: str, look: LookFor) -> None:
        """Read the pod of which nothing but its name is known here."""

        def work() -> None:
            try:
                view = find_pod(self._client, callback_id, look)
                answer = Answer(callback_id, view=view, looked_for=(look.namespace, look.name))
            except BaseException as error:  # noqa: BLE001 - without an answer the callback would wait for ever
                failure = classify(error)
                answer = Answer(callback_id, failure=_about(look.namespace, look.name, failure))
                if self._stays_without_roles(f"{look.namespace}/{look.name}", failure):
                    answer = Answer(callback_id, looked_for=(look.namespace, look.name))
            self._answers.put(answer)

        self._pool.submit(work)

    def adopt(self, pod: PodView) -> None:
        self._submit(pod, lambda: self._adopt(pod), asked=PodRequest.ADOPT)

    def ensure_payload(self, pod: PodView) -> None:
        """Create the Secret of a pod whose creation was not answered, if it is missing."""
        self._submit(pod, lambda: self._ensure_payload(pod), supplies=True)

    def explain(self, pod: PodView) -> None:
        """Look for the reason of a failure that the pod's status does not tell."""
        self._submit(pod, lambda: self._explain(pod))

    def delete(self, pod: PodView, only_if_unchanged: bool) -> None:
        self._submit(pod, lambda: self._delete(pod, only_if_unchanged), asked=PodRequest.DELETE)

    def mark_done(self, pod: PodView) -> None:
        self._submit(pod, lambda: self._mark_done(pod))

    def remove_finalizer(self, pod: PodView) -> None:
        self._submit(pod, lambda: self._remove_finalizer(pod), asked=PodRequest.REMOVE_FINALIZER)

    def stop(self) -> None:
        """Begin nothing more."""
        for pool in (self._pool, self._launches, self._background):
            pool.stop()

    # In worker threads -----------------------------------------------------------------------------

    def _submit(
        self,
        pod: PodView,
        request: Callable[[], PodView | None],
        *,
        supplies: bool = False,
        asked: PodRequest | None = None,
    ) -> None:
        def work() -> None:
            try:
                answer = Answer(pod.callback_id, view=request(), supplied=supplies, asked=_named(asked, pod))
            except BaseException as error:  # noqa: BLE001 - without an answer the callback would wait for ever
                answer = dataclasses.replace(_failed(pod, error, asked), unsupplied=supplies)
                if self._refused_and_gone(pod, answer):
                    answer = Answer(pod.callback_id, view=dataclasses.replace(pod, gone=True))
            self._answers.put(answer)

        self._pool.submit(work)

    def _refused_and_gone(self, pod: PodView, answer: Answer) -> bool:
        """Tell whether a refused request was about a pod that is gone: a refusal (403) comes before a 404."""
        if answer.failure is None or answer.failure.retryable or answer.condemned is not None:
            return False
        found = self._try(lambda: self._read(pod))
        return found is not None and found.gone

    def _read(self, pod: PodView) -> PodView:
        # Its uid tells that it is this pod, whatever has become of its labels and annotations.
        found = self._client.read_pod(pod.namespace, pod.name, id_of=lambda _: pod.callback_id)
        if found is None or found.uid != pod.uid:
            return dataclasses.replace(pod, gone=True)
        return found

    def _read_after(self, conflict: Exception, pod: PodView) -> PodView:
        """Return the pod as it is now; that it may not be read is no refusal of what was asked first."""
        try:
            return self._read(pod)
        except Exception as error:
            if classify(error).retryable:
                raise
            raise conflict from error

    def _look_for(self, pod: PodView) -> PodView:
        try:
            found = self._read(pod)
        except Exception as error:
            failure = classify(error)
            if failure.answer is not ApiAnswer.FORBIDDEN and not self._stays_without_roles(pod.uid, failure):
                raise
            log.warning(
                "Pod %s/%s is not in the list of pods, and is taken for gone: it may not be read (%s). Grant the "
                "scheduler's service account the verb 'get' on pods.",
                pod.namespace,
                pod.name,
                failure.message,
            )
            found = dataclasses.replace(pod, gone=True)
        self._unread_since.pop(pod.uid, None)
        return found

    def _stays_without_roles(self, pod: str, failure: ApiFailure) -> bool:
        """Tell whether roles have been missing for so long that they are deleted and not just unread."""
        now = time.monotonic()
        since = self._unread_since.setdefault(pod, now) if roles_not_read(failure) else now
        return now - since >= _ROLES_READ_WITHIN

    def _adopt(self, pod: PodView) -> PodView | None:
        try:
            adopted = self._client.adopt_pod(pod, self._me)
        except Exception as error:
            if classify(error).answer not in (ApiAnswer.CONFLICT, ApiAnswer.NOT_FOUND):
                raise
            return self._read_after(error, pod)
        if adopted is not None and adopted.owner != self._me:
            raise UndoneError(
                f"the API server accepted that it is adopted and kept {adopted.owner!r} in its label "
                f"{OWNER_LABEL}: admission changes it back"
            )
        log.info("Adopted pod %s/%s of callback %s.", pod.namespace, pod.name, pod.callback_id)
        return adopted

    def _ensure_payload(self, pod: PodView) -> PodView:
        self._launcher.ensure_payload(pod, lambda: self._make_workload(pod.callback_id))
        return pod

    def _explain(self, pod: PodView) -> PodView:
        """Return the view with a better reason, or with the same one; never fails.

        Of a pod that waits: as it is now, if it waits no more. What is given up must not be an old view.
        """
        if not pod.gone and pod.outcome is CallbackOutcome.PENDING:
            now = self._try(lambda: self._read(pod))
            if now is not None and (now.gone or now.outcome is not CallbackOutcome.PENDING):
                return now
        reason = None
        if not pod.gone and pod.outcome is CallbackOutcome.FAILED:
            reason = self._try(
                lambda: reason_with_log(pod.reason, self._client.log_tail(pod, limit_bytes=LOG_TAIL_BYTES))
            )
        reason = reason or pod.reason or ""
        told = self._try(lambda: reason_with_events(reason, self._client.warning_events(pod)))
        return dataclasses.replace(pod, reason=told or reason, explained=True)

    def _try(self, read: Callable[[], T | None]) -> T | None:
        try:
            return read()
        except BaseException as error:  # noqa: BLE001 - what is only good to know must not cost more
            log.debug("Not to be had: %s", error)
            return None

    def _save_log(self, pod: PodView) -> None:
        if not self._log_folder or pod.started_at is None or not pod.outcome.terminal:
            return
        path = None
        try:
            path = log_file(self._log_folder, pod.dag_id, pod.run_id, pod.callback_id)
            if path is not None and not path.exists():
                save_log(path, mask_log(self._client.log_tail(pod, limit_bytes=self._log_limit)))
        except Exception as error:  # noqa: BLE001 - a log that cannot be kept must not keep the pod
            where = path or self._log_folder
            log.warning("The log of callback %s could not be kept at %s: %s", pod.callback_id, where, error)

    def _delete(self, pod: PodView, only_if_unchanged: bool) -> PodView:
        self._save_log(pod)
        try:
            there = self._client.delete_pod(pod, only_if_unchanged=only_if_unchanged)
        except Exception as error:
            if classify(error).answer is not ApiAnswer.CONFLICT:
                raise
            return self._read_after(error, pod)
        return dataclasses.replace(pod, deleting=True) if there else dataclasses.replace(pod, gone=True)

    def _mark_done(self, pod: PodView) -> PodView:
        self._save_log(pod)  # nobody looks at the pod again, and whoever deletes it does not ask
        try:
            self._client.mark_done(pod)
        except Exception as error:
            if classify(error).answer is not ApiAnswer.NOT_FOUND:
                raise
        return dataclasses.replace(pod, gone=True)  # no list returns it any more

    def _remove_finalizer(self, pod: PodView) -> PodView:
        self._client.remove_finalizer(pod)
        # It may be gone with that, and nobody should wait for it then.
        return self._try(lambda: self._read(pod)) or dataclasses.replace(pod, finalizer=False)

    def _make_workload(self, callback_id: str) -> Any:
        return self._store.make_workload(callback_id, self._token_generator())
