"""Callback pods at a certain point of their life, made by hand or by a scheduler."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.jobs.job import Job, JobState
from airflow.utils.session import create_session

from airflow_kubernetes_callbacks import identity
from tests.fakes.objects import timestamp
from tests.fakes.scheduler import pod_tells_api_that_it_runs, wait_until

if TYPE_CHECKING:
    from tests.fakes.api_server import FakeApiServer
    from tests.fakes.objects import Document
    from tests.fakes.scheduler import Scheduler


def other_scheduler(age: float = 0.0) -> str:
    """Make the job row of a scheduler whose heartbeat is *age* seconds old; return its id."""
    with create_session(scoped=False) as session:
        job = Job(job_type="SchedulerJob", state=JobState.RUNNING)
        job.latest_heartbeat = datetime.now(UTC) - timedelta(seconds=age)
        session.add(job)
        session.flush()
        return str(job.id)


def pod_document(callback_id: str, owner: str, *, attempt: int = 1, finalizer: bool = False) -> Document:
    """Return a callback pod as this package creates it, as far as anything depends on it."""
    metadata: dict[str, Any] = {
        "name": identity.pod_name(callback_id, attempt),
        "labels": {
            identity.OWNER_LABEL: owner,
            identity.WORKLOAD_TYPE_LABEL: identity.CALLBACK_WORKLOAD,
            identity.CALLBACK_ID_LABEL: callback_id,
            identity.ATTEMPT_LABEL: str(attempt),
        },
        "annotations": {
            identity.CALLBACK_ID_ANNOTATION: callback_id,
            identity.DAG_ID_ANNOTATION: "reports",
            identity.RUN_ID_ANNOTATION: "manual__1",
        },
    }
    if finalizer:
        metadata["finalizers"] = [identity.RESULT_FINALIZER]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"restartPolicy": "Never", "containers": [{"name": "base", "image": "airflow"}]},
    }


def pod_of(
    api_server: FakeApiServer,
    callback_id: str,
    owner: str,
    stage: str = "pending",
    *,
    namespace: str = "airflow",
    age: float = 0.0,
    **options: Any,
) -> Document:
    """Put the pod of a callback into the cluster: pending, bound, running, succeeded or failed."""
    pod = api_server.store.create("pods", namespace, pod_document(callback_id, owner, **options))
    if age:
        created = timestamp(datetime.now(UTC) - timedelta(seconds=age))
        api_server.store.update(
            "pods",
            namespace,
            pod["metadata"]["name"],
            lambda doc: doc["metadata"].update(creationTimestamp=created),
        )
    bring_to(api_server, pod, stage)
    return api_server.store.get("pods", namespace, pod["metadata"]["name"])


def bring_to(api_server: FakeApiServer, pod: Document, stage: str) -> None:
    node = api_server.node
    steps = {
        "pending": (),
        "bound": (node.bind,),
        "running": (node.bind, node.start),
        "succeeded": (node.bind, node.start, node.finish),
        "failed": (node.bind, node.start, lambda it: node.finish_callback(it, "ValueError: no such channel")),
    }
    for step in steps[stage]:
        step(pod)


def launched(api_server: FakeApiServer, scheduler: Scheduler, callback_id: str) -> Document:
    """Have the scheduler create the pod of this callback, and return it."""

    def find() -> list[Document]:
        return api_server.pods(labels=f"{identity.CALLBACK_ID_LABEL}={callback_id}")

    pods = scheduler.until(find, f"pod of {callback_id} is created")
    scheduler.until(lambda: not scheduler.callbacks.cache.track(callback_id).busy, "creation is answered")
    return max(pods, key=lambda pod: int(pod["metadata"]["labels"][identity.ATTEMPT_LABEL]))


def running(api_server: FakeApiServer, scheduler: Scheduler, callback_id: str) -> Document:
    """Have the scheduler run this callback; its row says so when this returns."""
    from tests.fakes.scheduler import state_of

    pod = launched(api_server, scheduler, callback_id)
    api_server.node.bind(pod)
    assert pod_tells_api_that_it_runs(callback_id)
    api_server.node.start(pod)
    scheduler.until(lambda: state_of(callback_id) == "running", "row is running")
    return api_server.store.get("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])


def wait_for_watch(api_server: FakeApiServer, count: int = 1) -> None:
    wait_until(lambda: api_server.watching >= count, "watch is open")
