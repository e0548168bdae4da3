"""Fixtures for tests of the executor on a fake API server. ``tests/conftest.py`` offers them to all tests."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fakes.api_server import FakeApiServer
    from tests.fakes.scheduler import Scheduler

OURS = "KubernetesExecutor:airflow_kubernetes_callbacks.KubernetesExecutor"
TEMPLATE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "template"},
    "spec": {"containers": [{"name": "base", "image": "airflow:worker"}]},
}
#: Short delays: what waits for them is tested with clocks that are set, not with clocks that run.
QUICK = {
    "AIRFLOW__KUBERNETES_CALLBACKS__LAUNCH_RETRY_DELAY": "0",
    "AIRFLOW__KUBERNETES_CALLBACKS__RECONCILE_INTERVAL": "3600",
}


@pytest.fixture
def api_server() -> Iterator[FakeApiServer]:
    from tests.fakes.api_server import FakeApiServer
    from tests.fakes.processes import end_watchers

    with FakeApiServer() as server:
        yield server
    end_watchers()  # their streams have ended: what they log must not end up in the next test's output


@pytest.fixture
def kube_environment(
    api_server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Configuration for an executor that talks to the fake API server; call it to set further options."""
    template = tmp_path / "template.yaml"
    template.write_text(json.dumps(TEMPLATE))

    def set_options(**options: str) -> None:
        for name, value in options.items():
            monkeypatch.setenv(f"AIRFLOW__{name}", value)

    set_options(
        CORE__EXECUTOR=OURS,
        KUBERNETES_EXECUTOR__CONFIG_FILE=str(api_server.write_kubeconfig(tmp_path / "kubeconfig")),
        KUBERNETES_EXECUTOR__IN_CLUSTER="False",
        KUBERNETES_EXECUTOR__NAMESPACE="airflow",
        KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE=str(template),
        LOGGING__BASE_LOG_FOLDER=str(tmp_path / "logs"),
    )
    for name, value in QUICK.items():
        monkeypatch.setenv(name, value)
    return set_options


@pytest.fixture
def in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No further processes: queues and watchers of executors are in this one."""
    from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils

    from airflow_kubernetes_callbacks import pod_launcher, watcher
    from tests.fakes.processes import LocalManager, StockThreadWatcher, ThreadWatcher, quick_sleep

    monkeypatch.setattr("multiprocessing.Manager", LocalManager)
    monkeypatch.setattr(kubernetes_executor_utils, "KubernetesJobWatcher", StockThreadWatcher)
    monkeypatch.setattr(pod_launcher, "CallbackJobWatcher", ThreadWatcher)
    monkeypatch.setattr(kubernetes_executor_utils.ResourceVersion, "resource_version", {})
    monkeypatch.setattr(watcher, "time", SimpleNamespace(sleep=quick_sleep))


@pytest.fixture
def executor_names() -> Iterator[None]:
    """The executors of the configuration, read anew: Airflow caches them for the process."""
    from airflow.executors import executor_loader

    def forget() -> None:
        for name, value in vars(executor_loader).items():
            cached = name.startswith("_") and ("executors" in name or "executor_names" in name)
            if cached and isinstance(value, (dict, list)):
                value.clear()
        for alias in set(executor_loader.ExecutorLoader.executors) - known:
            del executor_loader.ExecutorLoader.executors[alias]
        executor_loader.ExecutorLoader.executors.update(original)

    original = dict(executor_loader.ExecutorLoader.executors)
    known = set(original)
    forget()
    yield
    forget()


@pytest.fixture
def new_scheduler(
    session: Any, kube_environment: Any, in_one_process: None, executor_names: None
) -> Iterator[Callable[..., Scheduler]]:
    """Makes started schedulers; options of the configuration are keywords."""
    from tests.fakes.scheduler import Scheduler

    made: list[Scheduler] = []

    def make(*, start: bool = True, **options: str) -> Scheduler:
        kube_environment(**options)
        scheduler = Scheduler()
        made.append(scheduler)
        return scheduler.start() if start else scheduler

    yield make
    for scheduler in made:
        scheduler.stop()


_numbers = itertools.count(1)


@pytest.fixture
def new_callback(session: Any) -> Callable[..., str]:
    """Makes rows of missed deadlines, ready to be enqueued; returns the id."""
    from airflow.models.callback import Callback
    from airflow.models.dagrun import DagRun
    from airflow.sdk import SyncCallback
    from airflow.utils.session import create_session
    from airflow.utils.state import CallbackState

    def make(
        *,
        path: str = "alerts.notify",
        kwargs: dict[str, Any] | None = None,
        executor: str | None = None,
        dag_id: str = "reports",
        run_id: str | None = None,
        state: str = CallbackState.PENDING,
        **data: Any,
    ) -> str:
        run_id = run_id or f"manual__{next(_numbers)}"
        with create_session(scoped=False) as own:
            make_dag(own, dag_id)
            run = DagRun(
                dag_id=dag_id,
                run_id=run_id,
                run_type="manual",
                logical_date=None,
                run_after=datetime.now(UTC),
                start_date=datetime.now(UTC),
                state="running",
            )
            own.add(run)
            own.flush()
            callback = Callback.create_from_sdk_def(
                SyncCallback(path, kwargs={"text": "late", **(kwargs or {})}, executor=executor),
                prefix="deadline_alerts",
            )
            callback.data = {
                **callback.data,
                "dag_id": dag_id,
                "dag_run_id": str(run.id),
                "deadline_id": "018f0000-0000-7000-8000-000000000001",
                **data,
            }
            callback.state = state
            own.add(callback)
            own.flush()
            return str(callback.id)

    return make


def make_dag(session: Any, dag_id: str) -> None:
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel

    if session.get(DagBundleModel, "bundle") is None:
        session.add(DagBundleModel(name="bundle"))
        session.flush()
    if session.get(DagModel, dag_id) is None:
        session.add(
            DagModel(
                dag_id=dag_id, bundle_name="bundle", relative_fileloc="reports.py", fileloc="/dags/reports.py"
            )
        )
        session.flush()
