"""What a test says: miss these deadlines, start a scheduler, kill it, wait for that row.

Everything here is real: Airflow's processes, its database, the cluster. A :class:`Scenario` has a
namespace of its own and an empty database; the API server is shared by all scenarios of an
:class:`Installation`, because it does not know which executor there is.
"""

from __future__ import annotations

import functools
import json
import re
import secrets
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, text

from kubernetes_tests.airflow_env import AirflowEnv, WaitTimeoutError, wait_for
from kubernetes_tests.clusters import write_template
from kubernetes_tests.driver import Driver

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Engine

    from kubernetes_tests.airflow_env import AirflowProcess
    from kubernetes_tests.clusters import Cluster, Namespace
    from kubernetes_tests.ledger import Ledger

STOCK = "KubernetesExecutor"
OURS = "KubernetesExecutor:airflow_kubernetes_callbacks.KubernetesExecutor"

#: Name of the scheduling gate by which a scenario holds pods back.
HOLD = "tests.example/hold"

TERMINAL = frozenset({"success", "failed"})

#: Nothing here waits for Airflow's usual intervals; each value is what a test may count on.
QUICK = {
    "core.executor": OURS,
    "core.test_connection": "Enabled",
    "scheduler.scheduler_idle_sleep_time": 0.2,
    "scheduler.scheduler_heartbeat_sec": 1,
    "scheduler.scheduler_health_check_threshold": 5,
    "scheduler.orphaned_tasks_check_interval": 5,
    "kubernetes_callbacks.reconcile_interval": 2,
    "kubernetes_callbacks.launch_retry_delay": 1,
    "kubernetes_callbacks.launch_retry_max_delay": 4,
    "kubernetes_callbacks.pending_timeout": 60,
    "kubernetes_callbacks.start_error_grace": 5,
}


def creation_config(way: str) -> dict[str, object]:
    """Return the options for one of the two ways in which the stock executor creates pods."""
    if way == "batches":
        return {
            "kubernetes_executor.async_pod_creation": True,
            "kubernetes_executor.worker_pods_creation_batch_size": 8,
        }
    return {"kubernetes_executor.async_pod_creation": False}


@dataclass(frozen=True)
class MissedDeadline:
    """A callback that a scenario asked for: the row's id, and its key in the ledger."""

    id: str
    key: str


@dataclass(frozen=True)
class CallbackRow:
    id: str
    state: str | None
    output: str | None
    data: dict[str, Any]


def _plain(value: Any) -> Any:
    """Return a value without the words by which Airflow stores the type of each in it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        inner = value.get("__var", value)
        return {key: _plain(item) for key, item in inner.items()} if isinstance(inner, dict) else inner
    return value


class Installation:
    """Airflow with one database and one API server, for many scenarios one after the other."""

    def __init__(
        self, home: Path, cluster: Cluster, ledger: Ledger, dags: Path, database: str | None
    ) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.env = AirflowEnv(
            home,
            dags_folder=dags,
            database=database,
            host=cluster.host,
            host_for_workers=cluster.host_from_pods,
            config=QUICK,
            environment={"LEDGER_URL": ledger.url},
        )
        self.driver: Driver | None = None

    @property
    def database(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self.env.database.partition(":")[0].partition("+")[0]

    @functools.cached_property
    def engine(self) -> Engine:
        arguments = {"timeout": 60} if self.database == "sqlite" else {}
        return create_engine(self.env.database, connect_args=arguments)

    def start(self) -> None:
        self.env.migrate()
        self.env.start_api_server(wait=None)
        self.driver = Driver(self.env)
        self.call("parse_dags")
        self.env.wait_for_api_server()

    def call(self, operation: str, **arguments: Any) -> Any:
        """Have the driver do something; see ``driver.py``."""
        assert self.driver is not None
        return self.driver.call(operation, **arguments)

    def query(self, sql: str, **parameters: object) -> list[Any]:
        with self.engine.connect() as connection:
            return list(connection.execute(text(sql), parameters))

    def stop(self) -> None:
        if self.driver is not None:
            self.driver.close()
        self.env.stop()
        if "engine" in self.__dict__:
            self.engine.dispose()


class Scenario:
    """One test's view of an installation: its namespace, its schedulers, its callbacks.

    :param config: options for every scheduler of the scenario, on top of :data:`QUICK`.
    """

    def __init__(
        self,
        installation: Installation,
        namespace: Namespace,
        folder: Path,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self.installation = installation
        self.namespace = namespace
        self.cluster = namespace.cluster
        self.ledger = installation.ledger
        self.env = installation.env
        self.folder = folder
        self.template = self.cluster.pod_template(self.pod_environment)
        self.config: dict[str, object] = {
            **self.cluster.executor_config,
            "kubernetes_executor.namespace": namespace.name,
            "kubernetes_executor.pod_template_file": folder / "pod.yaml",
            **(config or {}),
        }
        self.write_template(self.template)
        self._schedulers: list[AirflowProcess] = []

    # --- set up ---

    @property
    def pod_environment(self) -> dict[str, str]:
        return {
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": self.env.execution_api_url(
                self.cluster.host_from_pods
            ),
            # 3.4: a pod whose start was granted in more than this time is refused when it asks again
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        }

    @property
    def base_container(self) -> dict[str, Any]:
        """The base container of :attr:`template`, to be changed before the scheduler starts."""
        container: dict[str, Any] = self.template["spec"]["containers"][0]
        return container

    def write_template(self, template: object) -> Path:
        return write_template(self.folder / "pod.yaml", template)

    def hold_pods(self) -> None:
        """Have pods wait, unscheduled, until :meth:`release_pods`."""
        self.template["spec"]["schedulingGates"] = [{"name": HOLD}]
        self.write_template(self.template)

    def release_pods(self) -> None:
        """Let the pods that wait be scheduled, and new ones at once."""
        self.release_template()
        for pod in self.namespace.pods():
            if pod["spec"].get("schedulingGates"):
                self.namespace.patch_pod(pod["metadata"]["name"], {"spec": {"schedulingGates": None}})

    def release_template(self) -> None:
        """Let new pods be scheduled at once; those that wait go on waiting."""
        self.template["spec"].pop("schedulingGates", None)
        self.write_template(self.template)

    def start_scheduler(
        self,
        name: str = "scheduler",
        *,
        config: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AirflowProcess:
        """Start a scheduler. The template is written as it is at this moment."""
        scheduler = self.env.start_scheduler(
            name, config={**self.config, **(config or {})}, environment=environment
        )
        self._schedulers.append(scheduler)
        return scheduler

    def stop_schedulers(self) -> None:
        for scheduler in self._schedulers:
            if scheduler.running:
                scheduler.kill()

    def run_dag(self, dag_id: str, conf: Mapping[str, object] | None = None) -> dict[str, Any]:
        run: dict[str, Any] = self.installation.call("run_dag", dag_id=dag_id, conf=conf)
        return run

    def miss(
        self,
        function: str = "succeed",
        *,
        count: int = 1,
        executor: str | None = None,
        path: str | None = None,
        python: str | None = None,
        conf: Mapping[str, object] | None = None,
        **kwargs: object,
    ) -> list[MissedDeadline]:
        """Make *count* missed deadlines of one Dag run, each with a callback of ``ledger_callbacks``.

        The scheduler, whenever there is one, finds them and hands the callbacks to the executor.

        :param path: another callback than *function*; it then gets no ledger arguments.
        :param python: an expression for more keyword arguments, evaluated in the driver.
        """
        run = self.run_dag("no_tasks_to_run", conf)
        callbacks = []
        keys = []
        for _ in range(count):
            key = f"{function}-{secrets.token_hex(6)}"
            arguments = dict(kwargs) if path else {"ledger": self.ledger.url, "key": key, **kwargs}
            keys.append(key)
            callbacks.append(
                {
                    "path": path or f"ledger_callbacks.{function}",
                    "kwargs": arguments,
                    "executor": executor,
                    "python": python,
                }
            )
        ids = self.installation.call("miss_deadlines", dag_run=run["id"], callbacks=callbacks)
        return [MissedDeadline(id, key) for id, key in zip(ids, keys, strict=True)]

    # --- what happened ---

    @property
    def schedulers(self) -> Sequence[AirflowProcess]:
        """Every scheduler that was started in this scenario, living or not."""
        return self._schedulers

    def scheduler_logs(self) -> str:
        return "\n".join(scheduler.log() for scheduler in self._schedulers)

    def rows(self) -> dict[str, CallbackRow]:
        """Return every executor callback of the database by its id."""
        found = self.installation.query(
            "SELECT id, state, output, data FROM callback WHERE type = 'executor'"
        )
        rows = {}
        for id, state, output, data in found:
            canonical = str(uuid.UUID(str(id)))
            decoded = json.loads(data) if isinstance(data, str) else data
            rows[canonical] = CallbackRow(canonical, state, output, _plain(decoded))
        return rows

    def row(self, callback: MissedDeadline) -> CallbackRow:
        return self.rows()[callback.id]

    def wait_for_state(
        self, callbacks: MissedDeadline | Iterable[MissedDeadline], *states: str, timeout: float = 120.0
    ) -> list[CallbackRow]:
        """Wait until each callback's row has one of the states, and return the rows.

        A row that ended in another state, and a scheduler that is gone, fail at once.
        """
        wanted = [callbacks] if isinstance(callbacks, MissedDeadline) else list(callbacks)

        def look() -> list[CallbackRow] | None:
            rows = self.rows()
            found = [rows[callback.id] for callback in wanted]
            if all(row.state in states for row in found):
                return found
            if wrong := [row for row in found if row.state in TERMINAL and row.state not in states]:
                raise AssertionError(f"not {' or '.join(states)}: {wrong}\n{self.describe()}")
            if self._schedulers and not any(scheduler.running for scheduler in self._schedulers):
                raise AssertionError(f"no scheduler runs any more\n{self.describe()}")
            return None

        return wait_for(
            f"{len(wanted)} callbacks are {' or '.join(states)}", look, timeout, otherwise=self.describe
        )

    def events(self, callback: MissedDeadline) -> list[str]:
        """Return the states that schedulers took from the executor for this callback, in order."""
        pattern = rf"Received executor event with state (\S+) for callback {callback.id}"
        return [state.rpartition(".")[2].lower() for state in re.findall(pattern, self.scheduler_logs())]

    def wait_for_clean_up(self, callback: MissedDeadline, timeout: float = 60.0) -> None:
        """Wait until the pod of an ended callback is dealt with: labelled done if it failed, else gone.

        That is what Airflow does with the pods of tasks where nobody asks for something else.
        """

        def look() -> bool:
            pod = self.namespace.pod_of(callback.id)
            if pod is None:
                secrets = [secret["metadata"]["name"] for secret in self.namespace.secrets()]
                return not any(callback.id in name for name in secrets)
            done = pod["metadata"]["labels"].get("airflow_executor_done") == "True"
            return done and bool(pod["status"]["phase"] == "Failed")

        wait_for(f"{callback} is cleaned up", look, timeout, otherwise=self.describe)

    def wait_for_done_label(self, callback: MissedDeadline, timeout: float = 60.0) -> None:
        """Wait until a pod that is kept is marked as dealt with."""

        def look() -> bool:
            pod = self.namespace.pod_of(callback.id)
            return pod is not None and pod["metadata"]["labels"].get("airflow_executor_done") == "True"

        wait_for(f"pod of {callback} is labelled done", look, timeout, otherwise=self.describe)

    def wait_for_no_pods(self, timeout: float = 60.0) -> None:
        """Wait until no callback pod and no Secret of one is left in the namespace."""

        def look() -> bool:
            return not self.namespace.callback_pods() and not self.namespace.secrets()

        wait_for("no callback pods and Secrets", look, timeout, otherwise=self.describe)

    def wait_for_pod(
        self, callback: MissedDeadline, phase: str | None = None, timeout: float = 60.0
    ) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            pod = self.namespace.pod_of(callback.id)
            if pod is None or phase not in (None, pod["status"].get("phase")):
                return None
            return pod

        return wait_for(f"pod of {callback}, phase {phase}", look, timeout, otherwise=self.describe)

    def launched_pods(self) -> set[str]:
        """Return the names of callback pods that the cluster has seen, still there or not."""
        names = {event["involvedObject"]["name"] for event in self.namespace.events()}
        names.update(pod["metadata"]["name"] for pod in self.namespace.callback_pods())
        return {name for name in names if re.fullmatch(r"callback-[0-9a-f-]{36}-\d+", name)}

    def launched_callbacks(self) -> set[str]:
        """Return the ids of callbacks for which the cluster has seen a pod."""
        return {name.removeprefix("callback-")[:36] for name in self.launched_pods()}

    def begun(self, callbacks: Iterable[MissedDeadline]) -> list[MissedDeadline]:
        """Return those of the callbacks whose own code has begun."""
        return [callback for callback in callbacks if self.ledger.runs(callback.key)]

    def wait_for_begin(self, callback: MissedDeadline, timeout: float = 90.0) -> None:
        """Wait until the callback's own code has begun."""
        wait_for(
            f"{callback.key} begins",
            lambda: self.ledger.runs(callback.key),
            timeout,
            interval=0.1,
            otherwise=self.describe,
        )

    def run_state(self, run: Mapping[str, Any]) -> str:
        ((state,),) = self.installation.query("SELECT state FROM dag_run WHERE id = :id", id=run["id"])
        return str(state)

    def wait_for_run(self, run: Mapping[str, Any], state: str = "success", timeout: float = 180.0) -> None:
        wait_for(
            f"Dag run {run['run_id']} is {state}",
            lambda: self.run_state(run) == state,
            timeout,
            otherwise=self.describe,
        )

    def describe(self) -> str:
        """Return rows, pods and the end of the logs, for the message of a failure."""
        lines = ["--- callbacks"]
        lines.extend(f"{row.id} {row.state} {row.output}" for row in self.rows().values())
        lines.append(self.namespace.describe())
        recent = self._schedulers[-3:]
        running = [one for one in self._schedulers if one.running and one not in recent]
        lines.extend(scheduler.tail(60) for scheduler in (*running, *recent))
        return "\n".join(lines)

    def close(self) -> None:
        self.stop_schedulers()
        self.installation.call("wipe")


__all__ = [
    "OURS",
    "QUICK",
    "STOCK",
    "CallbackRow",
    "Installation",
    "MissedDeadline",
    "Scenario",
    "WaitTimeoutError",
]
