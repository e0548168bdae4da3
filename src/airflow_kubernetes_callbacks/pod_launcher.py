"""Creation of callback pods on the stock creation path.

A callback travels as a stock ``KubernetesJob`` whose command is its ``ExecuteCallback`` workload.
``run_next`` and ``run_next_batch`` of the parent work for it as they are: only the building of the
pod and the sending of it branch.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_types import (
    KubernetesJob,
    KubernetesResults,
)
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import AirflowKubernetesScheduler

from airflow_kubernetes_callbacks.api_errors import ApiAnswer, arrived, classify
from airflow_kubernetes_callbacks.errors import LaunchError, NameTakenError, SecretRefusedError
from airflow_kubernetes_callbacks.identity import (
    CALLBACK_ID_ANNOTATION,
    callback_id_of,
    holder_of,
    pod_name,
)
from airflow_kubernetes_callbacks.payload import SecretPayload, construct_payload_secret
from airflow_kubernetes_callbacks.version_compat import CallbackKey, ExecuteCallback, substituted
from airflow_kubernetes_callbacks.watcher import CallbackJobWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kubernetes.client import models as k8s

    from airflow_kubernetes_callbacks.clocks import ApiClock
    from airflow_kubernetes_callbacks.launch_plan import LaunchPlan, LaunchPlanner
    from airflow_kubernetes_callbacks.outcome import PodView
    from airflow_kubernetes_callbacks.pod_client import PodClient

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """Create the pod of one attempt. Without a workload, it is made anew from the row."""

    callback_id: str
    attempt: int
    workload: Any


class Launched(NamedTuple):
    """What came of a launch: its pod, an error, or both where the pod waits for a Secret that it did not get."""

    view: PodView | None = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which attempt a job is; travels in the job's ``kube_executor_config``."""

    number: int


def callback_job(workload: Any, attempt: int) -> KubernetesJob:
    """Return the stock job for one launch of a callback."""
    return KubernetesJob(workload.key, [workload], Attempt(attempt), None)


def is_callback_job(job: KubernetesJob) -> bool:
    return bool(job.command) and isinstance(job.command[0], ExecuteCallback)


def _place(pod: k8s.V1Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name


def create_secret(client: PodClient, view: PodView, parts: dict[str, Any]) -> None:
    """Create the Secret that a pod waits for; where it is refused for good, the pod goes too.

    A refusal for now, or an answer that was lost, leaves the pod: the Secret may be there, the callback may
    begin at any moment, and the request can be made again.

    :raises SecretRefusedError: the Secret is refused for good.
    """
    secret = construct_payload_secret(**parts, namespace=view.namespace, pod_name=view.name, pod_uid=view.uid)
    try:
        client.create_secret(view.namespace, secret)
    except Exception as error:
        failure = classify(error)
        if failure.retryable:
            raise
        # Without its Secret the pod would wait for ever. If it has one after all, it may have begun since it
        # was seen: then this is a conflict, and the launch is made again with what the pod is by then.
        client.delete_pod(view, only_if_unchanged=True, grace_seconds=0)
        raise SecretRefusedError(
            f"Could not start: the Secret with the pod's workload was refused ({failure.message}). Let "
            "the scheduler's service account create Secrets, or set [kubernetes_callbacks] "
            "payload_delivery = argument."
        ) from error


class CallbackKubernetesScheduler(AirflowKubernetesScheduler):
    """Builds and creates the pods of callbacks beside those of tasks, and watches both.

    :param planner: builds callback pods.
    :param callback_pods: makes the requests about them.
    :param extra_namespaces: namespaces of callback pods that the stock watchers do not cover.
    """

    def __init__(
        self,
        *args: Any,
        planner: LaunchPlanner,
        callback_pods: PodClient,
        extra_namespaces: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        self.planner = planner
        self._callback_pods = callback_pods
        self._extra_namespaces = tuple(extra_namespaces)
        #: Of callbacks: pods that were built and not sent yet, by namespace and name.
        self._plans: dict[tuple[str, str], LaunchPlan] = {}
        self._created: dict[str, PodView] = {}
        self._callback_loop: asyncio.AbstractEventLoop | None = None
        super().__init__(*args, **kwargs)

    @property
    def clock(self) -> ApiClock:
        """What the pods created here tell of the API server's clock."""
        return self._callback_pods.clock

    # Launching -------------------------------------------------------------------------------------

    def launch(self, orders: Sequence[tuple[LaunchOrder, Any]]) -> list[Launched]:
        """Create the pods of these orders on the stock path; return what came of each.

        One order is sent by itself (``run_next``), several concurrently (``run_next_batch``).
        """
        jobs = [callback_job(workload, order.attempt) for order, workload in orders]
        errors = self._run_one(jobs[0]) if len(jobs) == 1 else [e for _, e in self.run_next_batch(jobs)]
        return [self._launched(order, error) for (order, _), error in zip(orders, errors, strict=True)]

    def _run_one(self, job: KubernetesJob) -> list[Exception | None]:
        try:
            self.run_next(job)
        except Exception as error:  # noqa: BLE001 - each error is this one callback's, and is classified
            return [error]
        return [None]

    def _launched(self, order: LaunchOrder, error: BaseException | None) -> Launched:
        view = self._created.pop(pod_name(order.callback_id, order.attempt), None)
        if view is None and error is None:
            error = LaunchError("The API server answered without the pod it created.")
        return Launched(view, error)

    def _build_pod_request(self, next_job: KubernetesJob) -> k8s.V1Pod:
        if not is_callback_job(next_job):
            return super()._build_pod_request(next_job)
        config = next_job.kube_executor_config
        attempt = config.number if isinstance(config, Attempt) else 1
        plan = self.planner.plan(next_job.command[0], attempt)
        self._plans[_place(plan.pod)] = plan
        self.log.info("Creating pod %s for callback %s", plan.pod.metadata.name, next_job.key)
        return plan.pod

    def run_pod_async(self, pod: k8s.V1Pod, **kwargs: Any) -> Any:
        # By the place that it was built for: a user may annotate and label pods of tasks like those of callbacks.
        if (plan := self._plans.pop(_place(pod), None)) is None:
            return super().run_pod_async(pod, **kwargs)
        # Not by the parent: it logs the whole pod, token included, when the request fails.
        return self._create(plan)

    def _run_pods_async(self, jobs_and_pods: list[tuple[KubernetesJob, k8s.V1Pod]]) -> list[Exception | None]:
        plans = [self._plans.pop(_place(pod)) for job, pod in jobs_and_pods if is_callback_job(job)]
        if not plans:
            return super()._run_pods_async(jobs_and_pods)
        tasks = [(job, pod) for job, pod in jobs_and_pods if not is_callback_job(job)]
        task_errors = iter(super()._run_pods_async(tasks) if tasks else ())
        callback_errors = iter(self._create_concurrently(plans))
        return [next(callback_errors if is_callback_job(job) else task_errors) for job, _ in jobs_and_pods]

    def _create_concurrently(self, plans: list[LaunchPlan]) -> list[Exception | None]:
        """Create callback pods concurrently, on an event loop of the calling thread's own."""
        if self._callback_loop is None:
            self._callback_loop = asyncio.new_event_loop()

        async def create_all() -> list[Exception | None]:
            slots = asyncio.Semaphore(self.pod_creation_max_concurrency)

            async def create(plan: LaunchPlan) -> Exception | None:
                async with slots:
                    try:
                        await asyncio.to_thread(self._create, plan)
                    except Exception as error:  # noqa: BLE001
                        return error
                return None

            return list(await asyncio.gather(*(create(plan) for plan in plans)))

        return self._callback_loop.run_until_complete(create_all())

    def _create(self, plan: LaunchPlan) -> PodView:
        """Create the pod, and its Secret where it has one; an answer that was lost is made good.

        That the pod exists already means that this launch was made: by an earlier try of ours whose
        answer did not arrive, or by another scheduler. Whose it is, its labels say.
        """
        namespace, name = _place(plan.pod)
        body = self.kube_client.api_client.sanitize_for_serialization(plan.pod)
        view = self._create_or_find(namespace, name, body, callback_id_of(body["metadata"]))
        self._created[name] = view
        mine = view.owner == str(self.scheduler_job_id)
        if isinstance(plan.payload, SecretPayload) and mine and view.started_at is None:
            with arrived():
                self._create_secret(view, plan.secret_parts())
        return view

    def _create_or_find(
        self, namespace: str, name: str, body: dict[str, Any], callback_id: str | None
    ) -> PodView:
        """Return the pod that was created, or this callback's that has the name already.

        :raises NameTakenError: another's pod has the name, and keeps it.
        """
        try:
            return self._callback_pods.create_pod(namespace, body)
        except Exception as error:
            if classify(error).answer is not ApiAnswer.ALREADY_EXISTS:
                raise
            with arrived():
                view = self._callback_pods.read_pod(namespace, name, id_of=holder_of)
                foreign = view is not None and view.callback_id != callback_id
                if view is None or (foreign and view.deleting):
                    raise  # its name comes free
            if not foreign:
                return view
            whose = f"that of callback {view.callback_id}" if view.callback_id else "no callback's"
            raise NameTakenError(
                f"Could not start: pod {namespace}/{name} already exists and is {whose}. Delete it if nothing "
                "needs it.",
                perhaps_ours=not view.callback_id,
            ) from error

    def _create_secret(self, view: PodView, parts: dict[str, Any]) -> None:
        try:
            create_secret(self._callback_pods, view, parts)
        except SecretRefusedError:
            self.planner.secret_was_refused(view.namespace)
            self._created.pop(view.name, None)  # it was deleted
            raise

    def ensure_payload(self, pod: PodView, make_workload: Callable[[], Any]) -> None:
        """Create the Secret that the pod waits for, in case whoever created the pod could not."""
        plan = self.planner.plan(make_workload(), pod.attempt)
        if isinstance(plan.payload, SecretPayload):
            self._create_secret(pod, plan.secret_parts())

    # Watching --------------------------------------------------------------------------------------

    def _make_kube_watcher(self, namespace: str) -> Any:
        with substituted(kubernetes_executor_utils, "KubernetesJobWatcher", CallbackJobWatcher):
            return super()._make_kube_watcher(namespace)

    def _make_kube_watchers(self) -> dict[str, Any]:
        watchers: dict[str, Any] = super()._make_kube_watchers()
        for namespace in self._extra_namespaces:
            if namespace not in watchers:
                watchers[namespace] = self._make_kube_watcher(namespace)
        return watchers

    def process_watcher_task(self, task: Any) -> None:
        """Turn a watch message into a result; a callback's goes under its CallbackKey."""
        callback_id = (task.annotations or {}).get(CALLBACK_ID_ANNOTATION)
        if callback_id is None:
            super().process_watcher_task(task)
            return
        self.result_queue.put(
            KubernetesResults(
                CallbackKey(callback_id),  # type: ignore[arg-type]
                task.state,
                task.pod_name,
                task.namespace,
                task.resource_version,
                task.failure_details,
            )
        )

    def terminate(self) -> None:
        super().terminate()
        if self._callback_loop is not None and not self._callback_loop.is_running():
            self._callback_loop.close()
