"""What every measurement needs: a cluster, a database, and processes with an executor in them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubernetes_tests.airflow_env import AirflowEnv
from kubernetes_tests.clusters import Cluster, Namespace, write_template
from kubernetes_tests.scenario import OURS, STOCK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kubernetes_tests.databases import PostgresqlServer

ROOT = Path(__file__).resolve().parents[2]
#: What is measured is this checkout, whatever package the environment has.
PYTHON_PATH = f"{ROOT / 'src'}{os.pathsep}{ROOT}"

#: As many at once as our executor's ``launch_concurrency``, so that nobody creates with more.
CONCURRENCY = 16
CONFIG: dict[str, object] = {
    "core.parallelism": 200_000,
    "kubernetes_executor.worker_pods_creation_batch_size": CONCURRENCY,
    "kubernetes_callbacks.launch_concurrency": CONCURRENCY,
    "kubernetes_callbacks.payload_delivery": "argument",
    # nothing but the measurement asks for a comparison
    "kubernetes_callbacks.reconcile_interval": 100_000,
    # no node has these pods, so there is no log to be had
    "kubernetes_callbacks.save_logs": False,
    "kubernetes_callbacks.pending_timeout": 100_000,
}
SUBJECTS: dict[str, dict[str, object]] = {
    "stock": {"core.executor": STOCK},
    "stock-async": {"core.executor": STOCK, "kubernetes_executor.async_pod_creation": True},
    "ours": {"core.executor": OURS},
    "ours-async": {"core.executor": OURS, "kubernetes_executor.async_pod_creation": True},
    "ours-secret": {"core.executor": OURS, "kubernetes_callbacks.payload_delivery": "secret"},
}


class Child:
    """A process with one executor, in a namespace and a database of its own; see ``child.py``."""

    def __init__(self, env: AirflowEnv, namespace: Namespace, config: Mapping[str, object]) -> None:
        self.namespace = namespace
        self._log = (env.home / "child.log").open("ab")
        env.configure(config)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kubernetes_tests.bench.child"],
            env={
                **env.environment,
                "PYTHONPATH": PYTHON_PATH,
                "BENCH_KUBECONFIG": str(namespace.cluster.kubeconfig),
                "BENCH_NAMESPACE": namespace.name,
            },
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self._env = env
        self.pid = self._process.pid

    def do(self, command: str, **arguments: Any) -> dict[str, Any]:
        """Have the process do something and return its answer.

        :raises RuntimeError: it has ended; the message has the end of its log.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": command, **arguments}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            tail = Path(self._log.name).read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{command} failed:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @contextlib.contextmanager
    def played(self) -> Iterator[None]:
        """Let the pods of its namespace run and succeed meanwhile."""
        player = subprocess.Popen(
            [
                *(sys.executable, "-m", "kubernetes_tests.bench.pods"),
                *(str(self.namespace.cluster.kubeconfig), self.namespace.name),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
        )
        try:
            yield
        finally:
            player.kill()
            player.wait()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.do("end")
        self._process.kill()
        self._process.wait()
        self._env.stop()
        self._log.close()


class Lab:
    """One cluster and one database server for a whole run."""

    def __init__(self, cluster: Cluster, postgresql: PostgresqlServer | None, folder: Path) -> None:
        self.cluster = cluster
        self._postgresql = postgresql
        self._folder = folder
        self._made = 0

    @property
    def servers(self) -> list[int]:
        """The processes of the API server: its own, and that with etcd in it."""
        assert self.cluster.local is not None
        components = self.cluster.local.status()["components"]
        return [components["supervisor"], components["kube-apiserver"]]

    @property
    def database(self) -> str:
        return "postgresql" if self._postgresql else "sqlite"

    def environment(self, namespace: Namespace, config: Mapping[str, object]) -> AirflowEnv:
        """Return an Airflow of its own, with an empty database."""
        env = self._migrated()
        home = env.home
        template = namespace.cluster.pod_template({})
        # no scheduler looks at these pods: what is measured is not the cluster's own work
        template["spec"]["schedulerName"] = "nobody"
        env.configure(
            {
                **CONFIG,
                **namespace.cluster.executor_config,
                "kubernetes_executor.namespace": namespace.name,
                "kubernetes_executor.pod_template_file": write_template(home / "template.yaml", template),
                **config,
            }
        )
        return env

    def _migrated(self) -> AirflowEnv:
        """Return an Airflow with a new database: the first one is migrated, the others are copies of it."""
        if self._made == 0:
            first = self._airflow(template=None)
            first.migrate()
            first.stop()
        return self._airflow(template="bench_1")

    def _airflow(self, template: str | None) -> AirflowEnv:
        self._made += 1
        name = f"bench_{self._made}"
        home = self._folder / name
        if self._postgresql is not None:
            return AirflowEnv(home, database=self._postgresql.create_database(name, template))
        env = AirflowEnv(home)
        if template is not None:
            for file in (self._folder / template).glob("*.db*"):
                shutil.copy(file, home / file.name)
        return env

    @contextlib.contextmanager
    def child(self, subject: str, **config: object) -> Iterator[Child]:
        """Start a process with this executor; it is ready when its executor is."""
        with self.cluster.namespace() as namespace:
            options = {**SUBJECTS[subject], **config}
            child = Child(self.environment(namespace, options), namespace, options)
            try:
                child.do("start")
                yield child
            finally:
                child.close()


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
